"""What a namespace's LimitRanges allow: a container that they refuse would take the pod with it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from onggi_core.quantity import exact_quantity, format_size
from onggi_operator.inject.outcome import Skipped, SkipReason


@dataclass(frozen=True, slots=True)
class ContainerLimits:
    """One LimitRange item of type Container. Quantities as they were written, by resource name."""

    source: str
    minimum: Mapping[str, str]
    maximum: Mapping[str, str]
    ratio: Mapping[str, str]


def read_limits(body: Mapping[str, Any]) -> tuple[ContainerLimits, ...]:
    """The items of one LimitRange object that bound a container."""
    return tuple(
        ContainerLimits(
            source=body["metadata"]["name"],
            minimum=item.get("min") or {},
            maximum=item.get("max") or {},
            ratio=item.get("maxLimitRequestRatio") or {},
        )
        for item in body["spec"]["limits"]
        if item.get("type") == "Container"
    )


def limit_conflict(
    containers: Sequence[Mapping[str, Any]], limits: Iterable[ContainerLimits]
) -> Skipped | None:
    """The first container that a LimitRange would refuse, with both numbers."""
    for limit in limits:
        for container in containers:
            if problem := _problem(container["resources"], limit):
                return Skipped(
                    SkipReason.LIMIT_RANGE,
                    f"container {container['name']} {problem} (LimitRange {limit.source})",
                )
    return None


def _problem(resources: Mapping[str, Any], limit: ContainerLimits) -> str | None:
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


def _ratio(limits: Mapping[str, str], requests: Mapping[str, str], name: str) -> Fraction:
    return exact_quantity(limits[name]) / exact_quantity(requests[name])


def _shown(name: str, quantity: str) -> str:
    return quantity if name == "cpu" else format_size(int(exact_quantity(quantity)))
