"""What a namespace's ResourceQuotas have left: a pod that fits without an agent must not be refused
because of it.

Read from the quota's status, which follows the pods by a moment. Of pods made at the same time a
few may still be refused by the API server; their controller asks again, and by then this knows.
"""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Any, Final

from onggi_core.quantity import QuantityError, exact_quantity, format_size
from onggi_operator.inject.outcome import Skipped, SkipReason
from onggi_operator.inject.usage import Usage, containers_of, names_of, usage_of

_CLAIMS: Final = "persistentvolumeclaims"

_COMPUTE: Final = ("cpu", "memory")
"""What decides whether a pod is BestEffort."""


class Operator(str, Enum):
    """How a scope is to be taken."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


@dataclass(frozen=True, slots=True)
class Scope:
    """Which pods a quota counts: those for which all of its scopes hold."""

    name: str
    operator: Operator = Operator.EXISTS
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Quota:
    """One ResourceQuota. `hard` and `used` by the names that the API has for them."""

    source: str
    hard: Mapping[str, Fraction]
    used: Mapping[str, Fraction]
    scopes: tuple[Scope, ...] = ()


def read_quota(body: Mapping[str, Any]) -> Quota | None:
    """None for one that is not counted yet (the API server refuses every pod until it is), or that
    chooses its pods in a way that came after this was written."""
    spec, status = body.get("spec") or {}, body.get("status") or {}
    if "hard" not in status:
        return None
    selected = (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    scopes = [Scope(name) for name in spec.get("scopes") or ()]
    for one in selected:
        if one["operator"] not in Operator._value2member_map_:
            return None
        values = tuple(one.get("values") or ())
        scopes.append(Scope(one["scopeName"], Operator(one["operator"]), values))
    return Quota(
        source=body["metadata"]["name"],
        hard=_read(status["hard"]),
        used=_read(status.get("used") or {}),
        scopes=tuple(scopes),
    )


def _read(quantities: Mapping[str, Any]) -> dict[str, Fraction]:
    """What cannot be read (`1e400`) bounds nothing that a pod could reach."""
    found = {}
    for name, quantity in quantities.items():
        with contextlib.suppress(QuantityError):
            found[name] = exact_quantity(str(quantity))
    return found


def quota_conflict(
    spec: Mapping[str, Any],
    added: Sequence[Mapping[str, Any]],
    quotas: Iterable[Quota],
    claimed_bytes: int,
) -> Skipped | None:
    """The first quota that has room for the pod as it is and not with what is added; the message
    has both numbers."""
    grown = {**spec, "initContainers": [*added, *(spec.get("initContainers") or ())]}
    for quota in quotas:
        if not _counts(quota, grown):
            continue
        plain = spec if _counts(quota, spec) else None
        if problem := _problem(quota, plain, grown, claimed_bytes):
            return Skipped(SkipReason.QUOTA, f"{problem} (ResourceQuota {quota.source})")
    return None


def _counts(quota: Quota, spec: Mapping[str, Any]) -> bool:
    return all(_holds(scope, spec) for scope in quota.scopes)


def _holds(scope: Scope, spec: Mapping[str, Any]) -> bool:
    match scope.name:
        case "BestEffort":
            return is_best_effort(spec)
        case "NotBestEffort":
            return not is_best_effort(spec)
        case "Terminating":
            return spec.get("activeDeadlineSeconds") is not None
        case "NotTerminating":
            return spec.get("activeDeadlineSeconds") is None
        case "PriorityClass":
            return _among(scope, spec.get("priorityClassName"))
        case _:  # of volumes and affinity, which an agent does not bear on
            return False


def _among(scope: Scope, name: str | None) -> bool:
    match scope.operator:
        case Operator.IN:
            return name in scope.values
        case Operator.NOT_IN:
            return name not in scope.values
        case Operator.EXISTS:
            return bool(name)
        case Operator.DOES_NOT_EXIST:
            return not name


def _problem(
    quota: Quota, plain: Mapping[str, Any] | None, grown: Mapping[str, Any], claimed_bytes: int
) -> str | None:
    before: Usage = usage_of(plain) if plain is not None else {}
    after = usage_of(grown)
    if claimed_bytes:
        after |= {"requests.storage": Fraction(claimed_bytes), _CLAIMS: Fraction(1)}
    if plain is None and (missing := _unnamed(quota, grown)):
        return missing
    for name, hard in quota.hard.items():
        left = hard - quota.used.get(name, Fraction(0))
        needed, alone = after.get(name, Fraction(0)), before.get(name, Fraction(0))
        if needed > alone and needed > left >= alone:
            return (
                f"the pod with its agent needs {_shown(name, needed)} of {name}, and"
                f" {_shown(name, left)} are left"
            )
    return None


def _unnamed(quota: Quota, spec: Mapping[str, Any]) -> str | None:
    """A quota on a resource wants it named by every container of the pods that it counts."""
    for container in containers_of(spec):
        named = names_of(container)
        for name in sorted(quota.hard.keys()):
            if name.removeprefix("requests.").removeprefix("limits.") in _COMPUTE and (
                name not in named
            ):
                return (
                    f"with an agent the pod is no longer BestEffort, and container"
                    f" {container.get('name')} would have to set {name}"
                )
    return None


def is_best_effort(spec: Mapping[str, Any]) -> bool:
    """No container asks for cpu or memory."""
    return not any(_named_of(container, _COMPUTE) for container in containers_of(spec))


def _named_of(container: Mapping[str, Any], resources: Sequence[str]) -> bool:
    found = container.get("resources") or {}
    return any(
        resource in (found.get(key) or {})
        for key in ("requests", "limits")
        for resource in resources
    )


def _shown(name: str, quantity: Fraction) -> str:
    if name.rpartition(".")[2] == "cpu" or name == _CLAIMS:
        return f"{float(quantity):g}"
    return format_size(max(int(quantity), 0))
