"""What a call of the cluster can end with, told apart by what its caller can do."""

from __future__ import annotations

import re


class KubeError(Exception):
    """A call that the API server answered with an error, or did not answer; ``status`` 0 is no answer."""

    def __init__(self, status: int, message: str, reason: str = "") -> None:
        super().__init__(f"{status} {reason}: {message}" if status else message)
        self.status = status
        self.message = message
        self.reason = reason


class NotFound(KubeError):
    """No such object, or no such kind."""


class AlreadyExists(KubeError):
    """An object of that name is there, or the object has changed since it was read."""


class Gone(KubeError):
    """The version to watch from is too old: list again."""


class Forbidden(KubeError):
    """The account may not do that (403), or is not known (401)."""


class Lacking(Forbidden):
    """The account is not known (401) or lacks the right (403): for good, or for the moment in which its token is renewed, or in which an
    API server that was just started does not know the roles."""


class Invalid(KubeError):
    """The object is not as the API server takes it (400, 422): the same call never works."""


class Unavailable(KubeError):
    """Nothing is wrong but the moment: no answer in time, too many calls, a server error."""


NO_RIGHT = re.compile(r'User ".*" cannot ')
"""How the API server says that no role grants it; an admission policy has words of its own."""


def of_status(status: int, message: str, reason: str = "") -> KubeError:
    """The error for an answer of that status."""
    kinds: dict[int, type[KubeError]] = {
        400: Invalid,
        401: Lacking,
        403: Forbidden,
        404: NotFound,
        409: AlreadyExists,
        410: Gone,
        422: Invalid,
        429: Unavailable,
    }
    kind = kinds.get(status, Unavailable if status >= 500 or status == 0 else KubeError)
    if status == 403 and ("exceeded quota" in message or NO_RIGHT.search(message)):
        kind = Lacking if NO_RIGHT.search(message) else Unavailable  # a quota of the namespace: free when another server goes
    return kind(status, message, reason)
