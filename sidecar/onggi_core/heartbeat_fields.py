"""Reads the JSON of heartbeats and directives: each value by name and type, refused by its full
path."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeVar

HEARTBEAT_VERSION: Final = 1

BODY_BYTES_MAX: Final = 64 * 1024
"""A full report is below 8 KiB; eight times that leaves room to grow and bounds what a pod that
holds a token can make the operator read."""

FINGERPRINTS_MAX: Final = 64
"""One per rank and geometry of one pod; 64 ranks is more than one pod can hold GPUs."""

NAME_CHARS_MAX: Final = 253
"""A Kubernetes object name."""

COUNT_MAX: Final = 2**63 - 1
POINTS_MAX: Final = 16
"""Of a curve: three times what ghost caches give today."""

INTERVAL_S_MIN: Final = 1.0
INTERVAL_S_MAX: Final = 300.0
"""Past five minutes an operator could not tell a quiet agent from a dead one."""

_FINGERPRINT: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)

_Kind = TypeVar("_Kind", bound=Enum)


class HeartbeatError(ValueError):
    """A body that is not a heartbeat or directive; the message is a sentence naming the field."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field


@dataclass(frozen=True, slots=True)
class OtherVersion:
    """What to do about a body of an earlier version than this side's, and about one of a later."""

    earlier: str
    later: str


@dataclass(frozen=True, slots=True)
class Fields:
    """A JSON object whose values are read by name and type, and refused by their full path."""

    path: str
    values: Mapping[str, Any]

    @classmethod
    def of(cls, body: bytes, other: OtherVersion) -> "Fields":
        if len(body) > BODY_BYTES_MAX:
            raise HeartbeatError("body", f"is longer than {BODY_BYTES_MAX} bytes")
        try:
            values = json.loads(body)
        except (ValueError, RecursionError) as fault:
            raise HeartbeatError("body", "is not JSON") from fault
        if not isinstance(values, dict):
            raise HeartbeatError("body", "is not a JSON object")
        _check_version(values.get("version"), other)
        return cls("", values)

    def _get(self, name: str) -> object:
        if name not in self.values:
            raise HeartbeatError(self.path + name, "is missing")
        return self.values[name]

    def child(self, name: str) -> "Fields":
        value = self._get(name)
        if not isinstance(value, dict):
            raise HeartbeatError(self.path + name, f"is {shown(value)}, expected an object")
        return Fields(f"{self.path}{name}.", value)

    def count(self, name: str) -> int:
        value = self._get(name)
        if type(value) is not int or not 0 <= value <= COUNT_MAX:
            raise HeartbeatError(
                self.path + name, f"is {shown(value)}, expected a whole number of 0 or more"
            )
        return value

    def optional_count(self, name: str) -> int | None:
        return self.count(name) if name in self.values else None

    def name(self, name: str) -> str:
        value = self._get(name)
        if not isinstance(value, str) or not 0 < len(value) <= NAME_CHARS_MAX:
            raise HeartbeatError(
                self.path + name,
                f"is {shown(value)}, expected a text of 1 to {NAME_CHARS_MAX} characters",
            )
        return value

    def matching(self, name: str, pattern: "re.Pattern[str]", meaning: str) -> str:
        value = self.name(name)
        if not pattern.fullmatch(value):
            raise HeartbeatError(self.path + name, f"is {shown(value)}, expected {meaning}")
        return value

    def one_of(self, name: str, kind: type[_Kind]) -> _Kind:
        value = self.name(name)
        if value not in kind._value2member_map_:
            known = ", ".join(str(one.value) for one in kind)
            raise HeartbeatError(self.path + name, f"is {shown(value)}, expected one of {known}")
        return kind(value)

    def flag(self, name: str) -> bool:
        """False where it is not said."""
        value = self.values.get(name, False)
        if not isinstance(value, bool):
            raise HeartbeatError(self.path + name, f"is {shown(value)}, expected true or false")
        return value

    def points(self, name: str) -> tuple[tuple[int, float], ...]:
        """Pairs of a size and a share of 0 to 1, by rising size."""
        value = self._get(name)
        right = f"expected at most {POINTS_MAX} pairs [size, share], by size, shares of 0 to 1"
        if not isinstance(value, list) or len(value) > POINTS_MAX:
            raise HeartbeatError(self.path + name, f"is {shown(value)}, {right}")
        last = -1
        for pair in value:
            if not _is_point(pair) or pair[0] <= last:
                raise HeartbeatError(self.path + name, f"holds {shown(pair)}, {right}")
            last = pair[0]
        return tuple((size, float(share)) for size, share in value)

    def interval(self, name: str) -> float:
        value = self._get(name)
        if isinstance(value, (int, float)) and INTERVAL_S_MIN <= value <= INTERVAL_S_MAX:
            return float(value)
        raise HeartbeatError(
            self.path + name,
            f"is {shown(value)}, expected {INTERVAL_S_MIN:g} to {INTERVAL_S_MAX:g} seconds",
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
                    self.path + name, f"holds {shown(item)}, expected 32 lower-case hex digits"
                )
        return tuple(value)


def _check_version(version: object, other: OtherVersion) -> None:
    problem = f"is {shown(version)}, this side speaks {HEARTBEAT_VERSION}"
    if type(version) is not int:
        raise HeartbeatError("version", problem)
    if version != HEARTBEAT_VERSION:
        advice = other.earlier if version < HEARTBEAT_VERSION else other.later
        raise HeartbeatError("version", f"{problem}; {advice}")


def _is_point(pair: object) -> bool:
    if not isinstance(pair, list) or len(pair) != 2:
        return False
    size, share = pair
    sized = type(size) is int and 0 <= size <= COUNT_MAX
    return sized and type(share) in (int, float) and 0 <= share <= 1


def shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
