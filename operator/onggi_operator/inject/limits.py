"""What a namespace's LimitRanges allow: a container that they refuse would take the pod with it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Any

from onggi_core.quantity import exact_quantity, format_size
from onggi_operator.inject.outcome import Skipped, SkipReason


class Scope(str, Enum):
    """What a limit is for; those of images are no matter here."""

    CONTAINER = "Container"
    POD = "Pod"
    CLAIM = "PersistentVolumeClaim"


@dataclass(frozen=True, slots=True)
class Limits:
    """One LimitRange item. Quantities as they were written, by resource name."""

    source: str
    scope: Scope
    minimum: Mapping[str, str]
    maximum: Mapping[str, str]
    ratio: Mapping[str, str]


def read_limits(body: Mapping[str, Any]) -> tuple[Limits, ...]:
    """The items of one LimitRange object that bound what a pod may have."""
    return tuple(
        Limits(
            source=body["metadata"]["name"],
            scope=Scope(item["type"]),
            minimum=item.get("min") or {},
            maximum=item.get("max") or {},
            ratio=item.get("maxLimitRequestRatio") or {},
        )
        for item in body["spec"]["limits"]
        if item["type"] in Scope._value2member_map_
    )


def limit_conflict(
    pod: Mapping[str, Any],
    added: Sequence[Mapping[str, Any]],
    limits: Iterable[Limits],
    claimed_bytes: int,
) -> Skipped | None:
    """The first limit that would refuse a container that is added, the pod with them, or the claim
    for its disk; the message has both numbers."""
    for limit in limits:
        if limit.scope is Scope.POD:
            problem = _pod_problem(pod, added, limit)
        elif limit.scope is Scope.CLAIM:
            problem = _claim_problem(claimed_bytes, limit)
        else:
            found = ((one, _problem(one["resources"], limit)) for one in added)
            problem = next((f"container {one['name']} {told}" for one, told in found if told), None)
        if problem:
            return Skipped(SkipReason.LIMIT_RANGE, f"{problem} (LimitRange {limit.source})")
    return None


def _problem(resources: Mapping[str, Any], limit: Limits) -> str | None:
    requests, limits = resources["requests"], resources["limits"]
    for name, most in limit.maximum.items():
        if name in limits and exact_quantity(limits[name]) > exact_quantity(most):
            return f"needs {_shown(name, limits[name])} of {name}, and at most {most} are allowed"
    for name, least in limit.minimum.items():
        if name in requests and exact_quantity(requests[name]) < exact_quantity(least):
            return f"asks for {requests[name]} of {name}, and at least {least} are required"
    for name, most in limit.ratio.items():
        if name in requests and _ratio(limits, requests, name) > exact_quantity(most):
            return (
                f"has {limits[name]} of {name} as limit and {requests[name]} as request, and a"
                f" ratio of at most {most} is allowed"
            )
    return None


def _claim_problem(claimed_bytes: int, limit: Limits) -> str | None:
    if not claimed_bytes:
        return None
    told = f"the claim for the disk needs {format_size(claimed_bytes)}"
    most, least = limit.maximum.get("storage"), limit.minimum.get("storage")
    if most is not None and claimed_bytes > exact_quantity(most):
        return f"{told}, and at most {most} are allowed"
    if least is not None and claimed_bytes < exact_quantity(least):
        return f"{told}, and at least {least} are required"
    return None


def _pod_problem(
    pod: Mapping[str, Any], added: Sequence[Mapping[str, Any]], limit: Limits
) -> str | None:
    """The pod's own containers and what stays beside them; the client's container has ended by
    then. A container without a limit counts nothing, as it does for the API server."""
    running = [*(pod["spec"].get("containers") or ()), *added[:1]]
    for name, most in limit.maximum.items():
        sizes = [
            exact_quantity(str(size))
            for one in running
            if (size := ((one.get("resources") or {}).get("limits") or {}).get(name)) is not None
        ]
        total = sum(sizes, Fraction(0))
        if total > exact_quantity(most):
            told = f"{float(total):g}" if name == "cpu" else format_size(int(total))
            return f"the pod with its agent needs {told} of {name}, and at most {most} are allowed"
    return None


def _ratio(limits: Mapping[str, str], requests: Mapping[str, str], name: str) -> Fraction:
    return exact_quantity(limits[name]) / exact_quantity(requests[name])


def _shown(name: str, quantity: str) -> str:
    return quantity if name == "cpu" else format_size(int(exact_quantity(quantity)))
