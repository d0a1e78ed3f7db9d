"""KubeSpawner whose servers can be paused: GKE Pod Snapshots.

The class alone changes nothing: without ``pausable`` the pod, the claim and every setting are KubeSpawner's own. With it the pod gets
what pausing needs (:mod:`..kube.manifest`), and pause and resume are the lifecycle's; here are manifests and the way into KubeSpawner.

KubeSpawner calls its own ``stop`` in three places that are no stop of the Hub's; so ``stop`` acts on the phase, in the middle of a
launch on the pod alone, and in the middle of a look at a server that has ended not at all: what is kept of that is offered.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import hashlib
import hmac
import logging
from collections.abc import Mapping, MutableMapping
from dataclasses import replace
from typing import Any

from jupyterhub.utils import maybe_future
from kubespawner import KubeSpawner
from traitlets import Bool, Enum, Integer, Unicode

from ..engines.gke import GKEEngine
from ..engines.gke_objects import server_secret_name
from ..engines.gke_settings import Settings
from ..hub.clock import WallClock
from ..hub.internals import Internals
from ..hub.mixin import PausableMixin
from ..hub.services import Workspaces
from ..hub.vault import SealedTokens
from ..kube.client import Cluster, Object
from ..kube.manifest import Blocker, Pausable, blockers, pausable
from ..lifecycle.model import Json
from ..lifecycle.phases import OPEN, RESUME_UNDER_WAY, Phase
from ..lifecycle.ports import Limits
from ..lifecycle.reasons import Broken, LifecycleError, Refused, TryLater, reason
from .background import in_background
from .choosing import ChoosingMixin
from .reconcile import reconcile
from .reflectors import SteadyWatches
from .start_checks import check_pods, unknown_settings

log = logging.getLogger("gke_workspaces_spawner.gke")

MADE = "pausable"
"""Entry of the store's extras: this server's pod was made so that it can be paused."""
BLOCKERS = "blockers"
"""Entry: sentences on why it was not, although that was asked for."""
PROFILE_SETTINGS = ("pausable", "post_checkpoint")
"""Settings of ours that a profile may give, in its ``gke`` entry or its ``kubespawner_override``."""
CRASH_LOOK = 1.0
"""Seconds between two looks at whether a restore has crashed."""
RUNS_LOOK = 0.2
"""Seconds between two looks at whether a restored pod runs."""

_launching: contextvars.ContextVar[bool] = contextvars.ContextVar("launching", default=False)
_looking: contextvars.ContextVar[bool] = contextvars.ContextVar("looking", default=False)


class GKEWorkspaceSpawner(PausableMixin, SteadyWatches, ChoosingMixin, KubeSpawner):  # type: ignore[misc]  # KubeSpawner is untyped
    """KubeSpawner with servers that can be paused and resumed with their memory on GKE."""

    pausable = Bool(
        False,
        help="""
        Whether servers are started so that they can be paused: in GKE Sandbox (gVisor), never restarted in place.

        A profile sets it with `gke: {pausable: auto}` or `no`, or in its `kubespawner_override`. A server whose pod has something that
        cannot be saved (a TPU, a privileged container, a folder of the machine) is started as KubeSpawner would, and says so when asked
        to pause.
        """,
    ).tag(config=True)
    post_checkpoint = Enum(
        ("resume", "stop"),
        "resume",
        help="""
        What GKE does with the pod once it is saved; it chooses which of the two PodSnapshotPolicies governs the pod.

        `resume`: it goes on, held still by the server extension, and is removed only while it still stands still; a failed pause costs
        nothing. `stop`: it ends with the save, which needs no extension, cannot be cancelled, and may lose the server when an upload fails.
        """,
    ).tag(config=True)
    allow_unfrozen = Bool(
        False,
        help="""
        Save servers also when their image has no server extension that can hold them still.

        What such a server writes to its home between the save and its end is not what the resumed processes expect.
        """,
    ).tag(config=True)
    runtime_class = Unicode("gvisor", help="RuntimeClass of servers that can be paused; GKE Sandbox brings `gvisor`.").tag(config=True)
    remove_timeout = Integer(90, min=5, help="Seconds to wait for a pod that is removed to be gone; then it is tried again later.").tag(
        config=True
    )
    release_after = Integer(
        300,
        min=0,
        help="""
        Seconds for which a resumed server has to run before older snapshots of it are deleted.

        GKE must have confirmed the restore by then as well; it does so only once all of the memory is loaded.
        """,
    ).tag(config=True)
    finalizer_timeout = Integer(
        300, min=5, help="Seconds to wait for a deleted PodSnapshot to be gone, with its files; then it is reported and tried again later."
    ).tag(config=True)

    modify_pod_hook: Any
    """KubeSpawner's setting."""
    _pod_to_restore: Object | None = None
    _options_loaded = False
    _url: str | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._configured = {name: getattr(self, name) for name in PROFILE_SETTINGS}

    # ------------------------------------------------------------ the Hub's workspaces

    @classmethod
    def with_settings_only(cls, config: Any) -> Any:
        return cls(_mock=True, config=config)

    @classmethod
    def make_workspaces(cls, settings: MutableMapping[str, Any], spawner: Any) -> Workspaces:
        if spawner.enable_user_namespaces and spawner.pausable:
            raise Broken(
                "not_pausable",
                "c.GKEWorkspaceSpawner.pausable and c.KubeSpawner.enable_user_namespaces exclude each other: PodSnapshotPolicies and the "
                "Hub's rights belong to one namespace",
            )
        spawner.check_profiles()
        cookie_secret = Internals(settings, log).cookie_secret
        hub_key = hmac.new(cookie_secret, b"gke-workspaces/objects/v1", hashlib.sha256).digest()
        engine = GKEEngine(Cluster(spawner.api.api_client), spawner.engine_settings(), hub_key, WallClock(), log)

        def dropped(lineage: str) -> None:
            in_background(_forget(engine, lineage))

        workspaces = Workspaces(settings, engine, lambda store: SealedTokens(store, cookie_secret, dropped), spawner.workspace_limits())
        workspaces.supervisor.reconcile = functools.partial(reconcile, workspaces, engine)
        in_background(cls._check_configuration(spawner, engine))
        return workspaces

    @classmethod
    async def _check_configuration(cls, spawner: Any, engine: GKEEngine) -> None:
        """Tell the admin of typos, once, at the Hub's start; nothing waits for it."""
        profile_list = spawner._sorted_dict_values(spawner.profile_list)
        if callable(profile_list):
            log.warning("c.KubeSpawner.profile_list is a function: its profiles are not checked before somebody starts one")
            profile_list = []
        profile_list = spawner._get_initialized_profile_list(profile_list)
        for sentence in unknown_settings(profile_list, cls.class_traits().__contains__):
            log.warning("%s", sentence)

        async def render(options: Mapping[str, str]) -> Object | None:
            one = cls.with_settings_only(spawner.config)
            one.user_options = dict(options)
            await one.load_user_options()
            if not one.pausable:
                return None
            plain = one.api.api_client.sanitize_for_serialization(await one.get_pod_manifest())
            nobody = Pausable("0" * 32, engine.hub, server_secret_name("0" * 32), one.post_checkpoint, one.runtime_class)
            return None if blockers(plain, nobody) else pausable(plain, nobody, "")

        await check_pods(Cluster(spawner.api.api_client), engine.namespace, profile_list, render, log)

    def engine_settings(self) -> Settings:
        """The traitlets as the engine's settings."""
        return Settings(
            namespace=self.namespace,
            allow_unfrozen=self.allow_unfrozen,
            grace=max(1, int(self.delete_grace_period)),
            remove_seconds=float(self.remove_timeout),
            finalizer_seconds=float(self.finalizer_timeout),
            pause_seconds=float(self.pause_timeout),
        )

    def workspace_limits(self) -> Limits:
        """A cluster is asked less often than a machine."""
        return replace(super().workspace_limits(), poll=0.2, capacity_poll=2.0, release_after=float(self.release_after))

    @property
    def _engine(self) -> GKEEngine:
        engine = self.workspaces.engine
        assert isinstance(engine, GKEEngine)
        return engine

    @property
    def _made_pausable(self) -> bool:
        return bool(self.workspaces.store.extra(self.workspace_key).get(MADE))

    @property
    def _is_plain(self) -> bool:
        """Whether this server is KubeSpawner's own affair now."""
        return self.workspace.phase not in OPEN and not self._made_pausable

    def workspace_refusal(self) -> str | None:
        if self._made_pausable:
            return None
        sentences = self.workspaces.store.extra(self.workspace_key).get(BLOCKERS)
        return " ".join(map(str, sentences)) if isinstance(sentences, list) else "It was started without pausing."

    # ------------------------------------------------------------ options

    async def load_user_options(self) -> None:
        """Once per start: overrides may be functions that are not to be called twice."""
        if self._options_loaded:
            return
        for name, value in self._configured.items():
            setattr(self, name, value)
        await super().load_user_options()
        self._options_loaded = True

    def _pausable_settings(self) -> Pausable:
        owner = self.workspace.owner
        return Pausable(
            owner.lineage,
            self._engine.hub,
            server_secret_name(owner.lineage),
            policy=self.post_checkpoint,
            runtime_class=self.runtime_class,
        )

    def _blockers(self, pod: Object) -> tuple[Blocker, ...]:
        found = list(blockers(pod, self._pausable_settings()))
        if self._profile_blocker is not None and not found:
            found.append(Blocker("profile", f"{self._profile_blocker[0].upper()}{self._profile_blocker[1:]}."))
        if self.enable_user_namespaces or self.namespace != self._engine.namespace:
            found.append(Blocker("namespace", "It is in a namespace of its own."))
        if self.internal_ssl:
            found.append(
                Blocker("internal_ssl", "The hub gives each start a certificate of its own, which a restored process does not have.")
            )
        return tuple(found)

    # ------------------------------------------------------------ start

    def start(self) -> Any:
        """Like KubeSpawner's: a future that its ``progress`` watches."""
        self._options_loaded = False
        self.time_for_the_machine()
        self.workspace_time_to_start()
        self._start_future = asyncio.ensure_future(self._start_any())
        return self._start_future

    async def _start_any(self) -> Any:
        try:
            if self.workspace.phase is Phase.RUNNING:
                await self.load_choice()
                if not self.pausable:
                    await self._end_pausable()
                    return await KubeSpawner._start(self)
            return await PausableMixin.start(self)
        except LifecycleError as error:
            words = reason(error.code)
            self.log.warning("The start of %s was refused: %s", self.workspace_key, error)
            detail = error.detail if error.code == "choice_refused" else ""
            sentence = " ".join(filter(None, (words.sentence, detail, words.advice)))
            status = words.status if words.status < 500 else 409
            raise self.workspaces.internals.refusal_of_a_start(self, status, sentence, words.code) from error

    async def _end_pausable(self) -> None:
        """The last start of this server was a pausable one, this one is not: nothing of it may stay."""
        key, workspaces = self.workspace_key, self.workspaces
        if workspaces.store.extra(key):
            await workspaces.engine.remove(workspaces.server(key))
            workspaces.credentials.forget(key)
            workspaces.store.update_extra(key, **{MADE: None, BLOCKERS: None})

    async def workspace_plain_launch(self) -> Mapping[str, Json]:
        """What a cold start would give today; for a cold start itself KubeSpawner renders it, and for a save the engine has the pod."""
        if self.workspace.phase not in RESUME_UNDER_WAY:
            return {}
        try:
            await self.load_choice()
        except Refused as error:
            raise Refused("policy_changed", error.detail) from error
        pod = await self.get_pod_manifest()
        if self.modify_pod_hook:
            pod = await maybe_future(self.modify_pod_hook(self, pod))
        plain = self.api.api_client.sanitize_for_serialization(pod)
        if not self.pausable:
            raise Refused("policy_changed", "servers with these options are not started pausable any more")
        against = self._blockers(plain)
        if against:
            raise Refused("policy_changed", " ".join(each.sentence for each in against))
        return {"pod": pausable(plain, self._pausable_settings(), self.api_token)}

    async def workspace_launch(self, spec: Mapping[str, Json]) -> None:
        token = _launching.set(True)
        try:
            if "snapshot" in spec:
                self._url = await self._restore(spec["pod"])
            else:
                await self.load_choice()
                self._url = await KubeSpawner._start(self)
        finally:
            _launching.reset(token)

    async def _restore(self, pod: Object) -> str:
        """KubeSpawner's start with the saved pod in place of today's; ended as soon as the restore is seen to have crashed."""
        server = self.workspaces.server(self.workspace_key)
        self._pod_to_restore, self.pod_name = pod, pod["metadata"]["name"]
        hook, self.modify_pod_hook = self.modify_pod_hook, None  # the saved pod has been through it
        starting = asyncio.ensure_future(self._start_restored(server))
        try:
            while not starting.done():
                await asyncio.wait({starting}, timeout=CRASH_LOOK)
                message = None if starting.done() else await self._crash(server)
                if message is not None:
                    raise Refused("restore_failed", message)
            return starting.result()
        except asyncio.TimeoutError as error:
            raise TryLater("restore_timeout", str(error)) from error
        finally:
            starting.cancel()
            await asyncio.wait({starting})
            self._pod_to_restore, self.modify_pod_hook = None, hook

    async def _start_restored(self, server: Any) -> str:
        """KubeSpawner's start, begun when the pod runs: it looks at a pod less and less often, which would cost every resume seconds."""
        clock = self._engine.pods.clock
        end = clock.time() + self.start_timeout
        while clock.time() < end and not await self._engine.pods.running(server):
            await clock.sleep(RUNS_LOOK)
        url: str = await KubeSpawner._start(self)
        return url

    async def _crash(self, server: Any) -> str | None:
        try:
            return await self._engine.pods.crashed(server)
        except TryLater:
            return None

    async def get_pod_manifest(self) -> Any:
        """KubeSpawner's; a setting of which it can make no pod is the admin's to mend, and no error of the Hub."""
        try:
            return await super().get_pod_manifest()
        except ValueError as error:
            if self.pausable:
                raise Refused("start_failed", str(error)) from error
            raise

    async def _make_create_pod_request(self, pod: Any, request_timeout: float) -> bool:
        """Where KubeSpawner creates the pod, which has been through every setting and hook."""
        server = self.workspaces.server(self.workspace_key)
        if self._pod_to_restore is not None:  # it is there: it has waited for its node
            if not await self._engine.has_pod(server):
                raise Refused("restore_failed", "the pod is gone")
            return True
        if not self.pausable:
            return bool(await super()._make_create_pod_request(pod, request_timeout))
        store, key = self.workspaces.store, self.workspace_key
        plain = self.api.api_client.sanitize_for_serialization(pod)
        against = self._blockers(plain)
        if against:
            store.update_extra(key, **{MADE: None, BLOCKERS: [each.sentence for each in against]})
            self.log.warning("%s cannot be paused: %s", key, ", ".join(each.code for each in against))
            return bool(await super()._make_create_pod_request(pod, request_timeout))
        made = pausable(plain, self._pausable_settings(), self.api_token)
        store.update_extra(key, **{MADE: True, BLOCKERS: None})
        await self._engine.pods.keep(server, self.api_token, self.workspaces.guest_secret(key), made)
        await self._engine.pods.create(server, made)
        return True

    def workspace_url(self) -> str | None:
        server = self.server
        if server is None:
            return None
        host = self._url or (f"{server.proto}://{server.ip}:{server.port}" if server.ip else None)
        return None if host is None else host.rstrip("/") + server.base_url

    # ------------------------------------------------------------ stop and poll

    async def stop(self, now: bool = False) -> None:
        if _looking.get() and not self._is_plain:
            return
        if _launching.get() and self._made_pausable:
            await self._engine.remove(self.workspaces.server(self.workspace_key))
        elif self._is_plain:
            await KubeSpawner.stop(self, now)
            self._forget_blocked()
        else:
            await PausableMixin.stop(self, now)
            if self.workspace.phase not in OPEN:
                self.workspaces.store.update_extra(self.workspace_key, **{MADE: None})

    def _forget_blocked(self) -> None:
        """A start that was to be pausable, and had something against it, has left a remembered token."""
        key, workspaces = self.workspace_key, self.workspaces
        if workspaces.store.extra(key).get(BLOCKERS):
            workspaces.credentials.forget(key)
            workspaces.store.update_extra(key, **{BLOCKERS: None})

    async def poll(self) -> int | None:
        if self.workspace.phase not in OPEN:
            token = _looking.set(True)
            try:
                code: int | None = await KubeSpawner.poll(self)
            finally:
                _looking.reset(token)
            if code is None or self._is_plain:
                return code
        try:
            return await PausableMixin.poll(self)
        except TryLater:
            return None  # the API server is away: not known to have ended, and what raises is stopped by the Hub at its start

    async def delete_forever(self) -> None:
        if self.workspaces.store.extra(self.workspace_key) or self.workspace.phase in OPEN or self.workspace.shelf:
            await PausableMixin.delete_forever(self)
        await KubeSpawner.delete_forever(self)


async def _forget(engine: GKEEngine, lineage: str) -> None:
    try:
        await engine.pods.forget(lineage)
    except LifecycleError as error:
        log.warning("The Secret of a server that is gone could not be deleted, the next kick tries again: %s", error)
