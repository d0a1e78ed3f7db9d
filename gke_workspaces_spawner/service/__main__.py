"""``python -m gke_workspaces_spawner.service``: kick the Hub at its start and then every minute, for as long as that Hub lives."""

from __future__ import annotations

import contextlib
import logging
import os
import time

from ..hubclient import HubClient, HubError

KICK_SECONDS = 60.0
AT_START_SECONDS = 1.0
"""The Hub starts its services before it answers."""
LOOK_SECONDS = 1.0
"""How long the service may outlive a Hub that was killed: the next Hub starts a service of its own."""


def wait(seconds: float, hub: int) -> bool:
    """Sleep; False as soon as the process ``hub`` is no longer our parent."""
    end = time.monotonic() + seconds
    while os.getppid() == hub:
        left = end - time.monotonic()
        if left <= 0:
            return True
        time.sleep(min(LOOK_SECONDS, left))
    return False


def main() -> None:
    """Runs until the Hub ends it, or has ended; a Hub that is away for a moment is asked again."""
    logging.basicConfig(format="[gke-workspaces service] %(message)s", level=logging.INFO)
    client, hub = HubClient.of_service(), os.getppid()
    seconds = AT_START_SECONDS
    while wait(seconds, hub):
        try:
            client.kick()
            seconds = KICK_SECONDS
        except HubError as error:
            logging.warning("%s", error)
            seconds = min(KICK_SECONDS, seconds * 2)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):  # how the Hub ends its services
        main()
