"""Sizes written as a share of the container's memory limit, such as `memory: 60%`."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from onggi_core.quantity import spell_bytes

SHARED_FIELDS: Final = ("memory", "memory_max")

_SHARE: Final = re.compile(r"\s*([1-9][0-9]?)\s*%\s*", re.ASCII)


def says_a_share(value: object) -> bool:
    """Whether a share was meant, right or wrong."""
    return isinstance(value, str) and value.rstrip().endswith("%")


@dataclass(frozen=True, slots=True)
class Resolved:
    """Fields with sizes in the place of shares, and a sentence on how memory came about; empty
    where it was not asked for as a share."""

    values: dict[str, Any]
    said: str


def resolve_shares(
    values: Mapping[str, Any], limit_bytes: Callable[[], int | None], default_bytes: int
) -> Resolved:
    """Turn shares into bytes. Without a limit a share is as good as not given: a share of the node
    would be other people's memory. default_bytes: what memory is then, for the sentence."""
    shares = {
        field: int(share[1])
        for field in SHARED_FIELDS
        if isinstance(given := values.get(field), str) and (share := _SHARE.fullmatch(given))
    }
    if not shares:
        return Resolved(dict(values), "")
    limit = limit_bytes()
    resolved = {field: value for field, value in values.items() if field not in shares}
    if limit is not None:
        resolved |= {field: limit * percent // 100 for field, percent in shares.items()}
    if limit is None:
        return Resolved(resolved, _without_limit(shares, default_bytes))
    return Resolved(resolved, _of_limit(shares.get("memory"), limit))


def _without_limit(shares: Mapping[str, int], default_bytes: int) -> str:
    """A container has one if it was given one (`docker run -m`); a machine has none."""
    field, percent = next(iter(shares.items()))
    taken = f"the default, {spell_bytes(default_bytes)}" if field == "memory" else "as memory"
    return (
        f"{field} was asked for as {percent}% of the container's memory limit, but there is none, "
        f"so it is {taken}; write a size, such as 1GiB, to choose"
    )


def _of_limit(percent: int | None, limit: int) -> str:
    if percent is None:
        return ""
    return (
        f"memory is {percent}% of the container's memory limit of {spell_bytes(limit)}: "
        f"{spell_bytes(limit * percent // 100)}"
    )
