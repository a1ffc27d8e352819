"""The library's contexts side by side: what fits, what a token costs, what lies where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from bench.entries import shown
from bench.library.part import COPY, DISK, PLAIN, STOCK
from bench.library.scenarios import SCENARIOS

HEADS: Final = (
    "context",
    "without Onggi",
    "a token",
    "all on the device",
    "a copy / reads alone",
    "device, host, disk",
    "brought a token",
    "hidden",
)


def side_by_side(entries: Sequence[Mapping[str, Any]]) -> str:
    """A table; empty if none of them was measured."""
    by_name = {entry["name"]: entry for entry in entries}
    rows = [
        _cells(scenario.said, by_name[name])
        for scenario in SCENARIOS
        if (name := f"library_{scenario.name}") in by_name
    ]
    if not rows:
        return ""
    lines = [HEADS, ("---",) * len(HEADS), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cells(said: str, entry: Mapping[str, Any]) -> tuple[str, ...]:
    rows = {row["name"].partition("/")[2]: row for row in entry["rows"]}
    peers = entry["peers"]

    def size(name: str) -> str:
        return f"{rows[name]['value']:,.0f}"

    tiers = ", ".join(size(name) for name in ("device-used", "host", "disk"))
    alone = [shown(peers[peer], "s") for peer in (COPY, DISK) if peer in peers]
    return (
        said,
        entry["not_measured"].get(STOCK, "-").partition(":")[0],
        shown(entry["value"], "s"),
        shown(peers[PLAIN], "s") if PLAIN in peers else entry["not_measured"].get(PLAIN, "-"),
        " / ".join(alone),
        f"{tiers} MiB",
        f"{size('brought-a-token')} MiB",
        f"{rows['transfer-hidden']['value']:.0%}",
    )
