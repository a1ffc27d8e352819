"""Fields that came after the first schema, with what they are where a cluster's schema lacks them.

The schema is the home of defaults and fills them in. But programs and schema do not change in one
moment: after a rollback, or an upgrade whose schema was not applied, a newer webhook reads pools of
an older schema. Those mean what they meant, and nobody is skipped for it. `tests/control/
test_later_fields.py` holds this list to the schema: every field that came later, with its default.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

_Fields = Mapping[str, Any]

LATER: Final[_Fields] = MappingProxyType(
    {
        "engine": {"configure": "Auto"},
        "identity": {},
        "eviction": {"policy": "Adaptive"},
        "placement": {
            "rebalance": "Auto",
            "interval": "1m",
            "step": "512Mi",
            "threshold": 5,
            "scheduling": "Prefer",
            "resize": "Off",
        },
        "quota": {},
        "lifecycle": {
            "rampUp": "1m",
            "drain": {"deadline": "10s"},
            "warmGate": {"until": "Off", "timeout": "5m"},
        },
        "failure": {"diskDeadline": "2s"},
        "security": {"runAsUser": 64646, "group": 64646},
        "injection": {"updatePolicy": "Latest"},
    }
)

LATER_OF_TIERS: Final[Mapping[str, _Fields]] = MappingProxyType({"memory": {"hugepages": "Auto"}})
"""By the field that holds a tier's settings."""


def completed(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A pool's spec with every field that has a default."""
    tiers = [
        {
            name: _filled(value, LATER_OF_TIERS[name]) if name in LATER_OF_TIERS else value
            for name, value in tier.items()
        }
        for tier in spec["tiers"]
    ]
    return {**_filled(spec, LATER), "tiers": tiers}


def _filled(given: Mapping[str, Any], defaults: _Fields) -> dict[str, Any]:
    filled = dict(given)
    for name, default in defaults.items():
        if isinstance(default, Mapping):
            filled[name] = _filled(given.get(name, {}), default)
        else:
            filled.setdefault(name, default)
    return filled
