"""The hub's own settings as far as plain text tells: values of Zero to JupyterHub, or a ``jupyterhub_config.py``, which is never run."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .findings import one_line

CULLERS = ("idle_culler", "idle-culler", "cull_idle", "cull-idle")
SPAWNERS = ("GKEWorkspaceSpawner", "KubeSpawner", "Spawner")
"""Classes whose settings apply to a server; the first that sets one wins."""
CULLER_SECONDS = 600
"""The culler's own default."""
Z2JH_IMAGE = "quay.io/jupyterhub/k8s-singleuser-sample"
Z2JH_HUB_IMAGE = "quay.io/jupyterhub/k8s-hub"


class Unreadable(Exception):
    """The file is no values file and no config file; the message is a sentence."""


@dataclass(frozen=True, slots=True)
class Culler:
    """The idle culler's settings; times in seconds."""

    timeout: int = CULLER_SECONDS
    max_age: int = 0
    users: bool = False
    remove_named: bool = False


@dataclass(frozen=True, slots=True)
class Deployment:
    """What the checks look at; None where the file does not say."""

    z2jh: bool
    """Values of the chart: what they do not say is the chart's default."""
    spawner_class: str | None = None
    configured: bool = False
    """Whether ``gke_workspaces_spawner.configure`` is called."""
    traits: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the spawner that are plain values."""
    profiles: tuple[Mapping[str, Any], ...] = ()
    images: tuple[str, ...] = ()
    """Of servers: the setting's and those of profiles."""
    hub_image: str | None = None
    block_metadata: bool = False
    network_policy: bool = True
    init_containers: tuple[Any, ...] = ()
    extra_containers: tuple[Any, ...] = ()
    culler: Culler | None = None
    database_in_memory: bool = False
    service_account: str | None = None
    """Of the hub."""


def parse(name: str, text: str) -> Deployment:
    """Read a file by what its name says. Raises Unreadable."""
    return of_config(text) if name.endswith(".py") else of_values(text)


# ---------------------------------------------------------------- a config file


@dataclass
class _Config:
    """Plain assignments to ``c`` in a config file."""

    values: dict[str, dict[str, Any]] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    """Every text of the file."""
    configured: bool = False

    def trait(self, name: str, *owners: str) -> Any:
        for owner in owners:
            if name in self.values.get(owner, {}):
                return self.values[owner][name]
        return None

    def read(self, text: str) -> None:
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError) as error:
            raise Unreadable(f"It is no Python: {one_line(error)}.") from error
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._assign(target, node.value)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                self.words.append(node.value)
            elif isinstance(node, ast.Call):
                called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                self.configured = self.configured or (called == "configure" and "gke_workspaces_spawner" in text)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if not (isinstance(target, ast.Attribute) and isinstance(target.value, ast.Attribute) and isinstance(target.value.value, ast.Name)):
            return
        if target.value.value.id != "c":
            return
        try:
            plain = ast.literal_eval(value)
        except (ValueError, TypeError, MemoryError, RecursionError):
            return
        self.values.setdefault(target.value.attr, {})[target.attr] = plain

    @property
    def spawner_traits(self) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        for owner in reversed(SPAWNERS):
            merged |= self.values.get(owner, {})
        return merged

    @property
    def culler(self) -> Culler | None:
        if not any(mark in word for word in self.words for mark in CULLERS):
            return None
        return Culler(
            self._number("--timeout", CULLER_SECONDS),
            self._number("--max-age", 0),
            users=any(word.startswith("--cull-users") for word in self.words),
            remove_named=any(word.startswith("--remove-named-servers") for word in self.words),
        )

    def _number(self, option: str, default: int) -> int:
        for word in self.words:
            name, _, value = word.partition("=")
            if name == option and value.isdigit():
                return int(value)
        return default


def of_config(text: str) -> Deployment:
    """A ``jupyterhub_config.py``. Raises Unreadable."""
    config = _Config()
    config.read(text)
    traits = config.spawner_traits
    profiles = _maps(traits.get("profile_list"))
    return Deployment(
        z2jh=False,
        spawner_class=_text(config.trait("spawner_class", "JupyterHub")),
        configured=config.configured,
        traits=traits,
        profiles=profiles,
        images=_servers(traits.get("image"), profiles),
        init_containers=_list(traits.get("init_containers")),
        extra_containers=_list(traits.get("extra_containers")),
        culler=config.culler,
        database_in_memory=":memory:" in str(config.trait("db_url", "JupyterHub") or ""),
    )


# ---------------------------------------------------------------- values of the chart


def of_values(text: str) -> Deployment:
    """Values of Zero to JupyterHub, also where it is a part of another chart. Raises Unreadable."""
    import yaml

    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise Unreadable(f"It is no YAML: {one_line(error)}.") from error
    if values is None:
        values = {}
    if not isinstance(values, dict):
        raise Unreadable("It is no mapping of values.")
    values = _chart(values)
    hub, user, cull = _map(values.get("hub")), _map(values.get("singleuser")), _map(values.get("cull"))
    config = _Config()
    for owner, traits in _map(hub.get("config")).items():
        if isinstance(traits, dict):
            config.values.setdefault(str(owner), {}).update(traits)
    extra = hub.get("extraConfig")
    for script in _map(extra).values() if isinstance(extra, dict) else _one(extra):
        if isinstance(script, str):
            config.read(script)
    traits = config.spawner_traits
    start = user.get("startTimeout")
    traits.setdefault("start_timeout", 300 if start is None else start)
    for name, value in _servers_settings(user).items():
        if value is not None:
            traits.setdefault(name, value)
    profiles = _maps(traits.get("profile_list"))
    image = traits.get("image") or _image(_map(user.get("image")), Z2JH_IMAGE)
    culler = None
    if cull.get("enabled", True):
        timeout = cull.get("timeout")
        culler = Culler(
            _number(3600 if timeout is None else timeout),
            _number(cull.get("maxAge")),
            bool(cull.get("users")),
            bool(cull.get("removeNamedServers")),
        )
    return Deployment(
        z2jh=True,
        spawner_class=_text(config.trait("spawner_class", "JupyterHub")),
        configured=config.configured,
        traits=traits,
        profiles=profiles,
        images=_servers(image, profiles),
        hub_image=_image(_map(hub.get("image")), Z2JH_HUB_IMAGE),
        block_metadata=bool(_map(user.get("cloudMetadata")).get("blockWithIptables", True)),
        network_policy=bool(_map(user.get("networkPolicy")).get("enabled", True)),
        init_containers=_list(traits.get("init_containers") or user.get("initContainers")),
        extra_containers=_list(traits.get("extra_containers") or user.get("extraContainers")),
        culler=culler,
        database_in_memory=_map(hub.get("db")).get("type") == "sqlite-memory",
        service_account=_text(_map(hub.get("serviceAccount")).get("name")),
    )


def _servers_settings(user: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the spawner that the chart makes of ``singleuser``; None where it says nothing and the chart has nothing to say."""
    memory, cpu, storage = _map(user.get("memory")), _map(user.get("cpu")), _map(user.get("storage"))
    dynamic = _map(storage.get("dynamic"))
    return {
        "profile_list": user.get("profileList"),
        "mem_limit": memory.get("limit"),
        "mem_guarantee": memory.get("guarantee"),
        "cpu_limit": cpu.get("limit"),
        "cpu_guarantee": cpu.get("guarantee"),
        "storage_class": dynamic.get("storageClass"),
        "pvc_name_template": dynamic.get("pvcNameTemplate"),
        "storage_pvc_ensure": storage.get("type", "dynamic") == "dynamic",
    }


def _chart(values: dict[str, Any]) -> dict[str, Any]:
    """The chart's own values, also where it is a part of another chart, or a part's part."""
    level = [values]
    while level:
        for each in level:
            if isinstance(each.get("hub"), dict) or isinstance(each.get("singleuser"), dict):
                return each
        level = [inner for each in level for inner in each.values() if isinstance(inner, dict)]
    return values


def _servers(image: Any, profiles: tuple[Mapping[str, Any], ...]) -> tuple[str, ...]:
    """Images that servers can have; the setting's own only where some profile does not choose another."""
    everywhere = bool(profiles) and all(any(_images_of((profile,))) for profile in profiles)
    return tuple(dict.fromkeys([*(() if everywhere else _one(image)), *_images_of(profiles)]))


def _images_of(profiles: tuple[Mapping[str, Any], ...]) -> Iterator[str]:
    """Images that profiles and their options choose."""
    for profile in profiles:
        yield from _one(_map(profile.get("kubespawner_override")).get("image"))
        for option in _map(profile.get("profile_options")).values():
            for choice in _map(_map(option).get("choices")).values():
                yield from _one(_map(_map(choice).get("kubespawner_override")).get("image"))


def _image(row: Mapping[str, Any], default: str) -> str:
    name, tag = str(row.get("name") or default), row.get("tag")
    return f"{name}:{tag}" if tag else name


def _one(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) and value else ()


def _map(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _maps(value: Any) -> tuple[Mapping[str, Any], ...]:
    if isinstance(value, dict):
        value = list(value.values())
    return tuple(each for each in value if isinstance(each, dict)) if isinstance(value, (list, tuple)) else ()


def _list(value: Any) -> tuple[Any, ...]:
    if isinstance(value, dict):
        return tuple(value.values())
    return tuple(value) if isinstance(value, (list, tuple)) else ()


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: Any) -> int:
    return int(value) if isinstance(value, (int, float)) else 0
