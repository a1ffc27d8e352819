"""A KVCachePool as a value: its spec, and what of its status new pods go by. Holds no defaults: the
schema fills in every field, and `later_fields` those that the cluster's schema does not have. One
that is absent after that means an object that never passed the API server."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from onggi_core.heartbeat import Mode
from onggi_core.policy.names import PolicyName
from onggi_core.quantity import parse_quantity
from onggi_operator.durations import duration_s
from onggi_operator.later_fields import completed
from onggi_operator.lifecycle import Lifecycle, read_lifecycle
from onggi_operator.placement import Placement, read_placement
from onggi_operator.tenancy import PoolQuota, read_pool_quota


class EngineKind(str, Enum):
    """Engines by the word that images and commands have for them."""

    VLLM = "vllm"
    SGLANG = "sglang"


class Configure(str, Enum):
    """Who switches the client on in the engine."""

    AUTO = "Auto"
    """Onggi, through the engine's plugins and environment."""
    MANUAL = "Manual"
    """The user, by the engine's flags; a connector that is set is no conflict then."""


@dataclass(frozen=True, slots=True)
class Engine:
    """Which engine, who switches the client on, and which container: None where it is to be found
    by its looks."""

    kind: EngineKind
    configure: Configure
    container: str | None


@dataclass(frozen=True, slots=True)
class Identity:
    """What the engine's container is told beside what it knows; None for nothing."""

    model_revision: str | None
    tenant: str | None


class Medium(str, Enum):
    """Where a disk tier lives."""

    EMPTY_DIR = "EmptyDir"
    HOST_PATH = "HostPath"
    CLAIM_TEMPLATE = "ClaimTemplate"


@dataclass(frozen=True, slots=True)
class MemoryTier:
    """The arena of each pod: what it asks of the node and what it may grow to."""

    min_bytes: int
    max_bytes: int


POLICIES: Final = {
    "Adaptive": PolicyName.ADAPTIVE,
    "LRU": PolicyName.LRU,
    "ARC": PolicyName.ARC,
    "S3FIFO": PolicyName.S3_FIFO,
    "SecondSight": PolicyName.SECOND_SIGHT,
    "Hazard": PolicyName.HAZARD,
    "Worth": PolicyName.WORTH,
    "WorthSecondSight": PolicyName.WORTH_SECOND_SIGHT,
}
"""As the API spells them."""


class Hugepages(str, Enum):
    """Whether agents ask the kernel for their arenas in huge pages."""

    AUTO = "Auto"
    OFF = "Off"


@dataclass(frozen=True, slots=True)
class DiskTier:
    """The disk of each pod. `path` is the folder on the node with HostPath, else None;
    `storage_class` the one of a ClaimTemplate, None for the cluster's default."""

    max_bytes: int
    medium: Medium
    path: str | None
    storage_class: str | None


@dataclass(frozen=True, slots=True)
class Failure:
    """What one read or write of the disk may take."""

    disk_deadline_s: int


@dataclass(frozen=True, slots=True)
class Security:
    """Whom Onggi's containers run as; `group` is also a supplemental group of the pod."""

    run_as_user: int
    group: int


class UpdatePolicy(str, Enum):
    """What new pods get after an upgrade."""

    LATEST = "Latest"
    PINNED = "Pinned"


@dataclass(frozen=True, slots=True)
class Injection:
    """How pods get their agent. `agent_image` None: the installation's. `revision` is set with
    UpdatePolicy.PINNED and None otherwise."""

    enabled: bool
    agent_image: str | None
    update_policy: UpdatePolicy
    revision: str | None
    cpu_request: str
    cpu_limit: str
    overhead_bytes: int


@dataclass(frozen=True, slots=True)
class Pool:
    """What a pod that asks for this pool is given."""

    namespace: str
    name: str
    uid: str
    generation: int
    mode: Mode
    engine: Engine
    identity: Identity
    memory: MemoryTier
    hugepages: Hugepages
    policy: PolicyName
    disk: DiskTier | None
    placement: Placement
    quota: PoolQuota
    lifecycle: Lifecycle
    failure: Failure
    security: Security
    injection: Injection
    warm_nodes: tuple[str, ...]
    """Nodes with data that no agent has taken over, the last left first. From the status."""
    room_nodes: tuple[str, ...]
    """Nodes with memory for one more agent at its largest. From the status."""


class PoolUnreadable(Exception):
    """A pool object that the schema would not have let through, such as one stored by a newer
    version. Carries the pool's name and what could not be read."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"KVCachePool {name}: {problem}")
        self.name = name


def read_pool(body: Mapping[str, Any]) -> Pool:
    """Read an object as the API server returns it. Raises PoolUnreadable."""
    meta = body["metadata"]
    try:
        return _read(meta, completed(body["spec"]), body.get("status") or {})
    except (KeyError, TypeError, ValueError) as fault:
        missing = f"the field {fault} is missing" if isinstance(fault, KeyError) else str(fault)
        raise PoolUnreadable(str(meta.get("name")), missing) from fault


def _read(meta: Mapping[str, Any], spec: Mapping[str, Any], status: Mapping[str, Any]) -> Pool:
    tiers = {tier["type"]: tier for tier in spec["tiers"]}
    identity, security = spec["identity"], spec["security"]
    return Pool(
        namespace=meta["namespace"],
        name=meta["name"],
        uid=meta["uid"],
        generation=meta["generation"],
        mode=Mode(spec["mode"]),
        engine=_engine(spec["engine"]),
        identity=Identity(identity.get("modelRevision"), identity.get("tenant")),
        memory=_memory(tiers["Memory"]["memory"]),
        hugepages=Hugepages(tiers["Memory"]["memory"]["hugepages"]),
        policy=POLICIES[spec["eviction"]["policy"]],
        disk=_disk(tiers["LocalDisk"]["localDisk"]) if "LocalDisk" in tiers else None,
        placement=read_placement(spec["placement"]),
        quota=read_pool_quota(spec["quota"]),
        lifecycle=read_lifecycle(spec["lifecycle"]),
        failure=Failure(duration_s(spec["failure"]["diskDeadline"])),
        security=Security(security["runAsUser"], security["group"]),
        injection=_injection(spec["injection"]),
        warm_nodes=_warm_nodes(status.get("nodes") or ()),
        room_nodes=tuple(status.get("roomNodes") or ()),
    )


def _warm_nodes(nodes: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    warm = [one for one in nodes if one["agents"] < one["folders"]]
    warm.sort(key=lambda one: one.get("leftAt", ""), reverse=True)
    return tuple(one["node"] for one in warm)


def _engine(engine: Mapping[str, Any]) -> Engine:
    """`vllm` is an older spelling of `vLLM`; both mean one engine."""
    return Engine(
        kind=EngineKind(engine["kind"].lower()),
        configure=Configure(engine["configure"]),
        container=engine.get("container"),
    )


def _memory(memory: Mapping[str, Any]) -> MemoryTier:
    max_bytes = parse_quantity(str(memory["max"]))
    min_bytes = parse_quantity(str(memory["min"])) if "min" in memory else max_bytes
    return MemoryTier(min_bytes, max_bytes)


def _disk(disk: Mapping[str, Any]) -> DiskTier:
    return DiskTier(
        max_bytes=parse_quantity(str(disk["max"])),
        medium=Medium(disk["medium"]),
        path=disk.get("path"),
        storage_class=disk.get("claimTemplate", {}).get("storageClassName"),
    )


def _injection(injection: Mapping[str, Any]) -> Injection:
    resources = injection["resources"]
    return Injection(
        enabled=injection["enabled"],
        agent_image=injection.get("agentImage"),
        update_policy=UpdatePolicy(injection["updatePolicy"]),
        revision=injection.get("revision"),
        cpu_request=str(resources["cpuRequest"]),
        cpu_limit=str(resources["cpuLimit"]),
        overhead_bytes=parse_quantity(str(resources["memoryOverhead"])),
    )
