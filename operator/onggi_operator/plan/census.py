"""A pool's pods, sorted by what became of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from onggi_core.heartbeat import Heartbeat
from onggi_operator.observe.pods import PodView
from onggi_operator.observe.world import PoolSnapshot

NAMED_MAX: Final = 3
"""Pods named in a message; the lists in the status hold more."""


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


def named(pods: Sequence[PodView]) -> str:
    """The first few and how many more, for a sentence."""
    names = [pod.name for pod in pods[:NAMED_MAX]]
    more = len(pods) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
