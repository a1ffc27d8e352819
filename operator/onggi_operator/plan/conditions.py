"""A pool's conditions: positive, always all present, each with a reason from one list."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from onggi_core.heartbeat import Heartbeat
from onggi_operator.observe.pods import PodView
from onggi_operator.observe.world import PoolSnapshot
from onggi_operator.pool import PoolUnreadable

NAMED_MAX: Final = 3
"""Pods named in a message; the lists in the status hold more."""


class Type(str, Enum):
    """What can be true of a pool."""

    ACCEPTED = "Accepted"
    """The operator understands the spec."""
    INJECTED = "Injected"
    """Every pod that asks for the pool was given an agent."""
    READY = "Ready"
    """Every agent that was given reports."""
    UNIFORM = "Uniform"
    """All pods have the same fingerprint, so that they could share blocks."""


class Reason(str, Enum):
    """Why a condition is as it is."""

    PENDING = "Pending"
    """(any, Unknown) No operator has looked at this pool yet."""
    ACCEPTED = "Accepted"
    """(Accepted, True) The spec is understood."""
    UNREADABLE = "Unreadable"
    """(Accepted, False) The spec holds something that this version cannot read."""
    ALL_INJECTED = "AllInjected"
    """(Injected, True) Every pod that asks for the pool has an agent."""
    INJECTION_OFF = "InjectionOff"
    """(Injected, False) `spec.injection.enabled` is `false`."""
    PODS_SKIPPED = "PodsSkipped"
    """(Injected, False) Some pods were admitted without an agent; `status.skipped` says why."""
    PODS_MISSED = "PodsMissed"
    """(Injected, False) Some pods were made while the webhook was away; `status.missed` names
    them."""
    NO_PODS = "NoPods"
    """(Injected, Ready, Unknown) No pod asks for this pool."""
    ALL_READY = "AllReady"
    """(Ready, True) Every agent reports."""
    AGENTS_STARTING = "AgentsStarting"
    """(Ready, False) Some injected pods are not running yet."""
    AGENTS_SILENT = "AgentsSilent"
    """(Ready, False) Some injected pods run, but their agents have not reported for 30 seconds."""
    NOTHING_INJECTED = "NothingInjected"
    """(Ready, Unknown) Pods ask for this pool, and none of them has an agent."""
    ONE_FINGERPRINT = "OneFingerprint"
    """(Uniform, True) All engines that are attached compute the same bytes for the same tokens."""
    FINGERPRINTS_DIFFER = "FingerprintsDiffer"
    """(Uniform, False) Engines differ in model, version or layout; each finds only what its own
    kind stored. Usual during a roll-out."""
    NO_FINGERPRINTS = "NoFingerprints"
    """(Uniform, Unknown) No engine is attached to an agent yet."""


class Status(str, Enum):
    """As the API writes them."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """A condition without its times."""

    status: Status
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Census:
    """The pool's pods, sorted by what became of them; each tuple oldest first."""

    matched: tuple[PodView, ...]
    injected: tuple[PodView, ...]
    ready: tuple[PodView, ...]
    skipped: tuple[PodView, ...]
    missed: tuple[PodView, ...]


def census(world: PoolSnapshot, *, now_s: float) -> Census:
    """A pod is ready when it has an agent that reported lately."""
    injected = tuple(pod for pod in world.pods if pod.stamp and pod.stamp.injected)
    return Census(
        matched=world.pods,
        injected=injected,
        ready=tuple(pod for pod in injected if _is_fresh(world, pod, now_s)),
        skipped=tuple(pod for pod in world.pods if pod.stamp and not pod.stamp.injected),
        missed=tuple(pod for pod in world.pods if pod.stamp is None),
    )


def _is_fresh(world: PoolSnapshot, pod: PodView, now_s: float) -> bool:
    heard = world.heard.get(pod.uid)
    if heard is None:
        return pod.uid in world.agents and now_s - world.started_s <= world.fresh_s
    return now_s - heard.at_s <= world.fresh_s


def beats_of(world: PoolSnapshot, pods: Census) -> list[Heartbeat]:
    """The last reports of the ready pods that have reported to this operator."""
    return [world.heard[pod.uid].beat for pod in pods.ready if pod.uid in world.heard]


def findings(world: PoolSnapshot, pods: Census) -> Mapping[Type, Finding]:
    """All conditions, in the order in which a reader wants to know."""
    checks: Mapping[Type, Callable[[PoolSnapshot, Census], Finding]] = {
        Type.ACCEPTED: _accepted,
        Type.INJECTED: _injected,
        Type.READY: _ready,
        Type.UNIFORM: _uniform,
    }
    return {kind: check(world, pods) for kind, check in checks.items()}


def _accepted(world: PoolSnapshot, _: Census) -> Finding:
    if isinstance(world.pool, PoolUnreadable):
        return Finding(Status.FALSE, Reason.UNREADABLE, f"{world.pool}")
    return Finding(Status.TRUE, Reason.ACCEPTED, "The spec is understood.")


def _injected(world: PoolSnapshot, pods: Census) -> Finding:
    if not isinstance(world.pool, PoolUnreadable) and not world.pool.injection.enabled:
        return Finding(Status.FALSE, Reason.INJECTION_OFF, "spec.injection.enabled is false.")
    if not pods.matched:
        return Finding(Status.UNKNOWN, Reason.NO_PODS, "No pod asks for this pool.")
    told = []
    if pods.skipped:
        told.append(f"skipped, with a reason on each: {_named(pods.skipped)}")
    if pods.missed:
        told.append(f"made while the webhook was away: {_named(pods.missed)}")
    if told:
        reason = Reason.PODS_SKIPPED if pods.skipped else Reason.PODS_MISSED
        count = f"{len(pods.injected)} of {len(pods.matched)} pods have an agent"
        return Finding(Status.FALSE, reason, f"{count}; {'; '.join(told)}.")
    return Finding(
        Status.TRUE, Reason.ALL_INJECTED, "Every pod that asks for this pool has an agent."
    )


def _ready(_: PoolSnapshot, pods: Census) -> Finding:
    if not pods.matched:
        return Finding(Status.UNKNOWN, Reason.NO_PODS, "No pod asks for this pool.")
    if not pods.injected:
        return Finding(Status.UNKNOWN, Reason.NOTHING_INJECTED, "No pod of this pool has an agent.")
    reporting = {pod.uid for pod in pods.ready}
    silent = [pod for pod in pods.injected if pod.uid not in reporting]
    if not silent:
        return Finding(Status.TRUE, Reason.ALL_READY, "Every agent reports.")
    count = f"{len(pods.ready)} of {len(pods.injected)} agents report"
    mute = [pod for pod in silent if pod.running]
    if mute:
        return Finding(
            Status.FALSE, Reason.AGENTS_SILENT, f"{count}; running but silent: {_named(mute)}."
        )
    return Finding(
        Status.FALSE, Reason.AGENTS_STARTING, f"{count}; not running yet: {_named(silent)}."
    )


def _uniform(world: PoolSnapshot, pods: Census) -> Finding:
    beats = beats_of(world, pods)
    kinds = {frozenset(beat.fingerprints) for beat in beats if beat.fingerprints}
    if not kinds:
        return Finding(
            Status.UNKNOWN, Reason.NO_FINGERPRINTS, "No engine is attached to an agent yet."
        )
    if len(kinds) == 1:
        return Finding(Status.TRUE, Reason.ONE_FINGERPRINT, "All attached engines are of one kind.")
    return Finding(
        Status.FALSE,
        Reason.FINGERPRINTS_DIFFER,
        f"Engines of {len(kinds)} kinds are attached (model, version or layout differ); each finds"
        " only what its own kind stored.",
    )


def _named(pods: Sequence[PodView]) -> str:
    names = [pod.name for pod in pods[:NAMED_MAX]]
    more = len(pods) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


def written(
    found: Mapping[Type, Finding], previous: Sequence[Mapping[str, Any]], generation: int, now: str
) -> list[dict[str, Any]]:
    """The conditions as the status has them. A transition time moves only when the status does."""
    before = {one["type"]: one for one in previous}
    conditions = []
    for kind, finding in found.items():
        status = finding.status.value
        old = before.get(kind.value)
        same = old is not None and old["status"] == status and old["reason"] != Reason.PENDING.value
        conditions.append(
            {
                "type": kind.value,
                "status": status,
                "reason": finding.reason.value,
                "message": finding.message,
                "observedGeneration": generation,
                "lastTransitionTime": old["lastTransitionTime"] if old and same else now,
            }
        )
    return conditions
