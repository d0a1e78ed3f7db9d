"""Pretend pods: no process at all, a small HTTP server in the emulator that behaves like a single-user server with our extension.

Its memory is a dictionary; a checkpoint writes it as JSON, a restore reads it: what was in it is there again, with the same boot id,
pids and secret, at another address. Each pod has an address of its own in 127.0.0.0/8.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import secrets
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from jupyter_pause_ext.signing import SIGNATURE_HEADER, BadSignature, Verifier, parse_secret

from .runtime import Ended, Images, Launch

PHRASES = {200: "OK", 202: "Accepted", 403: "Forbidden", 404: "Not Found", 503: "Service Unavailable"}
FACTS = {"kernels": [], "terminals": 0, "connections": 0, "gpu": False, "torch": False, "runtime_in_home": False}
IMAGE_FILES = ("checkpoint.img", "pages_meta.img", "pages.img")


class PretendInstance:
    """One pretend pod; ``memory`` is all that a snapshot holds of it."""

    def __init__(self, launch: Launch, ip: str, memory: dict[str, Any], runs: str) -> None:
        self.ip = ip
        self.memory = memory
        self._launch = launch
        self._runs = runs
        self._ended: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        self._going = asyncio.Event()
        self._going.set()
        self._server: asyncio.Server | None = None
        self._lines = [f"pretend server of {launch.pod} at {ip}:{launch.port}"]
        secret = parse_secret(memory["env"].get("GKE_WORKSPACES_GUEST_SECRET", ""))
        self._verifier = Verifier(secret, time.time) if secret else None

    async def start(self) -> None:
        if self._runs.startswith("exits:"):
            code = int(self._runs.partition(":")[2])
            self._end(Ended(code, "Error" if code else "Completed"))
        elif self._runs == "server":
            self._server = await asyncio.start_server(self._serve, self.ip, self._launch.port)

    # ------------------------------------------------------------ as a container

    async def ended(self) -> Ended:
        return await asyncio.shield(self._ended)

    def terminate(self) -> None:
        if self._going.is_set() and not self.stopped():
            self._end(Ended(0, "Completed"))

    async def kill(self, reason: str = "Error") -> None:
        self._end(Ended(0 if reason == "Completed" else 137, reason))

    async def freeze(self) -> None:
        self._going.clear()

    async def checkpoint(self, folder: Path) -> None:
        self._going.clear()
        for name in IMAGE_FILES[1:]:
            (folder / name).write_bytes(secrets.token_bytes(64))
        (folder / IMAGE_FILES[0]).write_text(json.dumps(self.memory), encoding="utf-8")

    async def go_on(self, word: str) -> None:
        self.says(word)
        self._going.set()

    def says(self, word: str) -> None:
        """What the processes read in /proc/gvisor/checkpoint, if it is there; the extension lets go then."""
        if self._launch.checkpoint_file:
            self.memory["checkpoint_said"] = word
            if word in ("restore", "error"):  # not `resume`: the original waits for the Hub's word
                self._let_go()

    def log(self) -> str:
        return "\n".join(self._lines) + "\n"

    def _end(self, ended: Ended) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        self._going.set()
        if not self._ended.done():
            self._ended.set_result(ended)

    # ------------------------------------------------------------ as a single-user server

    def stopped(self) -> bool:
        """Whether the extension holds what the user runs."""
        held: float = self.memory["frozen_until"]
        return held > time.time()

    def prepared(self) -> bool:
        """Whether a pause is under way for it: the Hub's lease ends by itself."""
        leased: float = self.memory["leased_until"]
        return self.memory["pause_id"] is not None and (leased > time.time() or self.stopped())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while not self._ended.done():
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                method, path, _ = head[0].split(" ", 2)
                headers = {name.title(): value.strip() for name, _, value in (line.partition(":") for line in head[1:]) if name}
                body = await reader.readexactly(int(headers.get("Content-Length", 0)))
                await self._going.wait()
                if self._ended.done():
                    break
                self._lines.append(f"{method} {path}")
                status, data, extra = self._answer(method, path, headers, body)
                payload = json.dumps(data).encode()
                lines = {"Content-Type": "application/json", "Content-Length": str(len(payload)), **extra}
                text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
                writer.write(f"HTTP/1.1 {status} {PHRASES[status]}\r\n{text}\r\n".encode("latin-1") + payload)
                await writer.drain()
        writer.close()

    def _answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, Any, dict[str, str]]:
        base = self.memory["env"].get("JUPYTERHUB_SERVICE_PREFIX", "/")
        rest = unquote(urlsplit(path).path).removeprefix(unquote(base))
        if method == "POST" and rest.startswith("jupyter-pause/v1/") and self._verifier is not None:
            return self._verb(rest.rpartition("/")[2], path, headers, body)
        if rest == "count":
            if self.prepared():
                return 503, {"message": "a pause is under way"}, {"Retry-After": "1"}
            self.memory["count"] += 1
            return 200, {**self._who(), "count": self.memory["count"], "pid": self.memory["server_pid"]}, {}
        return (200, {"version": "pretend"}, {}) if rest in ("api", "", "lab") else (404, {"message": "Not Found"}, {})

    def _verb(self, verb: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, Any, dict[str, str]]:
        assert self._verifier is not None
        try:
            nonce = self._verifier.check("POST", path, headers, body)
        except BadSignature as error:
            return 403, {"reason": "not_signed", "message": str(error)}, {}
        message = json.loads(body or b"{}")
        answer = self._do(verb, message)
        if answer is None:
            return 404, {"reason": "no_such_verb", "message": verb}, {}
        payload = json.dumps(answer).encode()
        return 200, answer, {SIGNATURE_HEADER: self._verifier.sign_response(nonce, 200, payload)}

    def _do(self, verb: str, message: dict[str, Any]) -> dict[str, Any] | None:
        """The extension's verbs, as ``jupyter_pause_ext/openapi.yaml`` has them."""
        memory = self.memory
        if verb == "prepare":
            memory |= {"pause_id": message["pause_id"], "leased_until": message["deadline"], "checkpoint_said": None, "frozen_since": None}
            answer = {"identity": self._who(), "facts": FACTS, "blockers": []}
            if message.get("freeze"):
                memory["frozen_since"] = time.time()
                memory["frozen_until"] = time.time() + float(message.get("frozen_for", 0))
                answer["frozen"] = {"at": memory["frozen_since"], "until": memory["frozen_until"], "processes": 1}
            return answer
        if verb == "frozen":
            return self._frozen(message["pause_id"], float(message.get("seconds", 0)))
        if verb == "thaw":
            thawed = self.prepared() and memory["pause_id"] == message["pause_id"]
            if thawed:
                self._let_go()
            return {"thawed": thawed}
        if verb == "restored":
            self._let_go()
            return {"identity": self._who(), "checkpoint_said": memory["checkpoint_said"], "repaired": {}}
        if verb == "identity":
            return {"identity": self._who()}
        if verb == "activity":
            return {"kernels": len(memory["kernels"]), "busy": 0, "terminals": 0, "last_activity": memory["born"]}
        return None

    def _frozen(self, pause_id: str, seconds: float) -> dict[str, Any]:
        """Whether nothing of the user's ran since that pause began; if so, nothing will for so many seconds more."""
        memory = self.memory
        if memory["pause_id"] != pause_id or not self.stopped():
            return {"frozen": False, "until": None, "since": None}
        memory["frozen_until"] = max(memory["frozen_until"], time.time() + seconds)
        return {"frozen": True, "until": memory["frozen_until"], "since": memory["frozen_since"]}

    def _let_go(self) -> None:
        self.memory |= {"pause_id": None, "frozen_until": 0.0, "frozen_since": None}

    def _who(self) -> dict[str, Any]:
        return {key: self.memory[key] for key in ("boot_id", "server_pid", "kernels")}


class PretendRuntime:
    """Makes pretend pods, each at an address of its own."""

    def __init__(self, images: Images) -> None:
        self._images = images
        self._block = f"127.{random.randrange(64, 255)}"
        self._next = random.randrange(1, 60_000)
        self._instances: dict[str, PretendInstance] = {}
        """By pod UID."""

    async def start(self, launch: Launch) -> PretendInstance:
        memory = {
            "boot_id": secrets.token_hex(16),
            "server_pid": random.randrange(2, 30_000),
            "kernels": [],
            "count": 0,
            "born": time.time(),
            "env": dict(launch.env),
            "pause_id": None,
            "leased_until": 0.0,
            "frozen_until": 0.0,
            "frozen_since": None,
            "checkpoint_said": None,
        }
        return await self._make(launch, memory)

    async def restore(self, launch: Launch, folder: Path) -> PretendInstance:
        memory = json.loads((folder / IMAGE_FILES[0]).read_text(encoding="utf-8"))
        instance = await self._make(launch, memory)
        instance.says("restore")
        return instance

    async def _make(self, launch: Launch, memory: dict[str, Any]) -> PretendInstance:
        ip = self._address(launch.pod_uid)
        image = self._images.find(launch.image)
        instance = PretendInstance(launch, ip, memory, image.runs if image else "server")
        await instance.start()
        self._instances[launch.pod_uid] = instance
        return instance

    def _address(self, pod_uid: str) -> str:
        """A pod keeps its address when its container is started again."""
        if pod_uid in self._instances:
            return self._instances[pod_uid].ip
        self._next = self._next % 60_000 + 1
        return f"{self._block}.{self._next // 250}.{self._next % 250 + 1}"

    async def close(self) -> None:
        for instance in self._instances.values():
            await instance.kill()
