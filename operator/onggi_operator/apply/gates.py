"""Sets the condition that opens a pod's warm gate."""

from onggi_operator.kube.client import STRATEGIC_PATCH, ApiClient
from onggi_operator.names import WARM
from onggi_operator.plan.gates import OpenGate


async def open_gate(api: ApiClient, gate: OpenGate, *, now: str) -> None:
    """Raises NotFound when the pod is gone, Conflict when another has its name now (the uid is a
    precondition), ApiError, Unreachable."""
    condition = {
        "type": WARM,
        "status": "True",
        "reason": gate.reason.value,
        "message": gate.message,
        "lastTransitionTime": now,
    }
    path = f"/api/v1/namespaces/{gate.namespace}/pods/{gate.pod}/status"
    body = {"metadata": {"uid": gate.uid}, "status": {"conditions": [condition]}}
    await api.patch(path, body, kind=STRATEGIC_PATCH)
