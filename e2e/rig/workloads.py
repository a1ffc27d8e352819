"""What the tests deploy: the repository's examples, made to run on this machine, and sleepers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import yaml
from waits import POD_RUNNING_S

from rig.kubectl import Kubectl, Object, until

ROOT: Final = Path(__file__).resolve().parents[2]
EXAMPLES: Final = ROOT / "examples"
BASE_IMAGE: Final = "localhost/base:bookworm"
STATE: Final = Path(
    os.environ.get("ONGGI_E2E_DIR")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "onggi-e2e"
)
NODE: Final = "node2"
"""Engines run here: node1 has the control plane, and a disk tier is found only on its node."""
LEADER: Final = "node1"
"""Has the control plane, and room for pods whose engine is a stand-in."""
ENGINE_USER: Final = 1000
"""Any user but the agent's: the two share a group and nothing else."""
FLAGS: Final = (
    "--model=/model",
    "--port=8000",
    "--served-model-name=tiny",
    "--dtype=float32",  # what is computed again comes out the same to the last token
    "--max-model-len=4096",
    "--block-size=32",
    "--max-num-seqs=8",
    "--enforce-eager",  # compiling would take longer than all that is asked here
    "--enable-prompt-tokens-details",
)
VARIABLES: Final = {
    "HOME": "/tmp",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",  # two that wait for each other crawl when the cores are busy
    "VLLM_SERVER_DEV_MODE": "1",  # for /reset_prefix_cache
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}


def example(name: str) -> Object:
    found: Object = yaml.safe_load((EXAMPLES / name).read_text())
    return found


def engine_deployment(pool: str) -> Object:
    """examples/vllm.yaml with the engine of this machine in place of the image for GPUs.

    Its environment is several GiB and comes by a read-only hostPath; the model is generated. The
    annotation, which is all that concerns Onggi, is the example's own but for the pool's name.
    """
    deployment = example("vllm.yaml")
    template = deployment["spec"]["template"]
    template["metadata"]["annotations"]["onggi.dev/pool"] = pool
    spec: dict[str, Any] = template["spec"]
    spec["nodeSelector"] = {"kubernetes.io/hostname": NODE}
    spec["terminationGracePeriodSeconds"] = 10
    spec["securityContext"] = {
        "runAsUser": ENGINE_USER,
        "runAsGroup": ENGINE_USER,
        "runAsNonRoot": True,
    }
    (engine,) = spec["containers"]
    engine |= {
        "image": BASE_IMAGE,
        "imagePullPolicy": "Never",
        "command": ["/opt/engine/bin/python", "-m", "vllm.entrypoints.openai.api_server"],
        "args": list(FLAGS),
        "env": [{"name": name, "value": value} for name, value in VARIABLES.items()],
        "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}},
    }
    engine["readinessProbe"]["periodSeconds"] = 1
    folders = {"engine": "/opt/engine", "model": "/model"}
    for name, path in folders.items():
        engine["volumeMounts"].append({"name": name, "mountPath": path, "readOnly": True})
        source = {"path": str(STATE / name), "type": "Directory"}
        spec["volumes"].append({"name": name, "hostPath": source})
    engine["volumeMounts"].append({"name": "tmp", "mountPath": "/tmp"})
    spec["volumes"].append({"name": "tmp", "emptyDir": {}})
    return deployment


def sleeper(name: str, annotations: dict[str, str], **container: Any) -> Object:
    """A pod whose shape is of interest and whose program is not; fit for `restricted`."""
    locked = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": ENGINE_USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    engine = {
        "name": "vllm",
        "image": BASE_IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sleep", "86400"],
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
        "securityContext": locked,
        **container,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations, "labels": {"app": name}},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [engine]},
    }


def sleepers(name: str, annotations: dict[str, str]) -> Object:
    """A Deployment of one sleeper."""
    pod = sleeper(name, annotations)
    pod["metadata"].pop("name")
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": pod["metadata"], "spec": pod["spec"]},
        },
    }


DISK: Final = "/var/lib/onggi"


def make_folder(kubectl: Kubectl) -> None:
    """The node's folder for disk tiers."""
    kubectl.apply(disk_folder(DISK, kubectl.namespace))

    def made() -> bool:
        return bool(kubectl.get("pod", "disk-folder")["status"]["phase"] == "Succeeded")

    until("the folder on the node", made, POD_RUNNING_S)
    kubectl.delete("pod", "disk-folder", POD_RUNNING_S)


def disk_folder(path: str, namespace: str) -> Object:
    """A pod that makes a node's folder for disk tiers, as examples/pool-on-node.yaml says to, and
    takes out what earlier tests left: it would be found again, since that is what it is for."""
    script = f"install -d -o root -g 64646 -m 2770 /host{path} && rm -rf /host{path}/{namespace}"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "disk-folder"},
        "spec": {
            "restartPolicy": "Never",
            "nodeSelector": {"kubernetes.io/hostname": NODE},
            "containers": [
                {
                    "name": "install",
                    "image": BASE_IMAGE,
                    "imagePullPolicy": "Never",
                    "command": ["sh", "-c", script],
                    "volumeMounts": [{"name": "folder", "mountPath": f"/host{path}"}],
                }
            ],
            "volumes": [
                {"name": "folder", "hostPath": {"path": path, "type": "DirectoryOrCreate"}}
            ],
        },
    }
