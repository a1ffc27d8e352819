"""What a pod asks of its node's memory, as the scheduler counts it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from onggi_core.quantity import capped_quantity

UNCHANGED: Final[Mapping[str, int]] = MappingProxyType({})


def memory_request(spec: Mapping[str, Any], instead: Mapping[str, int] = UNCHANGED) -> int:
    """Containers and native sidecars together, or the largest init container with the sidecars that
    began before it, if that is more; the pod's overhead on top. A request for the whole pod stands
    for all of it. `instead`: what is reckoned for a sidecar, by name, whatever it asks."""
    whole = _memory(spec)
    if whole:
        return whole + _quantity((spec.get("overhead") or {}).get("memory"))
    beside = most = 0
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            known = instead.get(container["name"]) if instead else None
            beside += _memory(container) if known is None else known
            most = max(most, beside)
        else:
            most = max(most, beside + _memory(container))
    running = beside + sum(_memory(container) for container in spec.get("containers") or ())
    return max(most, running) + _quantity((spec.get("overhead") or {}).get("memory"))


def _memory(holder: Mapping[str, Any]) -> int:
    return _quantity(((holder.get("resources") or {}).get("requests") or {}).get("memory"))


def _quantity(said: object) -> int:
    return capped_quantity(str(said)) if said else 0
