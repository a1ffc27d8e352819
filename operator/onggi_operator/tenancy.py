"""A pool's quota: the most that all of its agents may take together, wherever they run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from onggi_core.quantity import parse_quantity


@dataclass(frozen=True, slots=True)
class PoolUse:
    """What one agent, or several, take of their pool's quota."""

    memory_bytes: int = 0
    disk_bytes: int = 0

    def __add__(self, other: "PoolUse") -> "PoolUse":
        return PoolUse(self.memory_bytes + other.memory_bytes, self.disk_bytes + other.disk_bytes)


NOTHING_USED: Final = PoolUse()


@dataclass(frozen=True, slots=True)
class PoolQuota:
    """None where the pool has no bound."""

    memory_bytes: int | None = None
    disk_bytes: int | None = None

    @property
    def bounds(self) -> bool:
        return self.memory_bytes is not None or self.disk_bytes is not None


def read_pool_quota(quota: Mapping[str, Any]) -> PoolQuota:
    """From `spec.quota`."""
    return PoolQuota(_size(quota.get("memory")), _size(quota.get("disk")))


def _size(said: object) -> int | None:
    return None if said is None else parse_quantity(str(said))
