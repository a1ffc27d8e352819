"""Evicts pods that their controllers make again."""

from enum import Enum

from onggi_operator.kube.client import ApiClient, Busy, Conflict, NotFound
from onggi_operator.plan.restarts import EvictPod


class Evicted(Enum):
    """What became of it."""

    DONE = 1
    GONE = 2
    REFUSED = 3
    """A disruption budget has no room for it now."""


async def evict(api: ApiClient, pod: EvictPod) -> Evicted:
    """By the eviction API, which asks disruption budgets; the uid is a precondition, so that a pod
    of the same name that was made since is left alone. Raises ApiError, Unreachable."""
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.pod}/eviction"
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.pod, "namespace": pod.namespace},
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    }
    try:
        await api.post(path, body)
    except (NotFound, Conflict):
        return Evicted.GONE
    except Busy:
        return Evicted.REFUSED
    return Evicted.DONE
