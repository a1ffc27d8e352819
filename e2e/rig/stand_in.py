"""Pods whose engine is a stand-in: the real client in a process that starts in a second."""

from __future__ import annotations

import http.client
import json
import urllib.request
from typing import Any, Final

from waits import ANSWER_S, POD_RUNNING_S, STORED_S

from rig.engine import PORT
from rig.figures import agent_figures
from rig.kubectl import Kubectl, Object, until
from rig.reach import address
from rig.workloads import ROOT, sleeper

SCRIPT: Final = "stand-in"
PROGRAM: Final = ROOT / "e2e/engine/stand_in.py"
CAPACITY: Final = 'onggi_capacity_bytes{tier="host"}'
MIB: Final = 1024**2


def program() -> Object:
    """The ConfigMap that stand-ins are run from."""
    text = PROGRAM.read_text()
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": SCRIPT},
        "data": {PROGRAM.name: text},
    }


def template(name: str, pool: str, node: str, *argv: str) -> dict[str, Any]:
    """A pod template; fit for `restricted`."""
    mount = {"name": SCRIPT, "mountPath": "/stand-in", "readOnly": True}
    pod = sleeper(
        name,
        {"onggi.dev/pool": pool},
        command=["python3", f"/stand-in/{PROGRAM.name}", *argv],
        volumeMounts=[mount],
    )
    pod["metadata"].pop("name")
    pod["spec"]["volumes"] = [{"name": SCRIPT, "configMap": {"name": SCRIPT}}]
    pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    return {"metadata": pod["metadata"], "spec": pod["spec"]}


def deployment(name: str, pool: str, node: str) -> Object:
    made = template(name, pool, node, "serve")
    (engine,) = made["spec"]["containers"]
    engine["readinessProbe"] = {"httpGet": {"path": "/health", "port": PORT}, "periodSeconds": 1}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": {"app": name}},
            "template": made,
        },
    }


def pool_object(name: str, memory_min: str, memory_max: str, **spec: Any) -> Object:
    """A pool of memory alone, whose agents are granted at once what they may have."""
    return {
        "apiVersion": "onggi.dev/v1alpha1",
        "kind": "KVCachePool",
        "metadata": {"name": name},
        "spec": {
            "tiers": [{"type": "Memory", "memory": {"min": memory_min, "max": memory_max}}],
            "lifecycle": {"rampUp": "0s"},
            **spec,
        },
    }


class StandIn:
    """The one pod of a stand-in's Deployment."""

    def __init__(self, kubectl: Kubectl, name: str) -> None:
        self.kubectl = kubectl
        self.name = name

    def pod(self) -> Object:
        """The living pod. AssertionError if there is not exactly one."""
        pods = self.kubectl.items("pods", f"app={self.name}")
        alive = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        assert len(alive) == 1, [pod["metadata"]["name"] for pod in pods]
        return alive[0]

    def ready(self) -> Object:
        self.kubectl.rolled_out(f"deployment/{self.name}", POD_RUNNING_S)
        return self.pod()

    def keep(self, seed: int, blocks: int) -> None:
        """Until all of the prompt's blocks are there: the agent touches its memory meanwhile."""
        asked = {"seed": seed, "blocks": blocks}
        until(f"prompt {seed} kept", lambda: self.call("/keep", asked)["kept"] == blocks, STORED_S)

    def find(self, seed: int, blocks: int) -> int:
        """Leading blocks that came back; AssertionError if one had a foreign byte."""
        told = self.call("/find", {"seed": seed, "blocks": blocks})
        assert told["right"] == told["found"], told
        return int(told["found"])

    def demand(self, kind: str) -> None:
        self.call("/demand", {"kind": kind})

    def call(self, path: str, body: dict[str, Any], pod: Object | None = None) -> dict[str, Any]:
        host, port = address(self.kubectl, pod or self.pod(), PORT)
        request = urllib.request.Request(
            f"http://{host}:{port}{path}",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
            told: dict[str, Any] = json.load(answer)
        return told


def holds_bytes(kubectl: Kubectl, pod: Object) -> int | None:
    """What the pod's agent itself says that it may hold in memory; None while it says nothing."""
    try:
        return int(agent_figures(kubectl, pod)[CAPACITY])
    except (OSError, KeyError, http.client.HTTPException):
        return None
