"""The wire: golden messages of version 1, signatures, and the OpenAPI file that describes both."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import jupyter_pause_ext
from jupyter_pause_ext import messages, procfs, signing
from jupyter_pause_ext.handlers import VERBS
from jupyter_pause_ext.messages import (
    FrozenRequest,
    PrepareRequest,
    Refusal,
    clean,
    parse_object,
    parse_pause_id,
    safe_cancel,
    safe_follow_url,
)
from jupyter_pause_ext.tab import TAB_ROUTES

WIRE = Path(__file__).parent.parent / "wire" / "v1"
GOLDEN: dict[str, Any] = json.loads((WIRE / "signatures.json").read_text())
SECRET = bytes.fromhex(GOLDEN["secret"])
OPENAPI: dict[str, Any] = yaml.safe_load((Path(jupyter_pause_ext.__file__).parent / "openapi.yaml").read_text())


@pytest.mark.parametrize("vector", GOLDEN["requests"], ids=lambda vector: vector["name"])
def test_requests_are_signed_as_ever(vector: dict[str, Any]) -> None:
    parts = vector["method"], vector["path"], vector["time"], vector["nonce"], vector["body"].encode()
    assert signing.request_signature(SECRET, *parts) == vector["signature"]
    headers = {signing.TIME_HEADER: vector["time"], signing.NONCE_HEADER: vector["nonce"], signing.SIGNATURE_HEADER: vector["signature"]}
    verifier = signing.Verifier(SECRET, lambda: float(vector["time"]) + 299)
    assert verifier.check(vector["method"], vector["path"], headers, vector["body"].encode()) == vector["nonce"]
    for body, headers_changed in ((b"x", headers), (vector["body"].encode(), headers | {signing.NONCE_HEADER: "1" * 32})):
        with pytest.raises(signing.BadSignature):
            verifier.check(vector["method"], vector["path"], headers_changed, body)


@pytest.mark.parametrize("vector", GOLDEN["responses"], ids=lambda vector: vector["name"])
def test_responses_are_signed_as_ever(vector: dict[str, Any]) -> None:
    assert signing.response_signature(SECRET, vector["nonce"], vector["status"], vector["body"].encode()) == vector["signature"]


class Moment:
    now = 1e9

    def __call__(self) -> float:
        return self.now


def signed(verifier: signing.Verifier, nonce: int, time: float) -> str:
    text, stamp = f"{nonce:032x}", f"{time:.3f}"
    signature = signing.request_signature(SECRET, "POST", "/x", stamp, text, b"")
    headers = {signing.TIME_HEADER: stamp, signing.NONCE_HEADER: text, signing.SIGNATURE_HEADER: signature}
    return verifier.check("POST", "/x", headers, b"")


def test_nonces_are_remembered_as_long_as_their_message_could_count_and_no_longer() -> None:
    moment = Moment()
    verifier = signing.Verifier(SECRET, moment, max_nonces=3)
    for nonce in range(3):
        signed(verifier, nonce, moment.now + signing.MAX_SKEW)
    with pytest.raises(signing.BadSignature, match="too many"):
        signed(verifier, 3, moment.now)
    stamp = moment.now + signing.MAX_SKEW
    moment.now += 2 * signing.MAX_SKEW
    with pytest.raises(signing.BadSignature, match="before"):
        signed(verifier, 0, stamp)
    moment.now += 1
    assert signed(verifier, 3, moment.now)
    with pytest.raises(signing.BadSignature, match="clocks"):
        signed(verifier, 0, stamp)


@pytest.mark.parametrize("text", ["", "00" * 15, "0" * 63, "zz" * 32, "00" * 65, " " + "00" * 32, "00" * 32 + "\n"])
def test_a_weak_or_broken_secret_is_none(text: str) -> None:
    assert signing.parse_secret(text) is None


def test_golden_requests_are_understood_with_fields_of_a_later_version() -> None:
    data = json.loads((WIRE / "prepare.request.json").read_text())
    assert PrepareRequest.parse(json.dumps(data | {"later": 1}).encode(), 1796000000.0) == PrepareRequest("p-1", 1796000300.5, False, 60.0)
    for name in ("thaw", "restored"):
        assert parse_pause_id((WIRE / f"{name}.request.json").read_bytes()) == "p-1"


def test_golden_requests_to_freeze_are_understood() -> None:
    text = (WIRE / "prepare-freeze.request.json").read_bytes()
    assert PrepareRequest.parse(text, 1796000000.0) == PrepareRequest("p-1", 1796000300.5, True, 600.0)
    assert FrozenRequest.parse((WIRE / "frozen.request.json").read_bytes()) == FrozenRequest("p-1", 60.0)


@pytest.mark.parametrize("name", ["prepare-freeze", "prepare-not-permitted", "frozen-broken"])
def test_golden_answers_of_a_freeze_are_as_described(name: str) -> None:
    verb = name.partition("-")[0]
    check(json.loads((WIRE / f"{name}.response.json").read_text()), schema_of(f"/{verb}", "post", "200"))


def test_a_golden_refusal_names_what_stood_in_the_way() -> None:
    golden = json.loads((WIRE / "freeze-incomplete.refusal.json").read_text())
    check(golden, OPENAPI["components"]["schemas"]["Refusal"])
    assert Refusal(409, golden["reason"], golden["message"], names=golden["names"]).body() == golden


def test_a_lease_is_never_longer_than_a_day() -> None:
    request = PrepareRequest.parse(b'{"pause_id": "p", "deadline": 9e9, "freeze": true, "frozen_for": 9e9}', 1e9)
    assert (request.deadline, request.frozen_for) == (1e9 + messages.MAX_LEASE, messages.MAX_LEASE)
    assert FrozenRequest.parse(b'{"pause_id": "p", "seconds": 9e9}').seconds == messages.MAX_LEASE


def schema_of(path: str, method: str, status: str) -> dict[str, Any]:
    schema: dict[str, Any] = OPENAPI["paths"][path][method]["responses"][status]["content"]["application/json"]["schema"]
    return resolve(schema)


def resolve(schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        found: Any = OPENAPI
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        return resolve(found)
    return schema


def check(value: Any, schema: dict[str, Any], where: str = "$") -> None:
    """The part of JSON Schema that the file uses; strict about names, so that file and messages cannot drift apart."""
    schema = resolve(schema)
    kinds: dict[str, Any] = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "object": dict, "array": list}
    kinds["null"] = type(None)
    allowed = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    assert any(isinstance(value, kinds[kind]) for kind in allowed), f"{where}: {value!r} is not {allowed}"
    if isinstance(value, dict) and "properties" in schema:
        assert set(value) >= set(schema.get("required", [])), where
        assert set(value) <= set(schema["properties"]), where
        for name, item in value.items():
            check(item, schema["properties"][name], f"{where}.{name}")
    if isinstance(value, list):
        for item in value:
            check(item, schema["items"], f"{where}[]")
    if "enum" in schema:
        assert value in schema["enum"], where


@pytest.mark.parametrize("name", VERBS)
def test_golden_answers_of_the_hubs_verbs_are_as_described(name: str) -> None:
    check(json.loads((WIRE / f"{name}.response.json").read_text()), schema_of(f"/{name}", "post", "200"))
    request = OPENAPI["paths"][f"/{name}"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    check(json.loads((WIRE / f"{name}.request.json").read_text()), request)


@pytest.mark.parametrize("name", ["status", "journal"])
def test_golden_answers_of_the_tabs_routes_are_as_described(name: str) -> None:
    check(json.loads((WIRE / f"{name}.response.json").read_text()), schema_of(f"/{name}", "get", "200"))


def test_the_description_names_every_route_and_no_other() -> None:
    assert set(OPENAPI["paths"]) == {f"/{name}" for name in (*VERBS, *TAB_ROUTES)}
    check(json.loads((WIRE / "refusal.response.json").read_text()), OPENAPI["components"]["schemas"]["Refusal"])


@given(st.binary(max_size=200))
def test_any_body_is_an_object_or_a_refusal(body: bytes) -> None:
    for parse in (parse_object, parse_pause_id, FrozenRequest.parse, lambda text: PrepareRequest.parse(text, 0.0)):
        refused = refusal_of(parse, body)
        assert refused is None or (refused.status == 400 and refused.message.endswith("."))


def refusal_of(parse: Callable[[bytes], Any], body: bytes) -> Refusal | None:
    try:
        parse(body)
    except Refusal as refusal:
        return refusal
    return None


scalars = st.none() | st.booleans() | st.floats() | st.integers() | st.text()


@given(st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20))
def test_what_goes_on_to_the_tab_is_json(value: Any) -> None:
    json.dumps(clean(value), allow_nan=False)


def test_what_goes_on_to_the_tab_is_bounded() -> None:
    assert len(json.dumps(clean([[["z" * 5000] * 300]]))) < 4010 * 200
    assert "x" not in json.dumps(clean({"a": {"a": {"a": {"a": {"a": {"a": ["x"]}}}}}}))
    assert list(clean({"b" * 5000: "y" * 5000})) == ["b" * 100]


@pytest.mark.parametrize(
    ("value", "host", "expected"),
    [
        ("/hub/workspaces", "", "/hub/workspaces"),
        ("https://hub.example/hub/x", "https://hub.example", "https://hub.example/hub/x"),
        ("/hub/x", "https://hub.example", "https://hub.example/hub/x"),
        ("https://hub.example.evil/x", "https://hub.example", None),
        ("https://hub.example/x", "", None),
        ("//x", "", None),
        ("/a b", "", None),
        ("/\\x", "", None),
        ("javascript:x", "https://hub.example", None),
        (None, "", None),
    ],
)
def test_a_tab_is_led_to_the_hub_only(value: Any, host: str, expected: str | None) -> None:
    assert safe_follow_url(value, host) == expected


TICKET = "0f" * 32


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"url": "/hub/api/x", "ticket": TICKET, "more": 1}, {"url": "https://hub.example/hub/api/x", "ticket": TICKET}),
        ({"url": "https://evil.example/x", "ticket": TICKET}, None),
        ({"url": "/hub/api/x", "ticket": TICKET + "0"}, None),
        ({"url": "/hub/api/x", "ticket": "<b>"}, None),
        ({"url": "/hub/api/x"}, None),
        ([], None),
        (None, None),
    ],
)
def test_a_tab_is_given_a_ticket_only_for_the_hub(value: Any, expected: object) -> None:
    assert safe_cancel(value, "https://hub.example") == expected


TCP = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:A001 0100007F:A002 01 0:0 0:0 0 0 0 1
   1: 0500A8C0:22B8 0100A8C0:C001 01 0:0 0:0 0 0 0 2
   2: 0500A8C0:C002 0100A8C0:1F91 01 0:0 0:0 0 0 0 3
   3: 0500A8C0:C003 08080808:01BB 01 0:0 0:0 0 0 0 4
   4: 0500A8C0:C004 08080808:01BB 06 0:0 0:0 0 0 0 5
   5: 00000000:22B8 00000000:0000 0A 0:0 0:0 0 0 0 6
broken
"""
TCP6 = """  sl  local_address rem_address st
   0: 00000000000000000000000001000000:A001 00000000000000000000000001000000:A002 01
   1: 0000000000000000FFFF00000100007F:A001 0000000000000000FFFF00000100007F:A002 01
   2: 0000000000000000FFFF00000500A8C0:C003 0000000000000000FFFF000008080808:01BB 01
"""


def test_only_connections_of_the_users_to_other_machines_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procfs, "read", lambda path: TCP6 if path.endswith("tcp6") else TCP)
    assert procfs.established(frozenset({0x22B8}), frozenset({0x1F91})) == 2
