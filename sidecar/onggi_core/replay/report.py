"""Hit rates of policies by size of the tier, and what to read from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from onggi_core.policy.names import PolicyName

LIMIT: Final = "belady"
"""The row of the tier that knows the future."""

COMBINED: Final = (PolicyName.WORTH.value, PolicyName.WORTH_SECOND_SIGHT.value)
"""Policies that rank by one rule and admit by another: what adaptive may come to follow."""


@dataclass(frozen=True, slots=True)
class Report:
    """rates: by policy, in the order of `tokens`, the tier's sizes. token_bytes: what one takes,
    where that was said."""

    requests: int
    asked: int
    distinct: int
    block_tokens: int
    tokens: tuple[int, ...]
    rates: Mapping[str, Sequence[float]]
    token_bytes: int | None = None

    @property
    def sizes_bytes(self) -> tuple[int, ...]:
        """Of `tokens`; empty where it was not said what one takes."""
        return tuple(tokens * self.token_bytes for tokens in self.tokens if self.token_bytes)

    @property
    def fixed(self) -> dict[str, Sequence[float]]:
        """The rows of policies that stay what they are."""
        apart = {LIMIT, PolicyName.ADAPTIVE.value}
        return {name: rates for name, rates in self.rates.items() if name not in apart}

    def best_fixed(self, position: int) -> tuple[str, float]:
        """The best fixed policy at one size, and its hit rate."""
        name = max(self.fixed, key=lambda each: self.fixed[each][position])
        return name, self.fixed[name][position]

    def as_json(self) -> dict[str, Any]:
        return {
            "requests": self.requests,
            "blocks_asked": self.asked,
            "blocks_distinct": self.distinct,
            "block_tokens": self.block_tokens,
            "capacity_tokens": list(self.tokens),
            "capacity_bytes": list(self.sizes_bytes),
            "hit_rate": {name: [round(r, 4) for r in rates] for name, rates in self.rates.items()},
        }


def short(tokens: int) -> str:
    """`940 K`, `4.7 M`: tokens as a reader says them."""
    for unit, name in ((10**9, "G"), (10**6, "M"), (10**3, "K")):
        if tokens >= unit:
            return f"{tokens / unit:.3g} {name}"
    return str(tokens)


def short_bytes(size_bytes: int) -> str:
    """`4 GiB`, also of the whole tokens that fit into 4 GiB."""
    for power, name in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size_bytes >= 0.9995 * 2**power:
            return f"{size_bytes / 2**power:.3g} {name}"
    return f"{size_bytes} B"
