"""The kubelets' own HTTPS port, for ``kubectl logs``: one server for all nodes, since they all have the same address."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

from aiohttp import web

from .kubelet import PodWorker


class KubeletPort:
    """Serves ``/containerLogs/NAMESPACE/POD/CONTAINER``."""

    def __init__(self, port: int, certificates: Path, worker_of: Callable[[str, str], PodWorker | None]) -> None:
        self.port = port
        self._certificates = certificates
        self._worker_of = worker_of
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._logs)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(self._certificates / "server.crt", self._certificates / "server.key")
        await web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=tls, shutdown_timeout=1).start()

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _logs(self, request: web.Request) -> web.Response:
        worker = self._worker_of(request.match_info["namespace"], request.match_info["pod"])
        if worker is None:
            return web.Response(status=404, text="pod not found")
        lines = worker.log_text().splitlines(keepends=True)
        tail = request.query.get("tailLines")
        return web.Response(text="".join(lines[-int(tail) :] if tail else lines))
