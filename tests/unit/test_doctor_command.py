"""`gke-workspaces doctor`: one sentence where there is no cluster, a table for people, JSON for programs."""

from __future__ import annotations

import json
import re
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from gke_workspaces_spawner.cli import main
from gke_workspaces_spawner.cli.doctor import table
from gke_workspaces_spawner.kube import doctor
from gke_workspaces_spawner.kube.doctor import State
from gke_workspaces_spawner.kube.doctor.bucket import Bucket
from gke_workspaces_spawner.kube.doctor.examine import judge
from gke_workspaces_spawner.kube.doctor.findings import Finding, Unread, data
from gke_workspaces_spawner.kube.doctor.hub import database
from gke_workspaces_spawner.kube.doctor.values import parse
from tests.fakes.cluster import well

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: u, user: {{token: t}}}}]
contexts: [{{name: c, context: {{cluster: c, user: u, namespace: hub}}}}]
"""
UNASKED = Unread("It was not asked.")


def kubeconfig(folder: Path, port: int) -> Path:
    file = folder / "kubeconfig"
    file.write_text(KUBECONFIG.format(port=port), encoding="utf-8")
    return file


def test_a_cluster_that_is_away_is_one_sentence_and_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound and not listening: refused at once, and nobody else's
        assert main(["doctor", "--kubeconfig", str(kubeconfig(tmp_path, nobody.getsockname()[1]))]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert re.fullmatch(r"gke-workspaces: No cluster can be reached: .*\n", said.err)


@pytest.mark.parametrize(
    ("text", "arguments", "says"),
    [
        ("nothing: here", [], "The kubeconfig cannot be used"),
        ("[", [], "The kubeconfig cannot be used"),
        (KUBECONFIG.format(port=1), ["--context", "other"], "The kubeconfig cannot be used"),
        (KUBECONFIG.format(port=1), ["--values", "/nonexistent.yaml"], "There is no file"),
        (None, [], "There is no file"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(
    text: str | None, arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file = tmp_path / "kubeconfig"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    assert main(["doctor", "--kubeconfig", str(file), *arguments]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1


def test_without_a_kubeconfig_it_is_said_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert main(["doctor"]) == 2
    assert "get-credentials" in capsys.readouterr().err


def test_findings_come_in_the_order_of_the_page():
    findings = judge(replace(well(), policies=[]), UNASKED, parse("values.yaml", "{}"))
    order = list(data("checks"))
    positions = [order.index(one.check.partition("/")[0]) for one in findings]
    assert positions == sorted(positions)
    assert {one.check.partition("/")[0] for one in findings} >= {"api", "bucket", "values-cull", "guess"}


def test_how_long_the_hub_keeps_is_taken_from_its_values():
    config = "hub: {config: {GKEWorkspaceSpawner: {snapshot_expires: 7776000}}}"
    bucket = Bucket("b", {"lifecycle": {"rule": [{"action": {"type": "Delete"}, "condition": {"age": 60}}]}}, UNASKED)
    (kept,) = (one for one in judge(well(), bucket, parse("values.yaml", config)) if one.check == "bucket-lifecycle")
    assert kept.state is State.FAULT


@pytest.mark.parametrize("width", [20, 80, 120])
def test_the_table_says_why_and_what_mends_it_in_one_piece(width: int):
    findings = judge(replace(well(), policies=[]), UNASKED, UNASKED)
    lines = list(table("here", findings, width))
    assert lines[0] == "Looked at here."
    fault = next(one for one in findings if one.state is State.FAULT)
    assert f"         > {fault.mend}" in lines
    assert re.fullmatch(r"\d+ fault, \d+ warning, \d+ unknown, \d+ ok", lines[-1])
    assert all(len(line) <= max(width, 40) for line in lines if not line.startswith("         > ") and line != lines[-1])


@pytest.mark.parametrize(("values", "code"), [("hub: {db: {type: sqlite-pvc}}", 0), ("hub: {db: {type: sqlite-memory}}", 1)])
def test_json_has_every_finding_and_a_fault_is_exit_code_1(
    values: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    async def examined(*_arguments: object) -> tuple[str, list[Finding]]:
        return "here", [database(parse("values.yaml", values))]

    monkeypatch.setattr(doctor, "examine", examined)
    assert main(["doctor", "--json"]) == code
    said = json.loads(capsys.readouterr().out)
    assert said["where"] == "here"
    (one,) = said["findings"]
    assert one.keys() == {"check", "state", "what", "why", "mend"}
    assert one["state"] == ("fault" if code else "ok")
