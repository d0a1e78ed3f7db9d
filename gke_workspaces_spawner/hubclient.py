"""Client of our own REST, for the service and the command line; the Hub process decides and writes, others ask it."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote


class HubError(Exception):
    """The Hub refused, or could not be reached (status 0)."""

    def __init__(self, status: int, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class HubClient:
    """Calls ``api_url`` with a token; every call has a time limit (seconds)."""

    def __init__(self, api_url: str, token: str, timeout: float = 30.0) -> None:
        self._api_url = api_url.rstrip("/")
        self._token = token
        self._timeout = timeout

    @classmethod
    def of_service(cls) -> HubClient:
        """With the address and token that the Hub gives to a managed service."""
        return cls(os.environ["JUPYTERHUB_API_URL"], os.environ["JUPYTERHUB_API_TOKEN"])

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The answer's JSON, or None. Raises :class:`HubError`."""
        request = urllib.request.Request(  # noqa: S310  # the address is the Hub's, from its own environment or the admin
            self._api_url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"token {self._token}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=self._timeout) as response:  # noqa: S310  # as above
                text = response.read()
        except urllib.error.HTTPError as error:
            raise self._refusal(error) from error
        except OSError as error:
            raise HubError(0, f"The Hub at {self._api_url} does not answer: {error}") from error
        return json.loads(text) if text.strip() else None

    @staticmethod
    def _refusal(error: urllib.error.HTTPError) -> HubError:
        try:
            answer = json.loads(error.read())
        except ValueError:
            return HubError(error.code, f"The Hub answered {error.code}.")
        return HubError(error.code, str(answer.get("message", "")), str(answer.get("reason", "")))

    def kick(self) -> None:
        """Ask the Hub to look after workspaces that nobody drives."""
        self.call("POST", "/workspaces/kick")

    def workspaces(self) -> list[dict[str, Any]]:
        """Every workspace that the token may see."""
        answer: dict[str, Any] = self.call("GET", "/workspaces")
        return list(answer["workspaces"])

    def pause(self, user: str, server: str = "") -> dict[str, Any]:
        """Begin a pause; returns the workspace."""
        answer: dict[str, Any] = self.call("POST", f"{server_path(user, server)}/pause", {})
        return answer

    def workspace(self, user: str, server: str = "") -> dict[str, Any]:
        """The workspace of one server."""
        answer: dict[str, Any] = self.call("GET", f"{server_path(user, server)}/pause")
        return answer


def server_path(user: str, server: str = "") -> str:
    """The REST path of a server, names quoted the way JupyterHub does."""
    which = f"servers/{quote(server, safe='@~')}" if server else "server"
    return f"/users/{quote(user, safe='@~')}/{which}"
