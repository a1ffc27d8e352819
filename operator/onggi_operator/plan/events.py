"""Which pods get an Event: those that were skipped or missed. An admission warning for a pod made
by a ReplicaSet reaches nobody, and people look at the pod."""

from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import Final

from onggi_operator.observe.pods import PodView

EVENTS_PER_ROUND_MAX: Final = 20
"""A thousand skipped pods are told in a few minutes instead of in a burst at the API server."""


@dataclass(frozen=True, slots=True)
class TellPod:
    """An Event on a pod, at most one for each of its lives."""

    namespace: str
    pod: str
    uid: str
    reason: str
    message: str


def plan_events(pods: Iterable[PodView], told: Set[str]) -> tuple[TellPod, ...]:
    """`told` holds the uids that have been told already."""
    new = sorted(
        (pod for pod in pods if pod.uid not in told and not pod.deleting),
        key=lambda pod: (pod.created, pod.namespace, pod.name),
    )
    events = (event for pod in new if (event := _event(pod)) is not None)
    return tuple(event for event, _ in zip(events, range(EVENTS_PER_ROUND_MAX), strict=False))


def _event(pod: PodView) -> TellPod | None:
    if pod.stamp is None:
        return TellPod(
            pod.namespace,
            pod.name,
            pod.uid,
            "OnggiMissed",
            f"This pod asks for pool {pod.pool}, and was made while Onggi's webhook was away; make"
            " it again to have it injected.",
        )
    if pod.stamp.injected:
        return None
    return TellPod(
        pod.namespace,
        pod.name,
        pod.uid,
        "OnggiSkipped",
        f"Admitted without an agent ({pod.stamp.word}): {pod.stamp.message}",
    )
