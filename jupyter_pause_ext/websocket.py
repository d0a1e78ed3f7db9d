"""The kernel's websocket, with two ears: who is connected, and which cell an execute request belongs to.

JupyterLab puts the cell's id into the metadata of its execute request (``cellId``), and nothing that a kernel publishes
carries it on; so it is read here, on its way in. Nothing is changed on the wire. Where the admin chose a class of his own
(or a gateway) this one stays away and the journal is empty.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import TYPE_CHECKING, Any

from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp

    from .journal import Journal

NUDGES, NUDGE_SECONDS = 10, 0.2
"""How often, and seconds after which, a kernel is asked for a sign of life."""
MAX_PARSE = 4 * 1024 * 1024
"""Bytes of a request's header and metadata that are looked at; JupyterLab's have some hundred."""
V1 = "v1.kernel.websocket.jupyter.org"


def install(serverapp: ServerApp, journal: Journal) -> bool:
    """Use the listening class unless another one was chosen; whether it is used."""
    settings = serverapp.web_app.settings
    if settings.get("kernel_websocket_connection_class") is not ZMQChannelsWebsocketConnection:
        serverapp.log.info("pause: another kernel websocket class is in use; output is not kept for reloaded pages")
        return False
    settings["kernel_websocket_connection_class"] = JournalledConnection
    return True


class JournalledConnection(ZMQChannelsWebsocketConnection):
    """Jupyter Server's own connection; configured as that one (``ZMQChannelsWebsocketConnection``)."""

    _counted = False

    @property
    def _journal(self) -> Journal:
        journal: Journal = self.websocket_handler.settings["jupyter_pause"].journal
        return journal

    def connect(self) -> Any:
        """A client is connected; its requests are read once the returned future is done."""
        connected = super().connect()
        if connected is None:
            return None
        self._counted = True
        self._journal.connected(self.kernel_id, self.session_id, self.kernel_manager.connect_iopub)
        return asyncio.ensure_future(self._until_heard(connected))

    async def _until_heard(self, connected: Any) -> None:
        """As Jupyter Server does for its own subscription: ask the kernel for a sign of life until the journal hears one."""
        await connected
        if self._journal.listens(self.kernel_id):
            return
        control = self.kernel_manager.connect_control()
        try:
            for _ in range(NUDGES):
                self.session.send(control, "kernel_info_request")
                for _ in range(20):
                    await asyncio.sleep(NUDGE_SECONDS / 20)
                    if self._journal.listens(self.kernel_id) or not self._counted:
                        return
            self.log.warning("pause: kernel %s is not heard; output may be missing after a reload", self.kernel_id)
        finally:
            control.close(linger=0)

    def disconnect(self) -> Any:
        """A client went away."""
        if self._counted:
            self._counted = False
            self._journal.disconnected(self.kernel_id, self.session_id)
        return super().disconnect()  # type: ignore[no-untyped-call]

    def handle_incoming_message(self, incoming_msg: Any) -> None:
        """A message of the client, on its way to the kernel."""
        if self.channels:
            found = execute_request(incoming_msg, self.subprotocol == V1)
            if found is not None:
                self._journal.asked(self.kernel_id, self.session_id, *found)
        super().handle_incoming_message(incoming_msg)


def execute_request(message: Any, is_v1: bool) -> tuple[str, str] | None:
    """(message id, cell id) of an execute request that names its cell; ``None`` for everything else."""
    try:
        if is_v1:
            channel, header_bytes, metadata_bytes = _v1_parts(message)
            if channel != b"shell" or b"execute_request" not in header_bytes or len(header_bytes) + len(metadata_bytes) > MAX_PARSE:
                return None
            header, metadata = json.loads(header_bytes), json.loads(metadata_bytes)
        else:
            if not isinstance(message, str) or "execute_request" not in message or len(message) > MAX_PARSE:
                return None
            whole = json.loads(message)
            header, metadata = whole["header"], whole.get("metadata") or {}
        msg_id, cell_id = header["msg_id"], metadata.get("cellId")
        wanted = header["msg_type"] == "execute_request" and isinstance(msg_id, str) and isinstance(cell_id, str) and cell_id
        return (msg_id, cell_id) if wanted else None
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        return None  # not for this class to judge; the one above does


def _v1_parts(message: bytes) -> tuple[bytes, bytes, bytes]:
    """Channel, header and metadata of a message in the v1 websocket protocol; raises ``ValueError`` on anything else.

    A count of offsets, the offsets (8 bytes each, little endian), then the parts: channel, header, parent, metadata, content, buffers.
    """
    offsets = [int.from_bytes(message[at : at + 8], "little") for at in range(8, 48, 8)]
    if int.from_bytes(message[:8], "little") < 6 or len(message) < 56 or sorted(offsets) != offsets or offsets[-1] > len(message):
        raise ValueError("not a message of the v1 protocol")
    channel, header, _parent, metadata = (message[start:end] for start, end in itertools.pairwise(offsets))
    return channel, header, metadata
