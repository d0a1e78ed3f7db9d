"""``python -m gke_workspaces_spawner.service``: kick the Hub at its start and then every minute."""

from __future__ import annotations

import contextlib
import logging
import time

from ..hubclient import HubClient, HubError

KICK_SECONDS = 60.0
AT_START_SECONDS = 1.0
"""The Hub starts its services before it answers."""


def main() -> None:
    """Runs until the Hub ends it; a Hub that is away for a moment is asked again."""
    logging.basicConfig(format="[gke-workspaces service] %(message)s", level=logging.INFO)
    client = HubClient.of_service()
    wait = AT_START_SECONDS
    while True:
        time.sleep(wait)
        try:
            client.kick()
            wait = KICK_SECONDS
        except HubError as error:
            logging.warning("%s", error)
            wait = min(KICK_SECONDS, wait * 2)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):  # how the Hub ends its services
        main()
