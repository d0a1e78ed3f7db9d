"""The storage drivers: volumes as folders, one zone each, ReadWriteOnce ones attached to one node at a time.

The real controllers of Kubernetes bind claims, choose zones and decide about attaching; this is what Google's CSI drivers add:
make the volume, say that it is attached, remove it. What a node mounts is told in its ``volumesInUse``, as a kubelet does, since the
controller takes no volume away that is in use.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from .api import Api, Informer, Keyed, Object, key_of

PD = "pd.csi.storage.gke.io"
PROVISIONERS = {PD, "filestore.csi.storage.gke.io", "kubernetes.io/gce-pd"}
SELECTED_NODE = "volume.kubernetes.io/selected-node"
ZONE = "topology.gke.io/zone"
ATTACHED = ("ReadWriteOnce", "ReadWriteOncePod")


class Provisioner:
    """Makes, attaches and removes volumes; ``folder`` holds them."""

    def __init__(
        self,
        api: Api,
        folder: Path,
        insist: Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]],
        *,
        claims: Informer,
        volumes: Informer,
        classes: Informer,
        attachments: Informer,
        nodes: Informer,
    ) -> None:
        self._api = api
        self.folder = folder
        folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        self._insist = insist
        self._claims = claims
        self._volumes = volumes
        self._classes = classes
        self._attachments = attachments
        self._nodes = nodes
        self._claim_work = Keyed(self._provision)
        self._volume_work = Keyed(self._reclaim)
        self._attach_work = Keyed(self._attach)
        claims.listen(lambda _old, new: self._claim_work.poke(key_of(new)) if new else None)
        volumes.listen(lambda _old, new: self._volume_work.poke(key_of(new)) if new else None)
        attachments.listen(lambda _old, new: self._attach_work.poke(key_of(new)) if new else None)

    def folder_of(self, namespace: str, claim: str, node: str) -> Path | None:
        """Where a claim's volume is, once it is bound and (ReadWriteOnce) attached to that node."""
        found = self._claims.get(namespace, claim)
        name = ((found or {}).get("spec") or {}).get("volumeName", "")
        volume = self._volumes.items.get(("", name))
        if found is None or volume is None or (found.get("status") or {}).get("phase") != "Bound":
            return None
        if volume["spec"]["csi"]["driver"] == PD and not self._is_attached(name, node):
            return None
        folder: Path = self.folder / name
        return folder

    def _is_attached(self, volume: str, node: str) -> bool:
        for one in self._attachments.items.values():
            if one["spec"]["source"].get("persistentVolumeName") == volume and one["spec"]["nodeName"] == node:
                return bool((one.get("status") or {}).get("attached"))
        return False

    def handles(self, namespace: str, claims: list[str]) -> list[str]:
        """Names under which a node reports those claims' volumes as in use."""
        found = []
        for claim in claims:
            item = self._claims.get(namespace, claim)
            volume = self._volumes.items.get(("", ((item or {}).get("spec") or {}).get("volumeName", "")))
            if volume is not None and volume["spec"]["csi"]["driver"] == PD:
                found.append(f"kubernetes.io/csi/{PD}^{volume['spec']['csi']['volumeHandle']}")
        return found

    async def _provision(self, key: tuple[str, str]) -> None:
        claim = self._claims.items.get(key)
        if claim is None or claim["spec"].get("volumeName") or claim["metadata"].get("deletionTimestamp"):
            return
        kind = self._classes.items.get(("", claim["spec"].get("storageClassName") or ""))
        if kind is None or kind["provisioner"] not in PROVISIONERS:
            return
        node_name = (claim["metadata"].get("annotations") or {}).get(SELECTED_NODE)
        if kind.get("volumeBindingMode") == "WaitForFirstConsumer" and not node_name:
            return
        name = f"pvc-{claim['metadata']['uid']}"
        shared = kind["provisioner"].startswith("filestore")
        zone = self._zone(node_name)
        (self.folder / name).mkdir(mode=0o777, exist_ok=True)
        (self.folder / name).chmod(0o777)
        manifest: Object = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": kind["provisioner"]}},
            "spec": {
                "capacity": {"storage": claim["spec"]["resources"]["requests"]["storage"]},
                "accessModes": claim["spec"]["accessModes"],
                "storageClassName": kind["metadata"]["name"],
                "persistentVolumeReclaimPolicy": kind.get("reclaimPolicy", "Delete"),
                "claimRef": {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "namespace": key[0],
                    "name": key[1],
                    "uid": claim["metadata"]["uid"],
                },
                "csi": {
                    "driver": "filestore.csi.storage.gke.io" if shared else PD,
                    "volumeHandle": f"projects/emulator/zones/{zone}/disks/{name}",
                },
            },
        }
        if not shared:
            term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
            manifest["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
        await self._insist(lambda: self._api.create(manifest))

    def _zone(self, node_name: str | None) -> str:
        """The node's zone; where no node is chosen yet, the first zone there is."""
        zones = {name: node["metadata"]["labels"].get(ZONE, "") for (_, name), node in self._nodes.items.items()}
        return zones.get(node_name or "") or min(zones.values(), default="us-central1-a")

    async def _reclaim(self, key: tuple[str, str]) -> None:
        volume: Object | None = self._volumes.items.get(key)
        if volume is None or (volume.get("status") or {}).get("phase") != "Released":
            return
        if volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete":
            await asyncio.to_thread(shutil.rmtree, self.folder / key[1], ignore_errors=True)
            await self._insist(lambda: self._api.delete("PersistentVolume", None, key[1]))

    async def _attach(self, key: tuple[str, str]) -> None:
        """The attacher: says attached at once; a detachment is done by letting the object go."""
        found = self._attachments.items.get(key)
        if found is not None and not (found.get("status") or {}).get("attached"):
            body = {"status": {"attached": True}}
            await self._insist(lambda: self._api.patch("VolumeAttachment", None, key[1], body, subresource="status"))

    async def close(self) -> None:
        """Stop at once."""
        for work in (self._claim_work, self._volume_work, self._attach_work):
            await work.close()
