"""What a kubelet works out before a container starts: environment with its references, command line, volumes as folders."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from pathlib import Path

from .api import Api, Object
from .runtime import Image, Launch

_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][-._A-Za-z0-9]*)\)")
UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "": 1}


class NotResolved(Exception):
    """Something that the pod names is not there (yet); ``reason`` is the container's waiting reason."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


def expand(text: str, env: dict[str, str]) -> str:
    """``$(NAME)`` as Kubernetes expands it: unknown names stay, ``$$`` is a dollar."""
    return _REFERENCE.sub(lambda match: "$" if match[0] == "$$" else env.get(match[1], match[0]), text)


def quantity(text: str) -> int:
    """Bytes (or a plain number) of a quantity."""
    match = re.fullmatch(r"([0-9.]+)(m|[KMGT]i|[kMGT])?", text)
    assert match is not None, f"quantity {text!r}"
    return int(float(match[1]) / 1000) if match[2] == "m" else int(float(match[1]) * UNITS[match[2] or ""])


class Resolver:
    """Resolves pods through the API; ``folder_of`` gives the folder of a claim's volume, ``scratch`` is for everything else."""

    def __init__(self, api: Api, folder_of: Callable[[str, str], Path | None], scratch: Path) -> None:
        self._api = api
        self._folder_of = folder_of
        self._scratch = scratch

    async def launch(self, pod: Object, image: Image, ip: str = "", *, checkpoint_file: bool = True) -> Launch:
        """The main container of a pod. Raises NotResolved."""
        container = pod["spec"]["containers"][0]
        env = await self.environment(pod, container, ip)
        # As Kubernetes does: a command replaces the entry point and drops the image's arguments, args replace those alone.
        given, arguments = container.get("command") or (), container.get("args") or ()
        command = [*given, *(arguments or (() if given else image.command))]
        ports = container.get("ports") or ()
        security = {**(pod["spec"].get("securityContext") or {}), **(container.get("securityContext") or {})}
        limit = ((container.get("resources") or {}).get("limits") or {}).get("memory")
        return Launch(
            namespace=pod["metadata"]["namespace"],
            pod=pod["metadata"]["name"],
            pod_uid=pod["metadata"]["uid"],
            container=container["name"],
            image=container["image"],
            argv=tuple(expand(word, env) for word in command),
            env=env,
            port=ports[0]["containerPort"] if ports else 8888,
            volumes=await self.volumes(pod, container),
            memory=quantity(limit) if limit else None,
            uid=security.get("runAsUser", 1000),
            gid=security.get("runAsGroup", security.get("fsGroup", 1000)),
            checkpoint_file=checkpoint_file,
        )

    async def environment(self, pod: Object, container: Object, ip: str) -> dict[str, str]:
        """All variables of a container, references resolved. Raises NotResolved."""
        namespace = pod["metadata"]["namespace"]
        env: dict[str, str] = {}
        for source in container.get("envFrom") or ():
            kind = "Secret" if "secretRef" in source else "ConfigMap"
            ref = source.get("secretRef") or source["configMapRef"]
            for key, value in (await self._data(kind, namespace, ref["name"], ref.get("optional", False))).items():
                env[source.get("prefix", "") + key] = value
        for entry in container.get("env") or ():
            origin = entry.get("valueFrom")
            if origin is None:
                env[entry["name"]] = expand(entry.get("value") or "", env)
                continue
            referred = await self._origin(pod, container, origin, ip)
            if referred is not None:
                env[entry["name"]] = referred
        return env

    async def _origin(self, pod: Object, container: Object, origin: Object, ip: str) -> str | None:
        if "fieldRef" in origin:
            return self._field(pod, origin["fieldRef"]["fieldPath"], ip)
        if "resourceFieldRef" in origin:
            section, _, name = origin["resourceFieldRef"]["resource"].partition(".")
            found = ((container.get("resources") or {}).get(section) or {}).get(name)
            return str(quantity(found)) if found else "0"
        kind = "Secret" if "secretKeyRef" in origin else "ConfigMap"
        ref = origin.get("secretKeyRef") or origin["configMapKeyRef"]
        data = await self._data(kind, pod["metadata"]["namespace"], ref["name"], ref.get("optional", False))
        if ref["key"] not in data and not ref.get("optional", False):
            raise NotResolved("CreateContainerConfigError", f"couldn't find key {ref['key']} in {kind} {ref['name']}")
        return data.get(ref["key"])

    async def _data(self, kind: str, namespace: str, name: str, optional: bool) -> dict[str, str]:
        found = await self._api.find(kind, namespace, name)
        if found is None:
            if optional:
                return {}
            raise NotResolved("CreateContainerConfigError", f'{kind.lower()} "{name}" not found')
        data: dict[str, str] = found.get("data") or {}
        return {key: base64.b64decode(value).decode() for key, value in data.items()} if kind == "Secret" else data

    @staticmethod
    def _field(pod: Object, path: str, ip: str) -> str:
        special = {"status.podIP": ip, "status.podIPs": ip, "status.hostIP": "127.0.0.1"}
        if path in special:
            return special[path]
        match = re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path)
        if match is not None:
            return str((pod["metadata"].get(match[1]) or {}).get(match[2], ""))
        value: object = pod
        for part in path.split("."):
            value = value.get(part, "") if isinstance(value, dict) else ""
        return str(value)

    async def volumes(self, pod: Object, container: Object) -> dict[str, Path]:
        """Mount path -> folder: claims' stay, Secrets and ConfigMaps are written, an emptyDir is new. Raises NotResolved."""
        by_name = {volume["name"]: volume for volume in pod["spec"].get("volumes") or ()}
        found: dict[str, Path] = {}
        for mount in container.get("volumeMounts") or ():
            volume = by_name[mount["name"]]
            folder = await self._volume(pod, volume)
            if folder is None:
                continue
            inside = expand(mount.get("subPathExpr") or "", {}) or mount.get("subPath") or ""
            target = folder / inside if inside else folder
            if inside and not target.exists():
                target.mkdir(parents=True)
            found[mount["mountPath"]] = target
        return found

    async def _volume(self, pod: Object, volume: Object) -> Path | None:
        namespace, uid = pod["metadata"]["namespace"], pod["metadata"]["uid"]
        if "persistentVolumeClaim" in volume:
            name = volume["persistentVolumeClaim"]["claimName"]
            folder = self._folder_of(namespace, name)
            if folder is None:
                raise NotResolved(
                    "ContainerCreating", f'MountVolume.SetUp failed for volume "{volume["name"]}": claim "{name}" has no volume'
                )
            return folder
        place: Path = self._scratch / uid / volume["name"]
        for key, kind, naming in (("secret", "Secret", "secretName"), ("configMap", "ConfigMap", "name")):
            if key in volume:
                data = await self._mounted(volume, kind, namespace, volume[key][naming], volume[key].get("optional", False))
                items = {item["key"]: item["path"] for item in volume[key].get("items") or ()}
                for name, text in data.items():
                    if not items or name in items:
                        target = place / items.get(name, name)
                        target.parent.mkdir(parents=True, exist_ok=True)
                        target.write_text(text, encoding="utf-8")
                return place
        if "emptyDir" in volume:
            place.mkdir(parents=True, exist_ok=True)
            return place
        return None

    async def _mounted(self, volume: Object, kind: str, namespace: str, name: str, optional: bool) -> dict[str, str]:
        try:
            return await self._data(kind, namespace, name, optional)
        except NotResolved as error:
            raise NotResolved("ContainerCreating", f'MountVolume.SetUp failed for volume "{volume["name"]}": {error}') from error
