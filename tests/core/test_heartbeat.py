"""Heartbeats survive the wire unchanged, and a wrong one is refused by the name of its field."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onggi_core.heartbeat import (
    BODY_BYTES_MAX,
    COUNT_MAX,
    Demand,
    Directive,
    Heartbeat,
    HeartbeatError,
    Lookups,
    Mode,
    TierBlocks,
    TierBytes,
    dump_directive,
    dump_heartbeat,
    parse_directive,
    parse_heartbeat,
)

BEAT = Heartbeat(
    pool="chat",
    namespace="team-a",
    pod="chat-0",
    pod_uid="4f1c2b90-0000-4000-8000-000000000001",
    node="n1",
    epoch="0123456789abcdef",
    mode=Mode.ACTIVE,
    capacity=TierBytes(1 << 30, 4 << 30),
    used=TierBytes(1 << 20, 0),
    arena_ready_bytes=1 << 29,
    hits=TierBlocks(12, 3),
    lookups=Lookups(4, 40, 25),
    tokens_saved=240,
    evictions=1,
    errors={"disk_io": 2},
    fingerprints=("ab" * 16,),
    clients=1,
    sequence=7,
    held=TierBytes(2 << 30, 4 << 30),
    demand=Demand(4096, ((1 << 28, 0.1), (1 << 30, 0.25))),
    pending_blocks=3,
    draining=True,
)


def body_with(path: str, value: object) -> bytes:
    fields = json.loads(dump_heartbeat(BEAT))
    at: Any = fields
    *parents, last = path.split(".")
    for parent in parents:
        at = at[parent]
    at[last] = value
    return json.dumps(fields).encode()


def test_a_heartbeat_survives_the_wire() -> None:
    assert parse_heartbeat(dump_heartbeat(BEAT)) == BEAT


@given(st.integers(min_value=0, max_value=COUNT_MAX), st.sampled_from(Mode))
def test_any_count_and_mode_survive(count: int, mode: Mode) -> None:
    beat = replace(BEAT, tokens_saved=count, mode=mode, errors={})
    assert parse_heartbeat(dump_heartbeat(beat)) == beat


def test_a_field_of_a_later_minor_version_is_ignored() -> None:
    assert parse_heartbeat(body_with("ghost_curve", [1, 2])) == BEAT


def test_an_agent_of_before_says_less() -> None:
    fields = json.loads(dump_heartbeat(BEAT))
    for name in ("sequence", "held", "demand", "pending_blocks", "draining"):
        del fields[name]
    beat = parse_heartbeat(json.dumps(fields).encode())
    assert (beat.sequence, beat.held, beat.demand) == (0, None, Demand())
    assert (beat.pending_blocks, beat.draining) == (0, False)


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("sequence", -1, "sequence: is -1"),
        ("held", [1], "held: is [1], expected an object"),
        ("held.host_bytes", None, "held.host_bytes: is None"),
        ("demand.asked_tokens", "7", "demand.asked_tokens: is '7'"),
        ("demand.curve", {}, "demand.curve: is {}, expected at most 16 pairs"),
        ("demand.curve", [[1, 0.5]] * 17, "demand.curve: is [[1, 0.5]"),
        ("demand.curve", [[2, 0.5], [1, 0.6]], "demand.curve: holds [1, 0.6]"),
        ("demand.curve", [[1, 1.5]], "demand.curve: holds [1, 1.5]"),
        ("demand.curve", [[1, float("nan")]], "demand.curve: holds [1, nan]"),
        ("demand.curve", [[True, 0.5]], "demand.curve: holds [True, 0.5]"),
        ("demand.curve", [7], "demand.curve: holds 7"),
        ("draining", 1, "draining: is 1, expected true or false"),
        (
            "version",
            2,
            "version: is 2, this side speaks 1; this operator is older than the agent: up",
        ),
        (
            "version",
            0,
            "version: is 0, this side speaks 1; the agent is older than this operator: m",
        ),
        ("version", True, "version: is True"),
        ("pool", "", "pool: is ''"),
        ("pod_uid", 7, "pod_uid: is 7"),
        ("epoch", "XYZ", "epoch: is 'XYZ', expected 8 to 64"),
        ("mode", "active", "mode: is 'active', expected one of Active, Observe, Paused"),
        ("capacity", 3, "capacity: is 3, expected an object"),
        ("capacity.host_bytes", -1, "capacity.host_bytes: is -1"),
        ("used.disk_bytes", 1.5, "used.disk_bytes: is 1.5"),
        ("tokens_saved", COUNT_MAX + 1, "tokens_saved: is 9223372036854775808"),
        ("tokens_saved", True, "tokens_saved: is True"),
        ("errors", {"Disk IO!": 1}, "errors.Disk IO!: is not a kind"),
        ("errors", {f"k{i}": 1 for i in range(65)}, "errors: has 65 kinds"),
        ("fingerprints", ["zz"], "fingerprints: holds 'zz'"),
        ("fingerprints", ["ab" * 16] * 65, "fingerprints: is not a list of at most 64"),
        ("node", "n" * 254, "node: is 'nnn"),
    ],
)
def test_a_wrong_field_is_named(path: str, value: object, says: str) -> None:
    with pytest.raises(HeartbeatError) as refused:
        parse_heartbeat(body_with(path, value))
    assert str(refused.value).startswith(says)


def test_a_missing_field_is_named_by_its_path() -> None:
    fields = json.loads(dump_heartbeat(BEAT))
    del fields["lookups"]["blocks"]
    with pytest.raises(HeartbeatError, match=r"^lookups\.blocks: is missing$"):
        parse_heartbeat(json.dumps(fields).encode())


@pytest.mark.parametrize("body", [b"", b"[]", b"\xff", b"nope", b"[" * 60_000])
def test_what_is_not_a_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(HeartbeatError, match=r"^body: "):
        parse_heartbeat(body)


def test_an_oversized_body_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(HeartbeatError, match=r"^body: is longer"):
        parse_heartbeat(b" " * (BODY_BYTES_MAX + 1))


@given(st.binary(max_size=200))
def test_no_body_breaks_the_parser(body: bytes) -> None:
    with pytest.raises(HeartbeatError):
        parse_heartbeat(body)


def test_a_directive_survives_the_wire() -> None:
    for directive in (
        Directive(Mode.PAUSED, 5.0),
        Directive(Mode.ACTIVE, 1.0, 2**30, 0),
        Directive(Mode.ACTIVE, 1.0, drain=True),
    ):
        assert parse_directive(dump_directive(directive)) == directive


def test_an_operator_that_says_nothing_of_budgets_is_understood() -> None:
    """Nothing is what an older one says: an agent keeps what it has."""
    assert b"bytes" not in dump_directive(Directive(Mode.ACTIVE, 5.0))
    body = b'{"version":1,"mode":"Active","interval_s":5,"disk_bytes":7}'
    assert parse_directive(body) == Directive(Mode.ACTIVE, 5.0, None, 7)


def test_a_field_of_a_directive_of_later_is_ignored() -> None:
    body = b'{"version":1,"mode":"Paused","interval_s":5,"drain":true,"shed":{"share":0.5}}'
    assert parse_directive(body) == Directive(Mode.PAUSED, 5.0, drain=True)


@pytest.mark.parametrize(
    ("version", "advice"),
    [
        (0, "the operator is older than this agent: upgrade Onggi's chart"),
        (2, "this agent is older than the operator: make its pod anew"),
    ],
)
def test_a_directive_of_another_version_says_what_to_do(version: int, advice: str) -> None:
    body = json.dumps({"version": version, "mode": "Active", "interval_s": 5}).encode()
    with pytest.raises(HeartbeatError) as refused:
        parse_directive(body)
    assert str(refused.value) == f"version: is {version}, this side speaks 1; {advice}"


@pytest.mark.parametrize("wrong", [-1, 1.5, "1Gi", None, True])
def test_a_directive_with_a_wrong_budget_is_refused(wrong: object) -> None:
    body = {"version": 1, "mode": "Active", "interval_s": 5, "host_bytes": wrong}
    with pytest.raises(HeartbeatError, match=r"^host_bytes: "):
        parse_directive(json.dumps(body).encode())


@pytest.mark.parametrize("interval_s", [0, 301, "5", None, float("nan")])
def test_a_directive_with_a_wild_interval_is_refused(interval_s: object) -> None:
    body = json.dumps({"version": 1, "mode": "Active", "interval_s": interval_s}).encode()
    with pytest.raises(HeartbeatError, match=r"^interval_s: "):
        parse_directive(body)
