"""Settings of the backend: HiCache's extra config first, then the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from onggi.connectors.environment import REVISION_VARIABLE, SOCKET_VARIABLE, TENANT_VARIABLE
from onggi_core.variables import nearest

DEADLINE_S: Final = 0.5
"""Of a call to the agent. All of them are made by SGLang's storage threads, beside the requests; a
backup that misses its answer by 20 ms on a busy node is lost as a whole."""

DISK_WAIT_S: Final = 1.0
"""How long a prefetch may wait for pages from disk: as long as SGLang's own prefetch takes at
most, before its allowance by tokens."""

OF_THE_ENGINE: Final = frozenset(
    {
        "backend_name",
        "module_path",
        "class_name",
        "interface_v1",
        "allocator",
        "tp_lcm_size",
        "prefetch_threshold",
        "prefetch_timeout_base",
        "prefetch_timeout_per_ki_token",
        "hicache_storage_pass_prefix_keys",
        "file_storage_path",  # put there for any backend where --file-storage-path is given
    }
)
"""Keys of the same object that are SGLang's own; most of them it takes out before."""


@dataclass(frozen=True)
class Options:
    """socket: path of the agent's socket; empty: take no part. revision: what the user says about
    the weights, instead of looking at them. tenant: kept apart from all other tenants.
    interface_v1: SGLang's own key: pages are copied in place and not packed first."""

    socket: str
    deadline_s: float = DEADLINE_S
    disk_wait_s: float = DISK_WAIT_S
    revision: str = ""
    tenant: str = ""
    interface_v1: bool = False


def read_options(
    extra: Mapping[str, Any] | None, environment: Mapping[str, str] = os.environ
) -> Options:
    """From the backend's extra config and the environment. Raises ValueError naming a field."""
    extra = extra or {}
    known = {"socket", "deadline_s", "disk_wait_s", "revision", "tenant"}
    unknown = sorted(set(extra) - known - OF_THE_ENGINE)
    if unknown:
        meant = f"did you mean {near}? " if (near := nearest(unknown[0], known)) else ""
        raise ValueError(
            f"hicache-storage-backend-extra-config has {unknown[0]}; {meant}use {sorted(known)}"
        )
    return Options(
        socket=str(extra.get("socket", environment.get(SOCKET_VARIABLE, ""))),
        deadline_s=_seconds(extra, "deadline_s", DEADLINE_S),
        disk_wait_s=_seconds(extra, "disk_wait_s", DISK_WAIT_S),
        revision=str(extra.get("revision", environment.get(REVISION_VARIABLE, ""))),
        tenant=str(extra.get("tenant", environment.get(TENANT_VARIABLE, ""))),
        interface_v1=bool(extra.get("interface_v1", 0)),
    )


def _seconds(extra: Mapping[str, Any], name: str, default: float) -> float:
    try:
        value = float(extra.get(name, default))
    except (TypeError, ValueError):
        value = -1.0
    if not 0 < value <= 30:
        raise ValueError(f"{name} is {extra.get(name)!r}; use seconds, more than 0 and up to 30")
    return value
