"""Writes Events."""

from typing import Final

from onggi_operator.kube.client import ApiClient, Conflict
from onggi_operator.plan.events import Tell

COMPONENT: Final = "onggi-operator"
MESSAGE_CHARS_MAX: Final = 1024
"""The API's own limit."""


async def tell(api: ApiClient, event: Tell, *, now: str) -> None:
    """One that has been told already is left as it is. Raises ApiError, Unreachable."""
    about = event.about
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": event.name, "namespace": about.namespace},
        "involvedObject": {
            "apiVersion": about.api_version,
            "kind": about.kind,
            "namespace": about.namespace,
            "name": about.name,
            "uid": about.uid,
        },
        "type": event.weight.value,
        "reason": event.reason,
        "message": event.message[:MESSAGE_CHARS_MAX],
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    try:
        await api.post(f"/api/v1/namespaces/{about.namespace}/events", body)
    except Conflict:
        return
