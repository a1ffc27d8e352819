"""Which pods that the webhook missed are made again, where the installation asks for it.

Only by eviction, which disruption budgets may refuse, and only where something will make the pod
again. And only once the webhook answers again: a pod that was made later must have its stamp, or
the new pod would be missed as well, and the one after it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from onggi_operator.kube.reflector import Key
from onggi_operator.observe.pods import PodView
from onggi_operator.pool import Pool

MADE_AGAIN: Final = ("ReplicaSet", "StatefulSet", "ReplicationController")
"""Controllers that make a pod again and count nothing against it. A Job's pod would lose its work;
a DaemonSet's would leave its node without."""

AGAIN_S: Final = 300.0
"""Between two tries of one pod, which a disruption budget refused, and between two pods of one
controller: the first has to become ready."""

EVICTIONS_PER_ROUND_MAX: Final = 1


@dataclass(frozen=True, slots=True)
class EvictPod:
    """One pod that its controller will make again, with an agent this time."""

    namespace: str
    pod: str
    uid: str
    owner: tuple[str, str, str]


def plan_restarts(
    pods: Sequence[PodView],
    pools: Mapping[Key, Pool],
    tried_s: Mapping[tuple[str, str, str], float],
    *,
    now_s: float,
) -> tuple[EvictPod, ...]:
    """Oldest first. `tried_s`: when (monotonic) a controller's pod was last evicted or refused."""
    stamped_last = max((pod.created for pod in pods if pod.stamp is not None), default="")
    wanted = (
        EvictPod(pod.namespace, pod.name, pod.uid, (pod.namespace, *pod.owner))
        for pod in sorted(pods, key=lambda pod: (pod.created, pod.namespace, pod.name))
        if pod.stamp is None
        and pod.owner is not None
        and pod.owner[0] in MADE_AGAIN
        and not pod.deleting
        and pod.created < stamped_last
        and _would_be_injected(pools.get((pod.namespace, pod.pool)))
    )
    due = (one for one in wanted if now_s - tried_s.get(one.owner, float("-inf")) >= AGAIN_S)
    return _first(due)


def _would_be_injected(pool: Pool | None) -> bool:
    return pool is not None and pool.injection.enabled


def _first(due: Iterable[EvictPod]) -> tuple[EvictPod, ...]:
    return tuple(one for one, _ in zip(due, range(EVICTIONS_PER_ROUND_MAX), strict=False))
