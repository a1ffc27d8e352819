"""A pod as the controller sees it: a few words out of some 10 KiB."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onggi_operator import names
from onggi_operator.inject.outcome import Stamp, read_status
from onggi_operator.inject.request import annotations_of
from onggi_operator.observe.agent_request import AgentRequest, read_agent_request
from onggi_operator.observe.requests import memory_request


@dataclass(frozen=True, slots=True)
class AgentSizes:
    """What an injected agent was made for: the memory it starts with, what it may grow to, and its
    disk."""

    memory_bytes: int
    memory_max_bytes: int
    disk_bytes: int


@dataclass(frozen=True, slots=True)
class PodView:
    """A living pod that asks for a pool. `stamp` None: the webhook never saw it. `node` is empty
    until the pod has one; `sizes` None without an agent. `owner` is what made it and would make it
    again: kind and name, None for a bare pod. `request_bytes` is what it was made with, whatever
    its agent requests today: what is granted is not to shrink what is offered."""

    namespace: str
    name: str
    uid: str
    pool: str
    created: str
    stamp: Stamp | None
    running: bool
    deleting: bool
    node: str = ""
    request_bytes: int = 0
    sizes: AgentSizes | None = None
    owner: tuple[str, str] | None = None
    gated: bool = False
    """It waits for the condition `onggi.dev/warm`."""
    started: str = ""
    """When a kubelet took it."""
    request: AgentRequest | None = None
    """Of its agent; None where it cannot change."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A pod that asks nothing of Onggi: what it takes of its node."""

    node: str
    request_bytes: int


def project_pod(pod: Mapping[str, Any]) -> PodView | Neighbour | None:
    """None for pods that are no matter here: without a node, and asking for nothing."""
    annotations = annotations_of(pod)
    pool = annotations.get(names.POOL)
    node = str(pod["spec"].get("nodeName") or "")
    if not pool or annotations.get(names.INJECT) == "false":
        return Neighbour(node, memory_request(pod["spec"])) if node else None
    meta, status = pod["metadata"], pod.get("status") or {}
    sizes = agent_sizes(pod["spec"])
    request = read_agent_request(pod, sizes.memory_bytes, sizes.memory_max_bytes) if sizes else None
    made_with = {names.AGENT_CONTAINER: request.made_bytes} if request else {}
    return PodView(
        namespace=meta["namespace"],
        name=meta["name"],
        uid=meta["uid"],
        pool=pool,
        created=meta["creationTimestamp"],
        stamp=read_status(annotations.get(names.STATUS, "")),
        running=status.get("phase") == "Running",
        deleting="deletionTimestamp" in meta,
        node=node,
        request_bytes=memory_request(pod["spec"], made_with) if node else 0,
        sizes=sizes,
        owner=_owner(meta),
        gated=_is_gated(pod["spec"], status),
        started=str(status.get("startTime") or ""),
        request=request,
    )


def agent_sizes(spec: Mapping[str, Any]) -> AgentSizes | None:
    """From the agent's own environment: what it goes by, whatever the pool says today. None
    without an agent."""
    for container in spec.get("initContainers") or ():
        if container.get("name") == names.AGENT_CONTAINER:
            env = {entry["name"]: entry.get("value") for entry in container.get("env") or ()}
            memory = _number(env.get("ONGGI_AGENT_MEMORY"))
            most = _number(env.get("ONGGI_AGENT_MEMORY_MAX"))
            return AgentSizes(memory, max(memory, most), _number(env.get("ONGGI_AGENT_DISK")))
    return None


def _is_gated(spec: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    gates = (gate.get("conditionType") for gate in spec.get("readinessGates") or ())
    return names.WARM in gates and not any(
        one.get("type") == names.WARM and one.get("status") == "True"
        for one in status.get("conditions") or ()
    )


def _number(said: str | None) -> int:
    """Onggi writes plain bytes; anything else was put there by somebody else."""
    return int(said) if said and said.isdecimal() and len(said) < 20 else 0


def _owner(meta: Mapping[str, Any]) -> tuple[str, str] | None:
    for one in meta.get("ownerReferences") or ():
        if one.get("controller"):
            return str(one["kind"]), str(one["name"])
    return None
