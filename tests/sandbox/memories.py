"""What a kernel is given to remember before a pause, and what it is asked for afterwards."""

from __future__ import annotations

LOAD = """
import hashlib, os, threading, time, random
x = {x}; dice = random.Random({x}); big = b"".join(dice.randbytes(1 << 20) for _ in range({megabytes})); n = 0
def count():
    global n
    while True: n += 1; time.sleep(0.01)
threading.Thread(target=count, daemon=True).start()
held = open('held-{x}.txt', 'w+'); held.write('hello'); held.flush()
print(os.getpid(), hashlib.sha256(big).hexdigest())
"""
LOOK = "a = n; time.sleep(0.1); print(os.getpid(), hashlib.sha256(big).hexdigest(), x, n > a, held.tell(), open(held.name).read())"
