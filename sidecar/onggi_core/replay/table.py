"""The report as a table of text, which is also one of Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from onggi_core.replay.report import Report, short, short_bytes


def table(report: Report) -> str:
    names = list(report.rates)
    sizes = [["tokens"], ["---"], *([short(tokens)] for tokens in report.tokens), ["sum"]]
    if report.sizes_bytes:
        shown = ("size", "---", *map(short_bytes, report.sizes_bytes), "")
        sizes = [[*size, beside] for size, beside in zip(sizes, shown, strict=True)]
    rates = [
        [f"{report.rates[name][position]:.4f}" for name in names]
        for position in range(len(report.tokens))
    ]
    sums = [f"{sum(report.rates[name]):.4f}" for name in names]
    cells = [names, ["---"] * len(names), *rates, sums]
    lines = [[*size, *row] for size, row in zip(sizes, cells, strict=True)]
    return "\n".join(_aligned(lines)) + "\n"


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "| " + " | ".join(cell.rjust(w) for cell, w in zip(line, widths, strict=True)) + " |"
        for line in lines
    ]
