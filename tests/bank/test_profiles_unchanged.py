"""The class alone changes nothing: whatever a real profile list says, the pod and the claim are KubeSpawner's own, byte for byte."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubespawner import KubeSpawner

from gke_workspaces_spawner import GKEWorkspaceSpawner
from tests.kubeconfig import no_cluster

FREE_TEXT = "quay.io/jupyter/base-notebook:2026-11-01"


@pytest.fixture(autouse=True, scope="module")
def nowhere() -> Iterator[None]:
    with no_cluster():
        yield


def choices(profile_list: Any) -> Iterator[dict[str, str]]:
    """User options: nothing, each profile, each choice of each option of it, and a text where one is free."""
    yield {}
    plain = KubeSpawner(_mock=True)
    try:
        profiles = plain._get_initialized_profile_list(profile_list)
    except Exception:  # noqa: BLE001 - what KubeSpawner refuses is refused alike, which the first case shows
        return
    for profile in profiles:
        slug = profile["slug"]
        yield {"profile": slug}
        options = profile.get("profile_options") or {}
        if not isinstance(options, dict):
            continue
        for name, option in options.items():
            for choice in (option or {}).get("choices") or {}:
                yield {"profile": slug, name: choice}
            if (option or {}).get("unlisted_choice", {}).get("enabled"):
                yield {"profile": slug, f"{name}--unlisted-choice": FREE_TEXT}


async def rendered(kind: type[KubeSpawner], profile_list: Any, options: dict[str, str]) -> str:
    """Pod and claim as JSON, or the error."""
    spawner = kind(_mock=True)
    spawner.cmd = ["jupyterhub-singleuser"]
    spawner.user_options = dict(options)
    try:
        spawner.profile_list = profile_list
        await spawner.load_user_options()
        pod = await spawner.get_pod_manifest()
        claim = spawner.get_pvc_manifest()
    except Exception as error:  # noqa: BLE001 - whatever it is, it has to be the same
        return f"{type(error).__name__}: {str(error).replace(kind.__name__, 'KubeSpawner')}"
    clean = spawner.api.api_client.sanitize_for_serialization
    return json.dumps([clean(pod), clean(claim)], sort_keys=False)


async def test_every_profile_of_every_list_gives_the_manifests_of_kubespawner(bank: Path) -> None:
    cases = different = 0
    for file in sorted((bank / "profiles").glob("*.yaml")):
        profile_list = yaml.safe_load(file.read_text(encoding="utf-8"))["profile_list"]
        for options in choices(profile_list):
            cases += 1
            expected = await rendered(KubeSpawner, profile_list, options)
            ours = await rendered(GKEWorkspaceSpawner, profile_list, options)
            if ours != expected:
                different += 1
                print(file.name, options, expected[:2000], ours[:2000], sep="\n")
    assert cases > 1000
    assert not different
