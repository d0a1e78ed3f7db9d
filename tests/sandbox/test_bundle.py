"""What a spec may say, and what a bundle makes of it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gke_workspaces_spawner.sandbox import SandboxSpec
from gke_workspaces_spawner.sandbox.bundle import LAUNCHER, secret_text, write_bundle

GOOD = SandboxSpec(
    argv=("/bin/true",),
    env={"A": "b"},
    uid=1001,
    gid=1002,
    user="ann",
    home="/srv/homes/ann",
    home_inside="/home/ann",
    readonly=("/usr", "/opt/python"),
    memory_limit=1 << 30,
)


def test_spec_survives_json_also_from_a_later_version() -> None:
    value = json.loads(json.dumps(GOOD.to_json()))
    assert SandboxSpec.from_json({**value, "of_a_later_version": 1}) == GOOD


@pytest.mark.parametrize(
    "change",
    [
        {"argv": ()},
        {"uid": 0},
        {"gid": 0},
        {"user": "a:b"},
        {"user": "a\nroot"},
        {"hostname": "a b"},
        {"home": "homes/ann"},
        {"home_inside": "/home/../etc"},
        {"home_inside": "/"},
        {"home_inside": "/usr/ann"},
        {"readonly": ("/",)},
        {"readonly": ("/etc",)},
        {"readonly": ("/root",)},
        {"readonly": ("/home",)},
        {"readonly": ("/usr/./lib",)},
        {"readonly": ("/usr//lib",)},
        {"readonly": ("/home/ann/lib",)},
    ],
)
def test_spec_that_would_let_the_sandbox_out_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        GOOD._replace(**change).check()


@pytest.mark.parametrize("value", ["", "plain", 'it\'s "q"', "$HOME `id` \\", "two\nlines\n", "ä\u20ac", "x" * 100_000])
def test_launcher_hands_over_every_value_unchanged(value: str) -> None:
    done = subprocess.run(
        [*LAUNCHER, "/usr/bin/env", "-0"],
        input=secret_text({"TOKEN": value}),
        capture_output=True,
        check=True,
        env={"PATH": "/usr/bin:/bin"},
    )
    assert f"TOKEN={value}".encode() in done.stdout.split(b"\0")


@pytest.mark.parametrize("secret", [{"A B": "x"}, {"A=B": "x"}, {"A;id": "x"}, {"": "x"}, {"A": "x\0y"}, {"Ä": "x"}])
def test_secret_that_cannot_be_handed_over_is_refused(secret: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="cannot be handed over"):
        secret_text(secret)


def test_bundle_is_made_again_the_same_over_the_leftovers_of_a_start(tmp_path: Path) -> None:
    spec = GOOD._replace(home=str(tmp_path / "home"), readonly=("/usr",))
    etc = write_bundle(tmp_path, spec, netns="/run/netns/x", ip="10.0.0.2", resolv_conf="nameserver 10.0.0.1\n")
    first = (tmp_path / "config.json").read_text()
    (tmp_path / "checkpoint/pages.img").touch()
    assert write_bundle(tmp_path, spec, netns="/run/netns/x", ip="10.0.0.2", resolv_conf="", etc=etc) == etc
    assert (tmp_path / "config.json").read_text() == first
    assert list((tmp_path / "checkpoint").iterdir()) == []
    config = json.loads(first)
    writable = [mount["destination"] for mount in config["mounts"] if mount["type"] == "bind" and "ro" not in mount["options"]]
    assert writable == ["/home/ann"]
    assert config["root"]["path"] == str(tmp_path / "rootfs")
    assert os.stat(tmp_path / "rootfs/etc/passwd").st_mode & 0o777 == 0o644
    assert "/etc/shadow" not in first
