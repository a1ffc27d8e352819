"""The heartbeat: what an agent reports to the operator and the directive it gets back.

Both sides parse and write with this one module, so they cannot drift apart. JSON, because a person
debugging a cluster reads it with curl. Counters count since the agent's start, which `epoch` names:
the operator adds differences within one epoch, so totals never fall when an agent restarts.

Evolution: `version` changes only for a break. A new field comes with a default and is ignored by
who does not know it; a field is never given another meaning or unit.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, Final

from onggi_core.heartbeat_fields import (
    BODY_BYTES_MAX,
    COUNT_MAX,
    FINGERPRINTS_MAX,
    HEARTBEAT_VERSION,
    Fields,
    HeartbeatError,
    OtherVersion,
)

__all__ = [
    "BODY_BYTES_MAX",
    "COUNT_MAX",
    "FINGERPRINTS_MAX",
    "Demand",
    "Directive",
    "Heartbeat",
    "HeartbeatError",
    "Lookups",
    "Mode",
    "TierBlocks",
    "TierBytes",
    "dump_directive",
    "dump_heartbeat",
    "parse_directive",
    "parse_heartbeat",
]

ERROR_KINDS_MAX: Final = 64
"""Kinds are an enum of the agent's; a report with more is not one of ours."""

_OF_A_REPORT: Final = OtherVersion(
    earlier="the agent is older than this operator: make its pod anew",
    later="this operator is older than the agent: upgrade Onggi's chart",
)
_OF_A_DIRECTIVE: Final = OtherVersion(
    earlier="the operator is older than this agent: upgrade Onggi's chart",
    later="this agent is older than the operator: make its pod anew",
)

_EPOCH: Final = re.compile(r"[0-9a-f]{8,64}", re.ASCII)
_MARK: Final = re.compile(r"[0-9a-z-]{1,64}", re.ASCII)
_KIND: Final = re.compile(r"[a-z0-9_]{1,63}", re.ASCII)


class Mode(str, Enum):
    """What a pool asks of its agents."""

    ACTIVE = "Active"
    """Store and load."""
    OBSERVE = "Observe"
    """Look up and account, but keep and serve nothing: shows what Active would save."""
    PAUSED = "Paused"
    """Answer MISS; keep what is held."""


@dataclass(frozen=True, slots=True)
class TierBytes:
    """Bytes by tier: of capacity, or in use."""

    host_bytes: int = 0
    disk_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TierBlocks:
    """Blocks by the tier that they were served from."""

    host_blocks: int = 0
    disk_blocks: int = 0


@dataclass(frozen=True, slots=True)
class Lookups:
    """What was asked: requests, the blocks they named, and the blocks not held."""

    requests: int = 0
    blocks: int = 0
    miss_blocks: int = 0


@dataclass(frozen=True, slots=True)
class Demand:
    """What engines ask for, and what other sizes would bring of it."""

    asked_tokens: int = 0
    """Prompt tokens asked about since the agent's start."""
    curve: tuple[tuple[int, float], ...] = ()
    """(bytes, share of what is asked for that would be hits) by rising size of the larger tier.
    Empty until it is drawn from enough; it begins anew when a budget changes."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """One agent's report. Counters (hits, lookups, tokens_saved, evictions, errors) are since the
    start that `epoch` names; capacity, used, arena_ready_bytes and clients are as of now."""

    pool: str
    namespace: str
    pod: str
    pod_uid: str
    node: str
    epoch: str
    mode: Mode
    capacity: TierBytes
    used: TierBytes
    arena_ready_bytes: int
    hits: TierBlocks
    lookups: Lookups
    tokens_saved: int
    evictions: int
    errors: Mapping[str, int]
    fingerprints: tuple[str, ...]
    clients: int
    sequence: int = 0
    """Counts the reports of one epoch, from 1: one that was overtaken on its way tells of a past in
    which the agent may have held less. 0 from an agent that does not count."""
    held: TierBytes | None = None
    """What is taken of the node: the budget, what is still coming, and what has not left yet. None
    from an agent that does not say; then it is the capacity."""
    demand: Demand = Demand()
    pending_blocks: int = 0
    """Blocks that lie in memory alone and are on their way to disk."""
    draining: bool = False
    """The directive to drain is being followed."""
    confirms: str | None = None
    """The last directive's `confirm`, of those in this life that had one; empty before. None from
    an agent that knows of no such thing."""


@dataclass(frozen=True, slots=True)
class Directive:
    """The operator's answer: the mode to run in, when to report next, and what the tiers may hold;
    None where the operator does not say, and the agent keeps what it has."""

    mode: Mode
    interval_s: float
    host_bytes: int | None = None
    disk_bytes: int | None = None
    drain: bool = False
    """The pod is to leave its node: write down what lies in memory alone, begin nothing new that
    would be lost."""
    confirm: str = ""
    """Report again at once and repeat this: a report of a life that is not known may have been on
    its way since before the present one began, and only who lives can repeat what it was told."""


def dump_heartbeat(beat: Heartbeat) -> bytes:
    """The body to POST."""
    body = {"version": HEARTBEAT_VERSION, **asdict(beat), "mode": beat.mode.value}
    return json.dumps(body, separators=(",", ":")).encode()


def parse_heartbeat(body: bytes) -> Heartbeat:
    """Read a report. Raises HeartbeatError naming the first field that is wrong."""
    fields = Fields.of(body, _OF_A_REPORT)
    return Heartbeat(
        pool=fields.name("pool"),
        namespace=fields.name("namespace"),
        pod=fields.name("pod"),
        pod_uid=fields.name("pod_uid"),
        node=fields.name("node"),
        epoch=fields.matching("epoch", _EPOCH, "8 to 64 lower-case hex digits"),
        mode=fields.one_of("mode", Mode),
        capacity=_tier_bytes(fields.child("capacity")),
        used=_tier_bytes(fields.child("used")),
        arena_ready_bytes=fields.count("arena_ready_bytes"),
        hits=_tier_blocks(fields.child("hits")),
        lookups=_lookups(fields.child("lookups")),
        tokens_saved=fields.count("tokens_saved"),
        evictions=fields.count("evictions"),
        errors=_errors(fields.child("errors")),
        fingerprints=fields.fingerprints("fingerprints"),
        clients=fields.count("clients"),
        sequence=fields.optional_count("sequence") or 0,
        held=_held(fields),
        demand=_demand(fields),
        pending_blocks=fields.optional_count("pending_blocks") or 0,
        draining=fields.flag("draining"),
        confirms=_mark(fields, "confirms"),
    )


def dump_directive(directive: Directive) -> bytes:
    """The body of the 200 answer."""
    body: dict[str, Any] = {
        "version": HEARTBEAT_VERSION,
        "mode": directive.mode.value,
        "interval_s": directive.interval_s,
    }
    for name in ("host_bytes", "disk_bytes"):
        if (size_bytes := getattr(directive, name)) is not None:
            body[name] = size_bytes
    if directive.drain:
        body["drain"] = True
    if directive.confirm:
        body["confirm"] = directive.confirm
    return json.dumps(body, separators=(",", ":")).encode()


def parse_directive(body: bytes) -> Directive:
    """Read the answer. Raises HeartbeatError naming the first field that is wrong; an agent that
    cannot read it keeps the directive it has."""
    fields = Fields.of(body, _OF_A_DIRECTIVE)
    return Directive(
        mode=fields.one_of("mode", Mode),
        interval_s=fields.interval("interval_s"),
        host_bytes=fields.optional_count("host_bytes"),
        disk_bytes=fields.optional_count("disk_bytes"),
        drain=fields.flag("drain"),
        confirm=_mark(fields, "confirm") or "",
    )


def _mark(fields: Fields, name: str) -> str | None:
    value = fields.values.get(name)
    if value is None or value == "":
        return value
    return fields.matching(name, _MARK, "up to 64 of 0-9, a-z and -")


def _tier_bytes(fields: Fields) -> TierBytes:
    return TierBytes(fields.count("host_bytes"), fields.count("disk_bytes"))


def _held(fields: Fields) -> TierBytes | None:
    if fields.values.get("held") is None:
        return None
    return _tier_bytes(fields.child("held"))


def _demand(fields: Fields) -> Demand:
    if "demand" not in fields.values:
        return Demand()
    inner = fields.child("demand")
    return Demand(inner.count("asked_tokens"), inner.points("curve"))


def _tier_blocks(fields: Fields) -> TierBlocks:
    return TierBlocks(fields.count("host_blocks"), fields.count("disk_blocks"))


def _lookups(fields: Fields) -> Lookups:
    return Lookups(fields.count("requests"), fields.count("blocks"), fields.count("miss_blocks"))


def _errors(fields: Fields) -> dict[str, int]:
    if len(fields.values) > ERROR_KINDS_MAX:
        raise HeartbeatError(
            "errors", f"has {len(fields.values)} kinds, at most {ERROR_KINDS_MAX} are accepted"
        )
    for kind in fields.values:
        if not _KIND.fullmatch(kind):
            raise HeartbeatError(
                f"errors.{kind[:63]}", "is not a kind: 1 to 63 of a-z, 0-9 and underscore"
            )
    return {kind: fields.count(kind) for kind in fields.values}
