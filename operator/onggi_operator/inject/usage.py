"""What a pod asks for as a whole, as the API server adds it up."""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, Final

from onggi_core.quantity import exact_quantity

PLAIN: Final = ("cpu", "memory", "ephemeral-storage")
"""Resources that a quota may also name without `requests.` in front."""

Usage = Mapping[str, Fraction]


def usage_of(spec: Mapping[str, Any]) -> dict[str, Fraction]:
    """What a quota charges for a pod: of each resource what runs at once at most, init containers
    one by one and native sidecars beside all that comes after them."""
    totals: dict[str, Fraction] = {}
    steady: dict[str, Fraction] = {}
    peak: dict[str, Fraction] = {}
    for container in spec.get("initContainers") or ():
        charges = charges_of(container)
        if container.get("restartPolicy") == "Always":
            _add(steady, charges)
            _raise(peak, steady)
        else:
            _raise(peak, {n: steady.get(n, Fraction(0)) + q for n, q in charges.items()})
    totals.update(steady)
    for container in spec.get("containers") or ():
        _add(totals, charges_of(container))
    _raise(totals, peak)
    _add(totals, charges_of({"resources": {"requests": spec.get("overhead") or {}}}))
    return totals


def _add(totals: dict[str, Fraction], charges: Usage) -> None:
    for name, quantity in charges.items():
        totals[name] = totals.get(name, Fraction(0)) + quantity


def _raise(totals: dict[str, Fraction], charges: Usage) -> None:
    for name, quantity in charges.items():
        totals[name] = max(totals.get(name, Fraction(0)), quantity)


def charges_of(container: Mapping[str, Any]) -> dict[str, Fraction]:
    return dict(_charged(container))


def _charged(container: Mapping[str, Any]) -> Iterator[tuple[str, Fraction]]:
    resources = container.get("resources") or {}
    for key in ("requests", "limits"):
        for name, quantity in (resources.get(key) or {}).items():
            size = exact_quantity(str(quantity))
            yield f"{key}.{name}", size
            if key == "requests" and (name in PLAIN or name.startswith("hugepages-")):
                yield name, size


def names_of(container: Mapping[str, Any]) -> set[str]:
    return {name for name, _ in _charged(container)}


def containers_of(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from spec.get("initContainers") or ()
    yield from spec.get("containers") or ()
