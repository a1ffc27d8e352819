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
    """The pool's pods, sorted by what became of them; each tuple oldest first. `reporting` are the
    ready ones that have reported to this operator, and `beats` their last reports."""

    matched: tuple[PodView, ...]
    injected: tuple[PodView, ...]
    ready: tuple[PodView, ...]
    skipped: tuple[PodView, ...]
    missed: tuple[PodView, ...]
    reporting: tuple[PodView, ...]
    beats: tuple[Heartbeat, ...]


def census(world: PoolSnapshot, *, now_s: float) -> Census:
    """A pod is ready when it has an agent that reported lately. An operator that began a moment ago
    believes the last one of those that it has not heard yet."""
    begins = now_s - world.started_s <= world.fresh_s
    injected, ready, skipped, missed = [], [], [], []
    reporting: list[PodView] = []
    beats: list[Heartbeat] = []
    for pod in world.pods:
        if pod.stamp is None:
            missed.append(pod)
            continue
        if not pod.stamp.injected:
            skipped.append(pod)
            continue
        injected.append(pod)
        heard = world.heard.get(pod.uid)
        if heard is None:
            if begins and pod.uid in world.agents:
                ready.append(pod)
        elif now_s - heard.at_s <= world.fresh_s:
            ready.append(pod)
            reporting.append(pod)
            beats.append(heard.beat)
    return Census(
        matched=world.pods,
        injected=tuple(injected),
        ready=tuple(ready),
        skipped=tuple(skipped),
        missed=tuple(missed),
        reporting=tuple(reporting),
        beats=tuple(beats),
    )


def named(pods: Sequence[PodView]) -> str:
    """The first few and how many more, for a sentence."""
    names = [pod.name for pod in pods[:NAMED_MAX]]
    more = len(pods) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
