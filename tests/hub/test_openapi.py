"""Bad input to every route, made up from the OpenAPI file: never a 5xx, and answers of the shape that the file promises."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import schemathesis
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from .running import ROOT, RunningHub

SPEC = ROOT / "gke_workspaces_spawner" / "hubapi" / "openapi.yaml"
schema = schemathesis.openapi.from_path(SPEC)
current: list[RunningHub] = []


@pytest.fixture(scope="module", autouse=True)
def paused(light_hub: RunningHub) -> Iterator[None]:
    """One paused server that the calls may hit by the names of the examples."""
    light_hub.start_server("ann")
    light_hub.pause("ann")
    current.append(light_hub)
    yield
    current.clear()


@schema.parametrize()
@hypothesis.settings(max_examples=25, deadline=None, suppress_health_check=list(hypothesis.HealthCheck), database=None, derandomize=True)
def test_a_call_made_up_from_the_openapi_file_is_answered_as_it_says(case: schemathesis.Case[Any]) -> None:
    hub = current[0]
    headers = {"Authorization": f"token {hub.admin_token}"}
    response = case.call(base_url=f"{hub.url}/hub/api", headers=headers, timeout=30)
    assert response.status_code < 500, response.text
    case.validate_response(response, checks=[response_schema_conformance, status_code_conformance])
    if response.status_code >= 400 and case.method != "HEAD":
        assert response.json()["reason"]
        assert response.json()["message"]
