"""What an agent's container asks of its node's memory: what it was made with, what it asks now, and
what its kubelet has taken in.

The limit never changes. It is what the arena may grow to (`ONGGI_AGENT_MEMORY_MAX`) and an
overhead, so the request that goes with an arena of any size is that size and the same overhead.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from onggi_core.quantity import exact_quantity
from onggi_operator import names

BELOW_LIMIT_BYTES: Final = 1 << 20
"""How far a request that was changed stays below its limit: with the two equal the pod might become
Guaranteed, and the API server forbids what would change a pod's class."""


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """`made_bytes` is what it began with. `given_bytes` is what the kubelet reserved: the same,
    unless it says otherwise. `pending` is its own word for why it did not take in what is asked;
    empty when it did, or has not looked yet."""

    made_bytes: int
    overhead_bytes: int
    limit_bytes: int
    asked_bytes: int
    given_bytes: int
    pending: str

    def goes_with(self, arena_bytes: int) -> int:
        """The request for an arena of that size."""
        return min(arena_bytes + self.overhead_bytes, self.limit_bytes - BELOW_LIMIT_BYTES)

    def backs(self) -> int:
        """The largest arena that is requested, and that the kubelet knows of."""
        known_bytes = min(self.asked_bytes, self.given_bytes)
        if known_bytes >= self.limit_bytes - BELOW_LIMIT_BYTES:
            return self.limit_bytes - self.overhead_bytes
        return max(0, known_bytes - self.overhead_bytes)


def read_agent_request(
    pod: Mapping[str, Any], memory_bytes: int, memory_max_bytes: int
) -> AgentRequest | None:
    """None where the request cannot follow: a pod whose class is Guaranteed asks for its limit from
    the beginning, one with resources of its own (for all its containers) cannot be resized, and
    without a limit it is not known what belongs to the arena."""
    resources = (_agent(pod["spec"].get("initContainers")) or {}).get("resources") or {}
    limit = (resources.get("limits") or {}).get("memory")
    asked = (resources.get("requests") or {}).get("memory")
    whole = pod["spec"].get("resources")
    if not limit or not asked or whole or memory_bytes >= memory_max_bytes:
        return None
    limit_bytes = int(exact_quantity(str(limit)))
    overhead_bytes = limit_bytes - memory_max_bytes
    if overhead_bytes < 0:
        return None
    asked_bytes = int(exact_quantity(str(asked)))
    status = pod.get("status") or {}
    said = _given(_agent(status.get("initContainerStatuses")) or {})
    made_bytes = memory_bytes + overhead_bytes
    given_bytes = made_bytes if said is None else said
    return AgentRequest(
        made_bytes=made_bytes,
        overhead_bytes=overhead_bytes,
        limit_bytes=limit_bytes,
        asked_bytes=asked_bytes,
        given_bytes=given_bytes,
        pending=_pending(pod) if given_bytes != asked_bytes else "",
    )


def _agent(containers: Any) -> Mapping[str, Any] | None:
    for one in containers or ():
        if one.get("name") == names.AGENT_CONTAINER:
            found: Mapping[str, Any] = one
            return found
    return None


def _given(status: Mapping[str, Any]) -> int | None:
    resources = status.get("resources") or {}
    allocated = status.get("allocatedResources") or resources.get("requests") or {}
    return int(exact_quantity(str(allocated["memory"]))) if "memory" in allocated else None


def _pending(pod: Mapping[str, Any]) -> str:
    """A word on what was asked before the present request is none on that. Kubelets before 1.34 do
    not say what they speak of."""
    generation = int(pod["metadata"].get("generation") or 0)
    for one in (pod.get("status") or {}).get("conditions") or ():
        if one.get("type") == "PodResizePending" and one.get("status") == "True":
            of = int(one.get("observedGeneration") or generation)
            return str(one.get("reason") or "") if of >= generation else ""
    return ""
