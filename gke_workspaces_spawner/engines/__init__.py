"""Engines: what saves and restores a server's processes, behind :class:`~..lifecycle.ports.Engine`."""
