"""Writes Events on pods."""

from typing import Final

from onggi_operator.kube.client import ApiClient, Conflict
from onggi_operator.plan.events import TellPod

COMPONENT: Final = "onggi-operator"
NAME_CHARS_MAX: Final = 200
MESSAGE_CHARS_MAX: Final = 1024
"""The API's own limit."""


async def tell_pod(api: ApiClient, event: TellPod, *, now: str) -> None:
    """The name is made from the pod's uid, so telling twice is a conflict and no second Event.
    Raises ApiError, Unreachable."""
    name = f"{event.pod[:NAME_CHARS_MAX].rstrip('-.')}.{event.uid}"
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": event.namespace},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": event.namespace,
            "name": event.pod,
            "uid": event.uid,
        },
        "type": "Warning",
        "reason": event.reason,
        "message": event.message[:MESSAGE_CHARS_MAX],
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    try:
        await api.post(f"/api/v1/namespaces/{event.namespace}/events", body)
    except Conflict:
        return
