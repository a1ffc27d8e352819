"""What a pod's agent requests of its node, what its kubelet took in, and what is left there."""

from __future__ import annotations

import re
from typing import Any, Final

from onggi_core.quantity import parse_quantity
from rig.kubectl import Kubectl, Object
from rig.workloads import sleeper

AGENT: Final = "onggi-agent"
PENDING: Final = "PodResizePending"
_REQUESTED: Final = re.compile(r"^ +memory +(\S+) \(", re.MULTILINE)


def asked_bytes(pod: Object) -> int:
    return _requests(_agent(pod["spec"]["initContainers"]))


def reserved_bytes(pod: Object) -> int:
    """What its kubelet has taken in: no other pod is given it."""
    status = _agent(pod["status"]["initContainerStatuses"])
    return parse_quantity(status["allocatedResources"]["memory"])


def running_bytes(pod: Object) -> int:
    """What its runtime was told too, a moment later."""
    return _requests(_agent(pod["status"]["initContainerStatuses"]))


def limit_bytes(pod: Object) -> tuple[int, int]:
    """As asked for, and as its kubelet says."""
    parts = (pod["spec"]["initContainers"], pod["status"]["initContainerStatuses"])
    asked, given = (_agent(part)["resources"]["limits"]["memory"] for part in parts)
    return parse_quantity(asked), parse_quantity(given)


def put_off(pod: Object) -> str:
    """The kubelet's word for why it did not take a request in; empty when it did."""
    for one in pod["status"].get("conditions", []):
        if one["type"] == PENDING and one["status"] == "True":
            return str(one["reason"])
    return ""


def allocatable_bytes(kubectl: Kubectl, node: str) -> int:
    return parse_quantity(kubectl.get("node", node)["status"]["allocatable"]["memory"])


def requested_bytes(kubectl: Kubectl, node: str) -> int:
    """Of all pods of a node, as `kubectl describe node` tells people."""
    (said,) = _REQUESTED.findall(kubectl("describe", "node", node))
    return parse_quantity(said)


def filler(kubectl: Kubectl, node: str, leave_bytes: int) -> Object:
    """A pod that asks for all of a node's memory but so much. It takes none of it."""
    size_bytes = allocatable_bytes(kubectl, node) - requested_bytes(kubectl, node) - leave_bytes
    requests = {"cpu": "1m", "memory": str(size_bytes)}
    made = sleeper("filler", {}, resources={"requests": requests})
    made["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    return made


def _agent(containers: list[dict[str, Any]]) -> dict[str, Any]:
    return next(one for one in containers if one["name"] == AGENT)


def _requests(container: dict[str, Any]) -> int:
    return parse_quantity(container["resources"]["requests"]["memory"])
