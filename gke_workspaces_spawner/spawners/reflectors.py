"""KubeSpawner's reflectors, kept alive: its own give up for ever 55 seconds into an outage of the API server, and what they showed last
is then taken for the truth (a deleted pod reads ready).

What they offer to KubeSpawner (``resources``, ``first_load_future``, ``start``, ``stop``) is the same; what feeds them is
:class:`~..kube.watch.Watch`, which never gives up and needs no new list every few seconds.
"""

from __future__ import annotations

import logging
from typing import Any

from kubespawner.spawner import EventReflector, PodReflector

from ..kube.client import EVENT, POD, Cluster, Kind
from ..kube.watch import Watch

log = logging.getLogger("gke_workspaces_spawner.watch")


class _Steady:
    """Mixed in before one of KubeSpawner's reflectors."""

    watched: Kind
    _watch: Watch | None = None

    async def start(self) -> None:
        """Begin, and wait for the first picture; an API server that is away is waited for, not given up."""
        if self._watch is None:
            reflector: Any = self
            namespace = None if reflector.omit_namespace else reflector.namespace
            self._watch = Watch(
                Cluster(reflector.api.api_client),
                self.watched,
                namespace,
                log,
                labels=reflector.label_selector,
                fields=reflector.field_selector,
            )
            reflector.resources = self._watch.objects
            await self._watch.loaded()
            if not reflector.first_load_future.done():
                reflector.first_load_future.set_result(None)

    async def stop(self) -> None:
        """End it and see it ended."""
        if self._watch is not None:
            await self._watch.stop()


class SteadyPods(_Steady, PodReflector):  # type: ignore[misc]  # KubeSpawner is untyped
    """The pods of all servers."""

    watched = POD


class SteadyEvents(_Steady, EventReflector):  # type: ignore[misc]
    """What is said of pods."""

    watched = EVENT


class SteadyWatches:
    """Mixed in before KubeSpawner: its servers are watched by what does not give up."""

    enable_user_namespaces: Any
    component_label: Any
    _start_reflector: Any

    async def _start_watching_events(self, replace: bool = False) -> Any:
        return await self._start_reflector(
            kind="events",
            reflector_class=SteadyEvents,
            fields={"involvedObject.kind": "Pod"},
            omit_namespace=self.enable_user_namespaces,
            replace=replace,
        )

    async def _start_watching_pods(self, replace: bool = False) -> Any:
        return await self._start_reflector(
            kind="pods",
            reflector_class=SteadyPods,
            labels={"component": self.component_label},
            omit_namespace=self.enable_user_namespaces,
            replace=replace,
        )
