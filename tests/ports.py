"""Free ports for servers that tests start."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_given: set[int] = set()


def free_port() -> int:
    """A TCP port on 127.0.0.1 that nobody listens on and that this run has not given before.

    Below the range that the kernel takes ports from: one of those may be the near end of somebody's connection, or a server's
    that asked for any port, by the time our server comes to bind it.
    """
    first_of_kernel = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(first_of_kernel - 12_000, first_of_kernel)
        if port in _given:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given.add(port)
        return port
