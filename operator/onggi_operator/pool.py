"""A KVCachePool's spec as a value. Holds no defaults: the schema fills in every field, and a field
that is absent here means an object that never passed the API server."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from onggi_core.heartbeat import Mode
from onggi_core.quantity import parse_quantity


class Medium(str, Enum):
    """Where a disk tier lives."""

    EMPTY_DIR = "EmptyDir"
    HOST_PATH = "HostPath"


@dataclass(frozen=True, slots=True)
class MemoryTier:
    """The arena of each pod: what it asks of the node and what it may grow to."""

    min_bytes: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class DiskTier:
    """The disk of each pod. `path` is the folder on the node with HostPath, else None."""

    max_bytes: int
    medium: Medium
    path: str | None


@dataclass(frozen=True, slots=True)
class Pool:
    """What a pod that asks for this pool is given."""

    namespace: str
    name: str
    uid: str
    generation: int
    mode: Mode
    engine: str
    engine_container: str | None
    memory: MemoryTier
    disk: DiskTier | None
    injection_enabled: bool
    agent_image: str | None
    cpu_request: str
    cpu_limit: str
    overhead_bytes: int


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
        return _read(meta, body["spec"])
    except (KeyError, TypeError, ValueError) as fault:
        problem = f"missing {fault}" if isinstance(fault, KeyError) else str(fault)
        raise PoolUnreadable(str(meta.get("name")), problem) from fault


def _read(meta: Mapping[str, Any], spec: Mapping[str, Any]) -> Pool:
    tiers = {tier["type"]: tier for tier in spec["tiers"]}
    memory = tiers["Memory"]["memory"]
    max_bytes = parse_quantity(str(memory["max"]))
    min_bytes = parse_quantity(str(memory["min"])) if "min" in memory else max_bytes
    injection, resources = spec["injection"], spec["injection"]["resources"]
    return Pool(
        namespace=meta["namespace"],
        name=meta["name"],
        uid=meta["uid"],
        generation=meta["generation"],
        mode=Mode(spec["mode"]),
        engine=spec["engine"]["kind"],
        engine_container=spec["engine"].get("container"),
        memory=MemoryTier(min_bytes, max_bytes),
        disk=_read_disk(tiers["LocalDisk"]["localDisk"]) if "LocalDisk" in tiers else None,
        injection_enabled=injection["enabled"],
        agent_image=injection.get("agentImage"),
        cpu_request=str(resources["cpuRequest"]),
        cpu_limit=str(resources["cpuLimit"]),
        overhead_bytes=parse_quantity(str(resources["memoryOverhead"])),
    )


def _read_disk(disk: Mapping[str, Any]) -> DiskTier:
    return DiskTier(parse_quantity(str(disk["max"])), Medium(disk["medium"]), disk.get("path"))
