"""The report as a table of text, which is also one of Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from onggi_core.replay.report import Report, short


def table(report: Report) -> str:
    names = list(report.rates)
    lines = [["tokens", *names], ["---"] * (len(names) + 1)]
    for position, tokens in enumerate(report.tokens):
        row = [report.rates[name][position] for name in names]
        lines.append([short(tokens), *[f"{rate:.4f}" for rate in row]])
    lines.append(["sum", *[f"{sum(report.rates[name]):.4f}" for name in names]])
    return "\n".join(_aligned(lines)) + "\n"


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "| " + " | ".join(cell.rjust(w) for cell, w in zip(line, widths, strict=True)) + " |"
        for line in lines
    ]
