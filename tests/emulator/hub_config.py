"""jupyterhub_config.py of the emulator's hub: as an admin of z2jh would have it, with our class and our one line.

Settings come as JSON in ``EMULATOR_HUB``; ``spawner`` says which class, so that plain KubeSpawner proves the ground.
"""

import json
import os

from gke_workspaces_spawner import configure
from tests.hub.stock import hub_alone

c = get_config()  # type: ignore[name-defined]  # noqa: F821
settings = json.loads(os.environ["EMULATOR_HUB"])

hub_alone(c, settings, settings["hub_host"])
c.JupyterHub.spawner_class = settings["spawner"]
c.KubeSpawner.namespace = settings["namespace"]
c.KubeSpawner.image = "example.org/gke-workspaces/singleuser:1"
c.KubeSpawner.cmd = ["jupyterhub-singleuser"]
c.KubeSpawner.uid = 210500
c.KubeSpawner.fs_gid = 210500
c.KubeSpawner.cpu_guarantee = 0.1
c.KubeSpawner.mem_guarantee = "256M"
c.KubeSpawner.delete_grace_period = 2
c.KubeSpawner.start_timeout = 120
c.KubeSpawner.http_timeout = 60
c.KubeSpawner.poll_interval = 5
c.KubeSpawner.default_url = "/lab"
if settings["homes"]:
    c.KubeSpawner.pvc_name_template = "claim-{user_server}"
    c.KubeSpawner.storage_pvc_ensure = True
    c.KubeSpawner.storage_capacity = "1Gi"
    c.KubeSpawner.storage_class = "standard-rwo"
    c.KubeSpawner.storage_access_modes = ["ReadWriteOnce"]
    c.KubeSpawner.volumes = [{"name": "home", "persistentVolumeClaim": {"claimName": "claim-{user_server}"}}]
    c.KubeSpawner.volume_mounts = [{"name": "home", "mountPath": "/home/jovyan"}]
if not settings["spawner"].startswith("kubespawner."):
    c.GKEWorkspaceSpawner.pausable = True
    configure(c)
for name, value in settings["set"].items():
    owner, _, trait = name.partition(".")
    c[owner][trait] = value
