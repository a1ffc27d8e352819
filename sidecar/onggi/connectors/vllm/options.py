"""Settings of the connector: `kv_connector_extra_config` first, then the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Final

from onggi.client import DEADLINE_S
from onggi.connectors.environment import REVISION_VARIABLE, SOCKET_VARIABLE, TENANT_VARIABLE
from onggi_core.variables import nearest

DISK_WAIT_S: Final = 2.0
"""How long an asynchronous load may take to come from disk before its blocks are computed."""

SETTINGS: Final = frozenset(
    {"socket", "deadline_s", "disk_wait_s", "revision", "tenant", "layerwise", "load"}
)
"""Of the connector. A tier has fewer."""

LAYERWISE: Final = ("auto", "on", "off")
LOAD: Final = ("worth", "always")


@dataclass(frozen=True)
class Options:
    """socket: path of the agent's socket; empty: take no part. revision: what the user says about
    the weights, instead of looking at them. tenant: kept apart from all other tenants.
    layerwise: whether the forward pass begins before all layers are loaded. load: whether a hit is
    loaded if that is measured to be worth it, or always."""

    socket: str
    deadline_s: float = DEADLINE_S
    disk_wait_s: float = DISK_WAIT_S
    revision: str = ""
    tenant: str = ""
    layerwise: str = LAYERWISE[0]
    load: str = LOAD[0]


def read_options(
    extra: Mapping[str, Any],
    environment: Mapping[str, str] = os.environ,
    *,
    known: Set[str] = SETTINGS,
    where: str = "kv_connector_extra_config",
) -> Options:
    """From an engine's configuration and the environment. known: settings that may be there; where:
    what it is called. Raises ValueError naming a field."""
    unknown = sorted(set(extra) - known)
    if unknown:
        meant = f"did you mean {near}? " if (near := nearest(unknown[0], known)) else ""
        raise ValueError(f"{where} has {unknown[0]}; {meant}use {sorted(known)}")
    return Options(
        socket=str(extra.get("socket", environment.get(SOCKET_VARIABLE, ""))),
        deadline_s=_seconds(extra, "deadline_s", DEADLINE_S),
        disk_wait_s=_seconds(extra, "disk_wait_s", DISK_WAIT_S),
        revision=str(extra.get("revision", environment.get(REVISION_VARIABLE, ""))),
        tenant=str(extra.get("tenant", environment.get(TENANT_VARIABLE, ""))),
        layerwise=_choice(extra, "layerwise", LAYERWISE),
        load=_choice(extra, "load", LOAD),
    )


def _choice(extra: Mapping[str, Any], name: str, choices: Sequence[str]) -> str:
    value = extra.get(name, choices[0])
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; use one of {', '.join(choices)}")
    return str(value)


def _seconds(extra: Mapping[str, Any], name: str, default: float) -> float:
    try:
        value = float(extra.get(name, default))
    except (TypeError, ValueError):
        value = -1.0
    if not 0 < value <= 30:
        raise ValueError(f"{name} is {extra.get(name)!r}; use seconds, more than 0 and up to 30")
    return value
