"""Changes what a pod's agent requests of its node."""

from onggi_core.quantity import format_quantity
from onggi_operator.kube.client import STRATEGIC_PATCH, ApiClient
from onggi_operator.names import AGENT_CONTAINER
from onggi_operator.plan.resizes import AskMemory


async def ask_memory(api: ApiClient, ask: AskMemory) -> None:
    """Raises NotFound when the pod is gone or the cluster cannot resize pods, Conflict when another
    has its name now (the uid is a precondition), ApiError when a quota or a limit range is in the
    way, Unreachable."""
    path = f"/api/v1/namespaces/{ask.namespace}/pods/{ask.pod}/resize"
    resources = {"requests": {"memory": format_quantity(ask.memory_bytes)}}
    agent = {"name": AGENT_CONTAINER, "resources": resources}
    body = {"metadata": {"uid": ask.uid}, "spec": {"initContainers": [agent]}}
    await api.patch(path, body, kind=STRATEGIC_PATCH)
