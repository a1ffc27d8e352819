"""Who is told what by an Event: what a person should know, once, and never one a round.

Pods that were skipped or missed are told on themselves, since an admission warning for a pod made
by a ReplicaSet reaches nobody. A pool is told when a condition turns to a reason that somebody may
have to act on, and when that is over.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter
from typing import Any, Final

from onggi_operator import names
from onggi_operator.observe.pods import PodView
from onggi_operator.observe.world import PoolSnapshot
from onggi_operator.plan.conditions import Reason, Status, Type

EVENTS_PER_ROUND_MAX: Final = 20
"""A thousand skipped pods are told in a few minutes instead of in a burst at the API server."""

TELL_AGAIN_S: Final = 600.0
"""A condition that comes and goes is told once in ten minutes."""

NAME_CHARS_MAX: Final = 200
_DIGEST_CHARS: Final = 16


class Weight(str, Enum):
    """As the API writes it: whether somebody may have to act."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class About:
    """The object that an Event stands on."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Tell:
    """An Event. `name` is the Event's own: made from what it tells, so that telling twice is a
    conflict and no second Event."""

    about: About
    name: str
    weight: Weight
    reason: str
    message: str


TROUBLE: Final[Mapping[Reason, Weight]] = {
    Reason.UNREADABLE: Weight.WARNING,
    Reason.PODS_SKIPPED: Weight.WARNING,
    Reason.PODS_MISSED: Weight.WARNING,
    Reason.AGENTS_SILENT: Weight.WARNING,
    Reason.DISK_UNAVAILABLE: Weight.WARNING,
    Reason.BELOW_MIN: Weight.WARNING,
    Reason.QUOTA_EXCEEDED: Weight.WARNING,
    Reason.FINGERPRINTS_DIFFER: Weight.NORMAL,
    Reason.ENGINES_NOT_ATTACHED: Weight.WARNING,
    Reason.NOTHING_FOUND: Weight.WARNING,
    Reason.AGENTS_DRAINING: Weight.NORMAL,
}
"""Reasons that are told when a condition turns to them, and whose end is told. Others come and go
with every roll-out."""

Told = Mapping[tuple[str, str], float]
"""When (monotonic) a pool, by its uid, was last told a reason."""


def plan_events(pods: Iterable[PodView], told: Set[str]) -> tuple[Tell, ...]:
    """For pods. `told` holds the uids that have been told already."""
    new = [
        pod
        for pod in pods
        if (pod.stamp is None or not pod.stamp.injected)
        and pod.uid not in told
        and not pod.deleting
    ]
    new.sort(key=attrgetter("created", "namespace", "name"))
    return tuple(_pod_event(pod) for pod in new[:EVENTS_PER_ROUND_MAX])


def _pod_event(pod: PodView) -> Tell:
    """Of one without an agent."""
    if pod.stamp is None:
        reason = "OnggiMissed"
        message = (
            f"This pod asks for pool {pod.pool}, and was made while Onggi's webhook was away; make"
            " it again to have it injected."
        )
    else:
        reason = "OnggiSkipped"
        message = f"Admitted without an agent ({pod.stamp.word}): {pod.stamp.message}"
    about = About("v1", "Pod", pod.namespace, pod.name, pod.uid)
    return Tell(about, _event_name(pod.name, pod.uid), Weight.WARNING, reason, message)


def plan_pool_events(
    pool: PoolSnapshot, wanted: Sequence[Mapping[str, Any]], told: Told, *, now_s: float
) -> tuple[Tell, ...]:
    """What turns with the conditions in `wanted` from what the pool's status says now."""
    before = {one["type"]: one for one in pool.status.get("conditions") or ()}
    return tuple(
        event
        for one in wanted
        if (event := _turn(pool, before.get(one["type"]), one)) is not None
        and now_s - told.get((pool.uid, event.reason), float("-inf")) >= TELL_AGAIN_S
    )


def _turn(
    pool: PoolSnapshot, before: Mapping[str, Any] | None, after: Mapping[str, Any]
) -> Tell | None:
    if before is not None and before["reason"] == after["reason"]:
        return None
    weight = TROUBLE.get(Reason(after["reason"]))
    if weight is None:
        if before is None or not _was_trouble(before) or not _is_well(after):
            return None
        weight = Weight.NORMAL
    namespace, name = pool.key
    about = About(f"{names.GROUP}/{names.VERSION}", names.KIND, namespace, name, pool.uid)
    when = f"{pool.uid} {after['type']} {after['reason']} {after['lastTransitionTime']}"
    digest = hashlib.sha256(when.encode()).hexdigest()[:_DIGEST_CHARS]
    return Tell(about, _event_name(name, digest), weight, after["reason"], after["message"])


def _was_trouble(before: Mapping[str, Any]) -> bool:
    return any(before["reason"] == reason.value for reason in TROUBLE)


def _is_well(after: Mapping[str, Any]) -> bool:
    good = Status.FALSE if after["type"] == Type.DRAINING.value else Status.TRUE
    return bool(after["status"] == good.value)


def _event_name(name: str, what: str) -> str:
    return f"{name[:NAME_CHARS_MAX].rstrip('-.')}.{what}"
