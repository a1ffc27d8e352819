"""The two containers and four volumes of an injected pod, as the API wants them.

All of it satisfies Pod Security `restricted` but for a HostPath disk, which only the pool's author
can ask for. Every container names cpu and memory, requests and limits: a quota refuses pods whose
containers do not, and an autoscaler stops at them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from onggi_core.quantity import format_quantity
from onggi_operator import names
from onggi_operator.pool import DiskTier, Medium, Pool

RUN_SLACK_BYTES: Final = 64 * 1024**2
"""What the run volume holds beside the arena's pages: its header, the socket and, while an agent
restarts, one extent that is not given back yet."""

DISK_SLACK_BYTES: Final = 64 * 1024**2
"""Container logs, which count as the pod's ephemeral storage like the disk tier does."""

FILESYSTEM_SHARE: Final = 10
"""One part in so many of a claim is the filesystem's own: ext4 keeps 5 % and its inodes 2 %."""

CLIENT_RESOURCES: Final = {
    "requests": {"cpu": "50m", "memory": "64Mi"},
    "limits": {"cpu": "500m", "memory": "128Mi"},
}
"""For the second in which the client is copied: a Python process and some 100 files."""

POOL_VARIABLE: Final = "ONGGI_AGENT_POOL"
"""By it an agent that is there already is known to be the one that is asked for."""

TOKEN_LIFE_S: Final = 3600
"""The kubelet renews it at 80 %; an hour bounds what a stolen one is good for."""

STARTUP_PERIOD_S: Final = 1
STARTUP_FAILURES_MAX: Final = 120
"""The agent listens within a second; two minutes cover a node that starts many pods at once."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What this pod gets, after its annotations. `disk_bytes` 0 means no disk."""

    memory_bytes: int
    memory_request_bytes: int
    disk_bytes: int


@dataclass(frozen=True, slots=True)
class Installation:
    """What the installation decides for every pod."""

    agent_image: str
    pull_policy: str
    log_level: str
    operator_url: str
    ca_pem: str
    revisions: Mapping[str, str] = field(default_factory=dict)
    """Images that it injected before, by the name of the revision."""
    warm_gates: bool = False
    """Whether there is somebody who opens warm gates."""
    kubernetes: tuple[int, int] | None = None
    """Its version, None where that is not known."""


@dataclass(frozen=True, slots=True)
class PodTraits:
    """What the pod's own shape decides."""

    namespace: str
    host_network: bool
    guaranteed: bool
    limits_storage: bool
    """Every other container has a limit on ephemeral storage."""


def security_context(pool: Pool) -> dict[str, Any]:
    return {
        "runAsUser": pool.security.run_as_user,
        "runAsGroup": pool.security.group,
        "runAsNonRoot": True,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def agent_container(
    pool: Pool, sizes: Sizes, traits: PodTraits, install: Installation, image: str
) -> dict[str, Any]:
    """The native sidecar. With host networking it declares no port, since a declared one would be
    the node's and keep a second pod away.

    It is probed by its socket and never over the network: there another pod's agent may answer
    (host networking), or a mesh may send the probe to a proxy that only starts after all init
    containers, for which the agent would wait for ever."""
    container: dict[str, Any] = {
        "name": names.AGENT_CONTAINER,
        "image": image,
        "imagePullPolicy": install.pull_policy,
        "command": ["onggi", "agent"],
        "restartPolicy": "Always",
        "env": _environment(pool, sizes, traits, install),
        "resources": agent_resources(pool, sizes, traits),
        "securityContext": security_context(pool),
        "volumeMounts": _mounts(pool, sizes, traits),
        "startupProbe": {
            "exec": {"command": ["test", "-S", names.SOCKET_PATH]},
            "periodSeconds": STARTUP_PERIOD_S,
            "timeoutSeconds": 2,
            "failureThreshold": STARTUP_FAILURES_MAX,
        },
    }
    if not traits.host_network:
        container["ports"] = [
            {"name": names.HTTP_PORT_NAME, "containerPort": names.HTTP_PORT, "protocol": "TCP"}
        ]
    return container


def client_container(
    pool: Pool, traits: PodTraits, install: Installation, image: str
) -> dict[str, Any]:
    """Copies the client to where the engine's Python finds it, and ends."""
    limits = CLIENT_RESOURCES["limits"]
    requests = limits if traits.guaranteed else CLIENT_RESOURCES["requests"]
    return {
        "name": names.CLIENT_CONTAINER,
        "image": image,
        "imagePullPolicy": install.pull_policy,
        "command": ["onggi", "install-client", names.CLIENT_PATH],
        "resources": {"requests": dict(requests), "limits": dict(limits)},
        "securityContext": security_context(pool),
        "volumeMounts": [{"name": names.CLIENT_VOLUME, "mountPath": names.CLIENT_PATH}],
    }


def agent_resources(pool: Pool, sizes: Sizes, traits: PodTraits) -> dict[str, dict[str, str]]:
    """Limit = arena + overhead. In a pod of the class Guaranteed requests equal limits, because a
    single container that differs would take the class, and its pinned cores, from the engine. The
    disk is asked of the node in any case; its own bound is the volume's."""
    limit_bytes = sizes.memory_bytes + pool.injection.overhead_bytes
    request_bytes = sizes.memory_request_bytes + pool.injection.overhead_bytes
    limits = {"cpu": pool.injection.cpu_limit, "memory": format_quantity(limit_bytes)}
    requests = {"cpu": pool.injection.cpu_request, "memory": format_quantity(request_bytes)}
    if sizes.disk_bytes and pool.disk and pool.disk.medium is Medium.EMPTY_DIR:
        storage = format_quantity(sizes.disk_bytes + DISK_SLACK_BYTES)
        requests["ephemeral-storage"] = storage
        if traits.limits_storage:
            limits["ephemeral-storage"] = storage
    return {"requests": requests | (limits if traits.guaranteed else {}), "limits": limits}


def volumes(pool: Pool, sizes: Sizes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {
            "name": names.RUN_VOLUME,
            "emptyDir": {
                "medium": "Memory",
                "sizeLimit": format_quantity(sizes.memory_bytes + RUN_SLACK_BYTES),
            },
        },
        {"name": names.CLIENT_VOLUME, "emptyDir": {"sizeLimit": "64Mi"}},
        {
            "name": names.TOKEN_VOLUME,
            "projected": {
                "sources": [
                    {
                        "serviceAccountToken": {
                            "path": "token",
                            "audience": names.TOKEN_AUDIENCE,
                            "expirationSeconds": TOKEN_LIFE_S,
                        }
                    }
                ]
            },
        },
    ]
    if sizes.disk_bytes and pool.disk:
        found.append({"name": names.DISK_VOLUME, **_disk_source(pool, sizes)})
    return found


def _disk_source(pool: Pool, sizes: Sizes) -> dict[str, Any]:
    """DirectoryOrCreate and not Directory: a node whose folder nobody made must not keep the pod
    from starting. The agent cannot write there then; it runs without a disk and says so."""
    if pool.disk and pool.disk.medium is Medium.HOST_PATH:
        return {"hostPath": {"path": pool.disk.path, "type": "DirectoryOrCreate"}}
    if pool.disk and pool.disk.medium is Medium.CLAIM_TEMPLATE:
        return {"ephemeral": {"volumeClaimTemplate": {"spec": _claim(pool.disk, sizes)}}}
    return {"emptyDir": {"sizeLimit": format_quantity(sizes.disk_bytes + DISK_SLACK_BYTES)}}


def _claim(disk: DiskTier, sizes: Sizes) -> dict[str, Any]:
    claim: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": format_quantity(claim_bytes(disk, sizes))}},
    }
    if disk.storage_class is not None:
        claim["storageClassName"] = disk.storage_class
    return claim


def claim_bytes(disk: DiskTier | None, sizes: Sizes) -> int:
    """What is claimed of a StorageClass; 0 for disks of another medium."""
    if disk is None or disk.medium is not Medium.CLAIM_TEMPLATE or not sizes.disk_bytes:
        return 0
    return sizes.disk_bytes + sizes.disk_bytes // FILESYSTEM_SHARE + DISK_SLACK_BYTES


def _mounts(pool: Pool, sizes: Sizes, traits: PodTraits) -> list[dict[str, Any]]:
    mounts: list[dict[str, Any]] = [
        {"name": names.RUN_VOLUME, "mountPath": names.RUN_PATH},
        {"name": names.TOKEN_VOLUME, "mountPath": names.TOKEN_PATH, "readOnly": True},
    ]
    if sizes.disk_bytes and pool.disk:
        mount: dict[str, Any] = {"name": names.DISK_VOLUME, "mountPath": names.DISK_PATH}
        if pool.disk.medium is Medium.HOST_PATH:
            # The kubelet makes a subPath with the mode of the folder above it (2770 and its group),
            # which it does not do for the path of a hostPath itself.
            mount["subPath"] = f"{traits.namespace}/{pool.name}"
        mounts.append(mount)
    return mounts


def _environment(
    pool: Pool, sizes: Sizes, traits: PodTraits, install: Installation
) -> list[dict[str, Any]]:
    """The agent starts with the memory that its pod requested, which is all of it in a Guaranteed
    one; the operator grants the rest out of what the node has."""
    started_bytes = sizes.memory_bytes if traits.guaranteed else sizes.memory_request_bytes
    values = {
        "POOL": pool.name,
        "MODE": pool.mode.value,
        "MEMORY": str(started_bytes),
        "MEMORY_MAX": str(sizes.memory_bytes),
        "POLICY": pool.policy.value,
        "HUGEPAGES": pool.hugepages.value,
        "DISK": str(sizes.disk_bytes),
        "SOCKET": names.SOCKET_PATH,
        "HTTP_HOST": "0.0.0.0",  # noqa: S104 - the pod's own address, for probes and scrapes
        "HTTP_PORT": str(names.HTTP_PORT),
        "LOG_LEVEL": install.log_level,
        "OPERATOR_URL": install.operator_url,
        "OPERATOR_CA": install.ca_pem,
        "TOKEN_FILE": f"{names.TOKEN_PATH}/token",
        "SHUTDOWN_DEADLINE_S": str(pool.lifecycle.drain_deadline_s),
        "IO_DEADLINE_S": str(pool.failure.disk_deadline_s),
    }
    if sizes.disk_bytes and pool.disk:
        values["DISK_PATH"] = names.DISK_PATH
        if pool.disk.medium is Medium.HOST_PATH:
            values["DISK_CLAIM"] = "shared"
            values["DISK_RETENTION_S"] = str(pool.lifecycle.disk_retention_s)
    fields = {
        "NAMESPACE": "metadata.namespace",
        "POD_NAME": "metadata.name",
        "POD_UID": "metadata.uid",
        "NODE_NAME": "spec.nodeName",
    }
    return [
        *({"name": f"ONGGI_AGENT_{key}", "value": value} for key, value in values.items()),
        *(
            {"name": f"ONGGI_AGENT_{key}", "valueFrom": {"fieldRef": {"fieldPath": path}}}
            for key, path in fields.items()
        ),
    ]
