"""A kernel websocket class that an admin might have chosen."""

from __future__ import annotations

from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection


class AdminsConnection(ZMQChannelsWebsocketConnection):
    """Nothing special, but not Jupyter Server's own."""
