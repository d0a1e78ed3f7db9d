"""jupyterhub_config.py of the login tests: a stock Hub with the demo's login in place of a password."""

from tests.fakes.process_spawner import ProcessWorkspaceSpawner
from tests.hub.stock import settings_of_this_hub, stock

c = get_config()  # type: ignore[name-defined]  # noqa: F821
settings = settings_of_this_hub()
stock(c, settings, ProcessWorkspaceSpawner)
c.JupyterHub.authenticator_class = "gke_workspaces_spawner.cli.login.TicketAuthenticator"
c.TicketAuthenticator.tickets_file = settings["tickets"]
c.Authenticator.allow_all = False
c.Authenticator.allowed_users = {"ann", "Bö@x.org"}
