"""What is found of a pool: one small check a condition, each from one snapshot.

No message holds a number that moves by itself, or every report would be a write to the API.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

from onggi_core.heartbeat import Heartbeat, Mode
from onggi_operator.observe.world import PoolSnapshot
from onggi_operator.plan.allocation import Allocation
from onggi_operator.plan.census import Census, named
from onggi_operator.plan.conditions import Finding, Reason, Status, Type
from onggi_operator.pool import Pool, PoolUnreadable

ATTACH_S: Final = 900
"""Engines take minutes to load a model before their first request; one that never spoke to its
agent in a quarter of an hour does not have the client."""

NOTHING_FOUND_BLOCKS: Final = 10_000
"""Asked for without one hit, by the agents that live: some hundred long prompts."""

DISK_UNAVAILABLE: Final = "disk_unavailable"
"""An agent's error kind: it serves without the disk that it was given."""


def findings(
    world: PoolSnapshot, pods: Census, allocated: Allocation, *, now: str
) -> Mapping[Type, Finding]:
    """All conditions, in the order in which a reader wants to know. `now` as the API writes it."""
    checks: Mapping[Type, Callable[[PoolSnapshot, Census], Finding]] = {
        Type.ACCEPTED: _accepted,
        Type.INJECTED: _injected,
        Type.READY: _ready,
        Type.CAPACITY_ALLOCATED: lambda world, pods: _capacity_allocated(world, pods, allocated),
        Type.IDENTITY_CONSISTENT: _identity_consistent,
        Type.EFFECTIVE: lambda world, pods: _effective(world, pods, now),
        Type.DRAINING: _draining,
    }
    return {kind: check(world, pods) for kind, check in checks.items()}


def _accepted(world: PoolSnapshot, _: Census) -> Finding:
    if isinstance(world.pool, PoolUnreadable):
        return Finding(Status.FALSE, Reason.UNREADABLE, f"{world.pool}")
    return Finding(Status.TRUE, Reason.ACCEPTED, "The spec is understood.")


def _injected(world: PoolSnapshot, pods: Census) -> Finding:
    if isinstance(world.pool, Pool) and not world.pool.injection.enabled:
        return Finding(Status.FALSE, Reason.INJECTION_OFF, "spec.injection.enabled is false.")
    if not pods.matched:
        return Finding(Status.UNKNOWN, Reason.NO_PODS, "No pod asks for this pool.")
    told = []
    if pods.skipped:
        told.append(f"skipped, with a reason on each: {named(pods.skipped)}")
    if pods.missed:
        told.append(f"made while the webhook was away: {named(pods.missed)}")
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
            Status.FALSE, Reason.AGENTS_SILENT, f"{count}; running but silent: {named(mute)}."
        )
    return Finding(
        Status.FALSE, Reason.AGENTS_STARTING, f"{count}; not running yet: {named(silent)}."
    )


NO_REPORTS: Final = Finding(Status.UNKNOWN, Reason.NO_REPORTS, "No agent has reported yet.")


def _capacity_allocated(world: PoolSnapshot, pods: Census, allocated: Allocation) -> Finding:
    """An agent that was told to grow beyond what its pod requested is not short of anything while
    it does, so `min` is the measure."""
    quota = allocated.quota
    if quota is not None and quota.exceeded:
        return Finding(
            Status.FALSE,
            Reason.QUOTA_EXCEEDED,
            "Pods were promised more than spec.quota gives, so none has more than its min; fewer"
            " pods or a higher quota help.",
        )
    if not pods.beats or not isinstance(world.pool, Pool):
        return NO_REPORTS
    without_disk = _pods_whose(pods, lambda beat: DISK_UNAVAILABLE in beat.errors)
    if without_disk:
        return Finding(
            Status.FALSE,
            Reason.DISK_UNAVAILABLE,
            f"Agents that cannot use their disk, and say why in their logs: {without_disk}.",
        )
    if lacking := [pod for pod in pods.ready if pod.uid in allocated.below_min]:
        return Finding(
            Status.FALSE,
            Reason.BELOW_MIN,
            "Agents that did not get what their pods requested, and say why in their logs:"
            f" {named(lacking)}.",
        )
    min_bytes = world.pool.memory.min_bytes
    growing = _pods_whose(
        pods,
        lambda beat: beat.arena_ready_bytes < min(min_bytes, beat.capacity.host_bytes),
    )
    if growing:
        return Finding(
            Status.FALSE,
            Reason.MEMORY_GROWING,
            f"Agents that do not have the memory yet that they were given: {growing}.",
        )
    if quota is not None and quota.reached:
        return Finding(
            Status.TRUE,
            Reason.QUOTA_REACHED,
            "Every agent that reports has what it was given, and spec.quota gives no more.",
        )
    if allocated.node_full:
        return Finding(
            Status.TRUE,
            Reason.NODE_FULL,
            "Every agent that reports has what it was given, and some of their nodes give no more.",
        )
    return Finding(Status.TRUE, Reason.ALLOCATED, "Every agent that reports has what it was given.")


def _identity_consistent(_: PoolSnapshot, pods: Census) -> Finding:
    said = {beat.fingerprints for beat in pods.beats}  # of most pods the same, in the same order
    kinds = {frozenset(fingerprints) for fingerprints in said if fingerprints}
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


def _effective(world: PoolSnapshot, pods: Census, now: str) -> Finding:
    """Of agents that live, so that what worked last month does not hide what fails today."""
    beats = pods.beats
    if not beats or not isinstance(world.pool, Pool):
        return NO_REPORTS
    if world.pool.mode is Mode.PAUSED:
        return Finding(Status.UNKNOWN, Reason.PAUSED, "spec.mode is Paused: lookups miss.")
    if world.pool.mode is Mode.OBSERVE:
        return Finding(
            Status.UNKNOWN,
            Reason.OBSERVING,
            "spec.mode is Observe: nothing is stored; the agents' figures tell what would be hit.",
        )
    if unattached := _pods_whose(pods, _never_attached, older_than_s=ATTACH_S, now=now):
        return Finding(
            Status.FALSE,
            Reason.ENGINES_NOT_ATTACHED,
            f"Agents that no engine has spoken to since they started: {unattached}."
            " `onggi doctor POD` says why.",
        )
    if any(beat.hits.host_blocks or beat.hits.disk_blocks for beat in beats):
        return Finding(
            Status.TRUE, Reason.BLOCKS_FOUND, "Engines find blocks that they need not compute."
        )
    if sum(beat.lookups.blocks for beat in beats) >= NOTHING_FOUND_BLOCKS:
        return Finding(
            Status.FALSE,
            Reason.NOTHING_FOUND,
            f"More than {NOTHING_FOUND_BLOCKS} blocks were asked for and none was held: prompts"
            " have no beginnings in common, or memory is too small to keep them for long enough.",
        )
    return Finding(Status.UNKNOWN, Reason.TOO_EARLY, "Engines have not asked for enough yet.")


def _never_attached(beat: Heartbeat) -> bool:
    return beat.clients == 0 and beat.lookups.requests == 0


def _draining(_: PoolSnapshot, pods: Census) -> Finding:
    if not pods.beats:
        return NO_REPORTS
    if leaving := _pods_whose(pods, lambda beat: beat.draining):
        return Finding(
            Status.TRUE,
            Reason.AGENTS_DRAINING,
            f"Agents that write down what they hold before their pods leave: {leaving}.",
        )
    return Finding(Status.FALSE, Reason.NOTHING_DRAINS, "No agent is on its way out.")


def _pods_whose(
    pods: Census, holds: Callable[[Heartbeat], bool], *, older_than_s: float = 0, now: str = ""
) -> str:
    """The pods whose last report is such, as a text; empty when there is none."""
    found = [
        pod
        for pod, beat in zip(pods.reporting, pods.beats, strict=True)
        if holds(beat) and (not older_than_s or _seconds(pod.created, now) > older_than_s)
    ]
    return named(found) if found else ""


def _seconds(since: str, until: str) -> float:
    return (datetime.fromisoformat(until) - datetime.fromisoformat(since)).total_seconds()
