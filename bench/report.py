"""Results as text: a table for whoever ran a part, a page for whoever reads the docs.

No figure is typed by hand: docs/performance.md and README.md have a pair of marks each, and what is
between them is written from build/bench.json.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.entries import shown
from bench.headline import headlines
from bench.library.page import side_by_side
from bench.machine import ROOT, described

PAGE: Final = ROOT / "docs" / "performance.md"
README: Final = ROOT / "README.md"
BEGIN: Final = "<!-- figures: written by `python -m bench report` -->"
END: Final = "<!-- figures end -->"
ORDER: Final = (
    "load_4mib",
    "load_16mib",
    "store_4mib",
    "store_16mib",
    "load_two_clients",
    "lookup_128_p50",
    "lookup_128_p99",
    "disk_read",
    "disk_write",
    "disk_mixed",
    "miss_throughput",
    "miss_ms",
    "warm_ttft",
    "rss_idle_mib",
    "bytes_per_block",
    "readopt_1m_s",
    "rebalance_hits",
    "admission_p99",
    "scale_plan_s",
    "scale_heartbeat_cores",
    "scale_writes_per_s",
    "scale_rss_growth_mib",
    "scale_rss_mib",
    "library_32k_x4",
    "library_128k_x2",
    "library_256k_x1",
    "library_512k_x1_disk",
)
"""Of the table; what is not named here comes after it, by name."""


class NoMarks(Exception):
    """The page has no place for figures."""


def table(entries: Sequence[Mapping[str, Any]], *, judged: bool = True) -> str:
    """A line a figure, further lines for its other sizes, as Markdown that a terminal can show
    too. judged False: of sizes that say nothing, so whether they meet a target is left open."""
    rows = [("figure", "onggi", "peers: value (times better)", "target", "met")]
    for entry in entries:
        met = "yes" if entry["meets"] else "**no**"
        said = met if entry["target"] and judged else "-"
        rows.append((*_cells(entry), entry["target"] or "-", said))
        rows += [(*_cells(row), "", "") for row in entry["rows"]]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [_line(rows[0], widths), "|".join(["", *("-" * (w + 2) for w in widths), ""])]
    return "\n".join([*lines, *(_line(row, widths) for row in rows[1:])]) + "\n"


def _cells(row: Mapping[str, Any]) -> tuple[str, str, str]:
    unit = row["unit"]
    peers = [
        f"{peer} {shown(value, unit)} ({row['ratios'][peer]:.2f})"
        for peer, value in row["peers"].items()
    ]
    peers += [f"{peer} not measured" for peer in row["not_measured"]]
    return row["name"], shown(row["value"], unit), ", ".join(peers) or "-"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (f" {cell:<{width}} " for cell, width in zip(cells, widths, strict=True))
    return "|".join(["", *padded, ""])


def ordered(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The entries of a result in the order of the page."""
    entries: Mapping[str, Mapping[str, Any]] = result["entries"]
    known = [name for name in ORDER if name in entries]
    return [entries[name] for name in (*known, *sorted(entries.keys() - set(known)))]


def figures(result: Mapping[str, Any]) -> str:
    """What stands between the marks."""
    entries = ordered(result)
    contexts = side_by_side(entries)
    parts = [
        f"{described(dict(result))}.",
        table(entries),
        *(("### Contexts that do not fit", contexts) if contexts else ()),
        "### What falls short",
        _short(entries),
        "### What could not be measured",
        _absent(entries),
        "### How each was measured",
        "\n".join(_how(entries)),
        "### When each was measured",
        "\n".join(_when(entries)),
    ]
    if seconds := result.get("seconds"):
        took = ", ".join(f"{part} {spent:.0f} s" for part, spent in seconds.items())
        parts.append(f"The parts took: {took}.")
    return "\n\n".join(part.strip() for part in parts)


def _short(entries: Sequence[Mapping[str, Any]]) -> str:
    lines = [
        f"* `{entry['name']}`: {shown(entry['value'], entry['unit'])}, target {entry['target']}"
        + "".join(f"; {entry['ratios'][peer]:.2f} of {peer}" for peer in entry["peers"])
        for entry in entries
        if not entry["meets"]
    ]
    return "\n".join(lines) or "Nothing."


def _absent(entries: Sequence[Mapping[str, Any]]) -> str:
    lines = {
        f"* {peer} in `{row['name']}`: {why}"
        for entry in entries
        for row in (entry, *entry["rows"])
        for peer, why in row["not_measured"].items()
    }
    return "\n".join(sorted(lines)) or "Nothing."


def _how(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    by_text: dict[tuple[str, str], list[str]] = {}
    for entry in entries:
        by_text.setdefault((entry["command"], entry["how"]), []).append(entry["name"])
    return [
        f"* {', '.join(f'`{name}`' for name in names)} (`{command}`): {how}"
        for (command, how), names in by_text.items()
    ]


def _when(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Parts are measured one by one; what else the machine did then is in their figures."""
    lines: dict[str, None] = {}
    for entry in entries:
        said = entry["date"]
        if "commit" in entry:
            said += f", commit {entry['commit']}, load {entry['load_average'][0]}"
        lines[f"* `{entry['command']}`: {said}"] = None
    return list(lines)


def write_page(result: Mapping[str, Any], page: Path = PAGE, readme: Path = README) -> None:
    """Put the figures between the marks of both. Raises NoMarks, and has written neither then."""
    filled = _filled(page, figures(result)), _filled(readme, headlines(result))
    page.write_text(filled[0])
    readme.write_text(filled[1])


def _filled(page: Path, figures: str) -> str:
    """Its text, with these between its marks."""
    head, begin, rest = page.read_text().partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise NoMarks(f"{page} has no lines {BEGIN} and {END}")
    return f"{head}{BEGIN}\n\n{figures}\n\n{END}{tail}"
