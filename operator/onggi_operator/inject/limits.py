"""What a namespace's LimitRanges allow: a container that they refuse would take the pod with it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from typing import Any

from onggi_core.quantity import exact_quantity, format_size
from onggi_operator.inject.outcome import Skipped, SkipReason
from onggi_operator.inject.usage import Usage, charges_of, usage_of


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
    default: Mapping[str, str] = field(default_factory=dict)
    default_request: Mapping[str, str] = field(default_factory=dict)


def read_limits(body: Mapping[str, Any]) -> tuple[Limits, ...]:
    """The items of one LimitRange object that bound what a pod may have."""
    return tuple(
        Limits(
            source=body["metadata"]["name"],
            scope=Scope(item["type"]),
            minimum=item.get("min") or {},
            maximum=item.get("max") or {},
            ratio=item.get("maxLimitRequestRatio") or {},
            default=item.get("default") or {},
            default_request=item.get("defaultRequest") or {},
        )
        for item in body["spec"]["limits"]
        if item["type"] in Scope._value2member_map_
    )


def limit_conflict(
    spec: Mapping[str, Any],
    added: Sequence[Mapping[str, Any]],
    limits: Sequence[Limits],
    claimed_bytes: int,
) -> Skipped | None:
    """The first limit that would refuse a container that is added, the pod with them, or the claim
    for its disk; the message has both numbers."""
    filled = [_with_defaults(container, limits) for container in added]
    inits = [*filled, *(spec.get("initContainers") or ())]
    whole = usage_of({"containers": spec.get("containers"), "initContainers": inits})
    for limit in limits:
        if problem := _first_problem(limit, filled, whole, claimed_bytes):
            return Skipped(SkipReason.LIMIT_RANGE, f"{problem} (LimitRange {limit.source})")
    return None


def _with_defaults(container: Mapping[str, Any], limits: Sequence[Limits]) -> dict[str, Any]:
    """What the API server makes of it: the pod's own containers have been through that before."""
    found = container["resources"]
    kept: dict[str, dict[str, str]] = {key: dict(found[key]) for key in ("limits", "requests")}
    for limit in limits:
        if limit.scope is Scope.CONTAINER:
            kept["limits"] = {**limit.default, **kept["limits"]}
            kept["requests"] = {**limit.default_request, **kept["requests"]}
    return {**container, "resources": kept}


def _first_problem(
    limit: Limits, added: Sequence[Mapping[str, Any]], whole: Usage, claimed_bytes: int
) -> str | None:
    if limit.scope is Scope.CLAIM:
        return _claim_problem(claimed_bytes, limit)
    if limit.scope is Scope.POD:
        told = _problem(whole, limit)
        return f"the pod with its agent {told}" if told else None
    found = ((one["name"], _problem(charges_of(one), limit)) for one in added)
    return next((f"container {name} {told}" for name, told in found if told), None)


def _problem(usage: Usage, limit: Limits) -> str | None:
    """The API server's own three rules, of which each wants the resource named."""
    for name, most in limit.maximum.items():
        used = usage.get(f"limits.{name}")
        if used is None:
            return f"has no limit of {name}, and one of at most {most} is required"
        if used > exact_quantity(most):
            return f"needs {_shown(name, used)} of {name}, and at most {most} are allowed"
    for name, least in limit.minimum.items():
        asked = usage.get(f"requests.{name}")
        if asked is None:
            return f"asks for no {name}, and at least {least} are required"
        if asked < exact_quantity(least):
            return f"asks for {_shown(name, asked)} of {name}, and at least {least} are required"
    for name, most in limit.ratio.items():
        used, asked = usage.get(f"limits.{name}"), usage.get(f"requests.{name}")
        if not used or not asked:
            return f"does not name {name} as limit and request, and a ratio of {most} is the most"
        if used / asked > exact_quantity(most):
            return (
                f"has {_shown(name, used)} of {name} as limit and {_shown(name, asked)} as request,"
                f" and a ratio of at most {most} is allowed"
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


def _shown(name: str, quantity: Fraction) -> str:
    return spell_cpu(quantity) if name == "cpu" else format_size(int(quantity))


def spell_cpu(cores: Fraction) -> str:
    """`1`, `500m`."""
    return str(cores) if cores.denominator == 1 else f"{float(cores * 1000):g}m"
