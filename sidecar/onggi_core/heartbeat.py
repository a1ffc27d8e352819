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

HEARTBEAT_VERSION: Final = 1

BODY_BYTES_MAX: Final = 64 * 1024
"""A full report is below 8 KiB; eight times that leaves room to grow and bounds what a pod that
holds a token can make the operator read."""

ERROR_KINDS_MAX: Final = 64
"""Kinds are an enum of the agent's; a report with more is not one of ours."""

FINGERPRINTS_MAX: Final = 64
"""One per rank and geometry of one pod; 64 ranks is more than one pod can hold GPUs."""

NAME_CHARS_MAX: Final = 253
"""A Kubernetes object name."""

COUNT_MAX: Final = 2**63 - 1
INTERVAL_S_MIN: Final = 1.0
INTERVAL_S_MAX: Final = 300.0
"""Past five minutes an operator could not tell a quiet agent from a dead one."""

_EPOCH: Final = re.compile(r"[0-9a-f]{8,64}", re.ASCII)
_FINGERPRINT: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)
_KIND: Final = re.compile(r"[a-z0-9_]{1,63}", re.ASCII)


class Mode(str, Enum):
    """What a pool asks of its agents."""

    ACTIVE = "Active"
    """Store and load."""
    OBSERVE = "Observe"
    """Look up and account, but keep and serve nothing: shows what Active would save."""
    PAUSED = "Paused"
    """Answer MISS; keep what is held."""


class HeartbeatError(ValueError):
    """A body that is not a heartbeat or directive; the message is a sentence naming the field."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field


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


@dataclass(frozen=True, slots=True)
class Directive:
    """The operator's answer: the mode to run in, when to report next, and what the tiers may hold;
    None where the operator does not say, and the agent keeps what it has."""

    mode: Mode
    interval_s: float
    host_bytes: int | None = None
    disk_bytes: int | None = None


def dump_heartbeat(beat: Heartbeat) -> bytes:
    """The body to POST."""
    body = {"version": HEARTBEAT_VERSION, **asdict(beat), "mode": beat.mode.value}
    return json.dumps(body, separators=(",", ":")).encode()


def parse_heartbeat(body: bytes) -> Heartbeat:
    """Read a report. Raises HeartbeatError naming the first field that is wrong."""
    fields = _Fields.of(body)
    return Heartbeat(
        pool=fields.name("pool"),
        namespace=fields.name("namespace"),
        pod=fields.name("pod"),
        pod_uid=fields.name("pod_uid"),
        node=fields.name("node"),
        epoch=fields.matching("epoch", _EPOCH, "8 to 64 lower-case hex digits"),
        mode=fields.mode("mode"),
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
    return json.dumps(body, separators=(",", ":")).encode()


def parse_directive(body: bytes) -> Directive:
    """Read the answer. Raises HeartbeatError naming the first field that is wrong; an agent that
    cannot read it keeps the directive it has."""
    fields = _Fields.of(body)
    return Directive(
        mode=fields.mode("mode"),
        interval_s=fields.interval("interval_s"),
        host_bytes=fields.optional_count("host_bytes"),
        disk_bytes=fields.optional_count("disk_bytes"),
    )


def _tier_bytes(fields: "_Fields") -> TierBytes:
    return TierBytes(fields.count("host_bytes"), fields.count("disk_bytes"))


def _tier_blocks(fields: "_Fields") -> TierBlocks:
    return TierBlocks(fields.count("host_blocks"), fields.count("disk_blocks"))


def _lookups(fields: "_Fields") -> Lookups:
    return Lookups(fields.count("requests"), fields.count("blocks"), fields.count("miss_blocks"))


def _errors(fields: "_Fields") -> dict[str, int]:
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


@dataclass(frozen=True, slots=True)
class _Fields:
    """A JSON object whose values are read by name and type, and refused by their full path."""

    path: str
    values: Mapping[str, Any]

    @classmethod
    def of(cls, body: bytes) -> "_Fields":
        if len(body) > BODY_BYTES_MAX:
            raise HeartbeatError("body", f"is longer than {BODY_BYTES_MAX} bytes")
        try:
            values = json.loads(body)
        except (ValueError, RecursionError) as fault:
            raise HeartbeatError("body", "is not JSON") from fault
        if not isinstance(values, dict):
            raise HeartbeatError("body", "is not a JSON object")
        version = values.get("version")
        if type(version) is not int or version != HEARTBEAT_VERSION:
            raise HeartbeatError(
                "version", f"is {_shown(version)}, this side speaks {HEARTBEAT_VERSION}"
            )
        return cls("", values)

    def _get(self, name: str) -> object:
        if name not in self.values:
            raise HeartbeatError(self.path + name, "is missing")
        return self.values[name]

    def child(self, name: str) -> "_Fields":
        value = self._get(name)
        if not isinstance(value, dict):
            raise HeartbeatError(self.path + name, f"is {_shown(value)}, expected an object")
        return _Fields(f"{self.path}{name}.", value)

    def count(self, name: str) -> int:
        value = self._get(name)
        if type(value) is not int or not 0 <= value <= COUNT_MAX:
            raise HeartbeatError(
                self.path + name, f"is {_shown(value)}, expected a whole number of 0 or more"
            )
        return value

    def optional_count(self, name: str) -> int | None:
        return self.count(name) if name in self.values else None

    def name(self, name: str) -> str:
        value = self._get(name)
        if not isinstance(value, str) or not 0 < len(value) <= NAME_CHARS_MAX:
            raise HeartbeatError(
                self.path + name,
                f"is {_shown(value)}, expected a text of 1 to {NAME_CHARS_MAX} characters",
            )
        return value

    def matching(self, name: str, pattern: "re.Pattern[str]", meaning: str) -> str:
        value = self.name(name)
        if not pattern.fullmatch(value):
            raise HeartbeatError(self.path + name, f"is {_shown(value)}, expected {meaning}")
        return value

    def mode(self, name: str) -> Mode:
        value = self.name(name)
        if value not in Mode._value2member_map_:
            known = ", ".join(mode.value for mode in Mode)
            raise HeartbeatError(self.path + name, f"is {_shown(value)}, expected one of {known}")
        return Mode(value)

    def interval(self, name: str) -> float:
        value = self._get(name)
        if isinstance(value, (int, float)) and INTERVAL_S_MIN <= value <= INTERVAL_S_MAX:
            return float(value)
        raise HeartbeatError(
            self.path + name,
            f"is {_shown(value)}, expected {INTERVAL_S_MIN:g} to {INTERVAL_S_MAX:g} seconds",
        )

    def fingerprints(self, name: str) -> tuple[str, ...]:
        value = self._get(name)
        if not isinstance(value, list) or len(value) > FINGERPRINTS_MAX:
            raise HeartbeatError(
                self.path + name, f"is not a list of at most {FINGERPRINTS_MAX} fingerprints"
            )
        for item in value:
            if not isinstance(item, str) or not _FINGERPRINT.fullmatch(item):
                raise HeartbeatError(
                    self.path + name, f"holds {_shown(item)}, expected 32 lower-case hex digits"
                )
        return tuple(value)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
