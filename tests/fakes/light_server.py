"""A single-user server that starts in a moment: answers ``/api`` and the Hub's signed messages, keeps a count in its memory.

For tests that need many servers; whoever tests logins and cookies takes the real one.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from jupyter_pause_ext.signing import SIGNATURE_HEADER, Verifier, parse_secret

BOOT_ID = secrets.token_hex(16)
SERVICE_URL = urlsplit(os.environ["JUPYTERHUB_SERVICE_URL"])
BASE = os.environ["JUPYTERHUB_SERVICE_PREFIX"]
memory: dict[str, Any] = {"count": 0, "prepared": None}


class Handler(BaseHTTPRequestHandler):
    """``BASE/api`` and ``BASE/count`` for everybody, ``BASE/jupyter-pause/v1/VERB`` for the Hub."""

    verifier: Verifier

    def do_GET(self) -> None:
        if unquote(self.path) == unquote(BASE) + "count":
            memory["count"] += 1
            self.answer(200, {"boot_id": BOOT_ID, "pid": os.getpid(), "count": memory["count"]})
        else:
            self.answer(200 if unquote(self.path) == unquote(BASE) + "api" else 404, {"version": "light"})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        nonce = self.verifier.check("POST", self.path, dict(self.headers), body)
        verb, message = self.path.rpartition("/")[2], json.loads(body)
        memory["prepared"] = message["pause_id"] if verb == "prepare" else None
        identity = {"boot_id": BOOT_ID, "server_pid": os.getpid(), "kernels": []}
        answers: dict[str, dict[str, Any]] = {
            "prepare": {"identity": identity, "facts": {"kernels": [{"name": "a"}], "terminals": 1}, "blockers": []},
            "thaw": {"thawed": True},
            "restored": {"identity": identity, "checkpoint_said": None, "repaired": {}},
        }
        payload = json.dumps(answers[verb]).encode()
        self.answer(200, answers[verb], {SIGNATURE_HEADER: self.verifier.sign_response(nonce, 200, payload)})

    def answer(self, status: int, data: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        payload = json.dumps(data).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(payload)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *_args: object) -> None:
        """Quiet."""


def main() -> None:
    """Serve until killed."""
    secret = parse_secret(os.environ["GKE_WORKSPACES_GUEST_SECRET"])
    assert secret is not None
    Handler.verifier = Verifier(secret, time.time)
    ThreadingHTTPServer((SERVICE_URL.hostname or "127.0.0.1", SERVICE_URL.port or 0), Handler).serve_forever()


if __name__ == "__main__":
    main()
