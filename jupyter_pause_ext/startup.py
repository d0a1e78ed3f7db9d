"""Run at the start of every Python kernel (``PYTHONSTARTUP``): reseeds OpenSSL there after a restore.

Why this way: it needs no file in the user's home, no change of a kernel's command or configuration, works for kernels of
other environments (loaded by path, standard library only), and in a busy kernel, since a thread does it. It leaves no name
behind and does nothing outside a sandbox that tells of checkpoints. A ``PYTHONSTARTUP`` that was set before is run too.
Kernels that are not Python (R, Julia) and Python without IPython's startup files are not reached.
"""


def _jupyter_pause_startup() -> str:
    """Start the thread; the source of the start-up file that was set before, or an empty text."""
    import importlib.util
    import os
    from pathlib import Path

    modules = {}
    for name in ("signal", "reseed"):
        path = Path(os.environ.get("JUPYTER_PAUSE_EXT_DIR", "/nonexistent"), name + ".py")
        spec = importlib.util.spec_from_file_location("_jupyter_pause_" + name, path) if path.is_file() else None
        if spec is not None and spec.loader is not None:
            modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(modules[name])
    if len(modules) == 2:
        reseed = modules["reseed"].reseed_openssl
        modules["signal"].Watcher.start(lambda word: reseed() if word == "restore" else None)
    before = Path(os.environ.get("JUPYTER_PAUSE_STARTUP_NEXT") or "/nonexistent")
    return before.read_text(encoding="utf-8") if before.is_file() else ""


exec(_jupyter_pause_startup())  # noqa: S102 - the user's own start-up file, in the user's namespace, as Python would
del _jupyter_pause_startup
