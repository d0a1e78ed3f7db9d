"""The custom scopes. They have to be defined before a handler that needs them is imported."""

from __future__ import annotations

from jupyterhub import scopes

PAUSE = "custom:gke-workspaces:pause"
KICK = "custom:gke-workspaces:kick"

DEFINITIONS = {
    PAUSE: {"description": "Pause a server, and see and cancel its own pause; not stop or remove it."},
    KICK: {"description": "Ask the Hub to look after workspaces that nobody drives."},
}

scopes.define_custom_scopes(DEFINITIONS)
