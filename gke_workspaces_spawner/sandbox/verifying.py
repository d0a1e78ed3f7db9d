"""The check of a restored sandbox's image, beside the restore: the Hub's processor time and event loop stay out of it."""

from __future__ import annotations

import threading

from .errors import SandboxError
from .journal import note_error
from .snapshots import Shelf


class Verification:
    """Compares every byte of a snapshot's pages with its seal, in a thread of its own; begins at once."""

    def __init__(self, shelf: Shelf, snapshot_id: str) -> None:
        self._shelf = shelf
        self._snapshot_id = snapshot_id
        self._failure: SandboxError | None = None
        self._thread = threading.Thread(target=self._work, name="verify", daemon=True)
        self._thread.start()

    def outcome(self) -> None:
        """Wait for its end. Raises SandboxError ``snapshot_changed``, ``snapshot_gone`` or ``restore_failed``; any number of times."""
        self._thread.join()
        if self._failure is not None:
            raise SandboxError(self._failure.code, self._failure.detail)

    def _work(self) -> None:
        try:
            self._shelf.verify(self._snapshot_id)
        except SandboxError as error:
            self._failure = error
        except Exception as error:  # noqa: BLE001
            # Boundary of a thread: what could not be looked at must never count as looked at.
            note_error(f"check of {self._snapshot_id}")
            self._failure = SandboxError("restore_failed", f"the snapshot could not be checked: {error!r}")
