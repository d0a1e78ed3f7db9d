"""A layer of Cloud Storage's metadata: buckets with all their settings and an IAM policy, which the object storage of the tests drops."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

Object = dict[str, Any]


class Buckets:
    """What the layer knows; change it between calls."""

    def __init__(self) -> None:
        self.url = ""
        self.settings: dict[str, Object] = {}
        self.grants: dict[str, list[Object]] = {}
        self.refused: set[str] = set()
        """Paths' ends that are answered with 403: a bucket's name, or ``iam``."""

    def answer(self, path: str) -> tuple[int, Object]:
        """(status, body) for a GET."""
        parts = urlsplit(path).path.split("/")
        name, what = parts[4], parts[-1]
        if what in self.refused:
            return 403, {"error": {"code": 403, "message": f"no right to {what}"}}
        if name not in self.settings:
            return 404, {"error": {"code": 404, "message": "The specified bucket does not exist."}}
        if what == "iam":
            return 200, {"kind": "storage#policy", "version": 3, "etag": "CAE=", "bindings": self.grants.get(name, [])}
        return 200, {"kind": "storage#bucket", "id": name, "name": name, **self.settings[name]}


@contextmanager
def buckets() -> Iterator[Buckets]:
    """The layer, on a port of the loopback, for as long as the block lasts."""
    known = Buckets()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = known.answer(self.path)
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    known.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield known
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
