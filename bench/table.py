"""Rows as text, with units a person reads."""

from __future__ import annotations

from collections.abc import Sequence

from bench.rows import Row, Unit


def shown(value: float, unit: Unit) -> str:
    """`14.2 GiB/s`, `83.1 us`, `1.24 ms`."""
    if unit is Unit.GIB_PER_S:
        return f"{value:.2f} GiB/s"
    for scale, name in ((1.0, "s"), (1e-3, "ms")):
        if value >= scale:
            return f"{value / scale:.2f} {name}"
    return f"{value * 1e6:.1f} us"


def table(title: str, rows: Sequence[Row]) -> str:
    """Lines under a title; an empty text for no rows."""
    if not rows:
        return ""
    cells = [("", "onggi", "peer", "", "ratio")]
    for row in rows:
        value, peer_value, ratio = shown(row.value, row.unit), "-", "-"
        if row.peer_value is not None:
            peer_value, ratio = shown(row.peer_value, row.unit), f"{row.ratio:.2f}"
        cells.append((row.name, value, peer_value, row.peer, ratio))
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    lines = [title, "-" * len(title)]
    for name, value, peer_value, peer, ratio in cells:
        lines.append(
            f"{name:<{widths[0]}}  {value:>{widths[1]}}  {peer_value:>{widths[2]}}"
            f"  {peer:<{widths[3]}}  {ratio:>{widths[4]}}"
        )
    return "\n".join(line.rstrip() for line in lines) + "\n"
