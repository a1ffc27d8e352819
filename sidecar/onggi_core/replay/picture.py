"""The report as a picture: hit rate by size, a line a policy. SVG by hand, so it needs nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Final

from onggi_core.policy.names import PolicyName
from onggi_core.replay.report import LIMIT, Report, short

_WIDTH: Final = 880
_HEIGHT: Final = 480
_LEFT: Final = 64
_RIGHT: Final = 190
"""Room for the names at the ends of their lines."""
_TOP: Final = 64
_BOTTOM: Final = 56
_NAME_GAP: Final = 17
"""Names nearer than this to each other would overlap."""

_COLOURS: Final = ("#0072b2", "#e69f00", "#56b4e9", "#cc79a7", "#8c6d31", "#7f7f7f", "#44aa99")
"""Apart from each other for colour-blind readers too."""
_ADAPTIVE: Final = "#d55e00"
_LIMIT: Final = "#222222"

_STYLE: Final = """
  text { font: 13px system-ui, sans-serif; fill: #333 }
  .title { font-size: 17px; font-weight: 600 }
  .small { font-size: 12px; fill: #666 }
  .grid { stroke: #e3e3e3 }
  .line { fill: none; stroke-width: 1.8; stroke-linejoin: round; stroke-linecap: round }
"""


def picture(report: Report, title: str) -> str:
    scale = _Scale(report)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
        f' role="img" aria-label="{escape(title, quote=True)}">',
        f"<style>{_STYLE}</style>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
        f'<text class="title" x="{_LEFT}" y="28">{escape(title)}</text>',
        f'<text class="small" x="{_LEFT}" y="47">{report.requests:,} requests,'
        f" {report.asked:,} blocks of {report.block_tokens} tokens,"
        f" {report.distinct:,} of them different</text>",
        *_grid(report, scale),
        *_lines(report, scale),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


class _Scale:
    """Sizes by their logarithm from left to right, hit rates from zero upwards."""

    def __init__(self, report: Report) -> None:
        logs = [math.log(tokens) for tokens in report.tokens]
        self._low = min(logs)
        self._span = max(logs) - self._low
        highest = max(max(rates) for rates in report.rates.values())
        self.step = 0.05 if highest <= 0.5 else 0.1
        self.top = max(math.ceil(highest / self.step), 1) * self.step

    def x(self, tokens: int) -> float:
        part = (math.log(tokens) - self._low) / self._span if self._span else 0.5
        return _LEFT + part * (_WIDTH - _LEFT - _RIGHT)

    def y(self, rate: float) -> float:
        return _HEIGHT - _BOTTOM - rate / self.top * (_HEIGHT - _TOP - _BOTTOM)


def _grid(report: Report, scale: _Scale) -> list[str]:
    parts = []
    for number in range(round(scale.top / scale.step) + 1):
        rate = number * scale.step
        y = scale.y(rate)
        parts.append(
            f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}"/>'
            f'<text class="small" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">'
            f"{rate:.0%}</text>"
        )
    for tokens in report.tokens:
        x = scale.x(tokens)
        parts.append(
            f'<line class="grid" x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{_HEIGHT - _BOTTOM}"/>'
            f'<text class="small" x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 20}" text-anchor="middle">'
            f"{short(tokens)}</text>"
        )
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(
        f'<text class="small" x="{middle:.1f}" y="{_HEIGHT - 12}" text-anchor="middle">'
        "tokens that the tier holds</text>"
    )
    return parts


def _lines(report: Report, scale: _Scale) -> list[str]:
    colours = _colours(report)
    ends = [scale.y(rates[-1]) for rates in report.rates.values()]
    parts = []
    for (name, rates), at in zip(report.rates.items(), _apart(ends), strict=True):
        points = [
            (scale.x(tokens), scale.y(rate))
            for tokens, rate in zip(report.tokens, rates, strict=True)
        ]
        colour = colours[name]
        extra = ' stroke-dasharray="3 5"' if name == LIMIT else ""
        width = ' style="stroke-width:3.2"' if name == PolicyName.ADAPTIVE.value else ""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6"/>' for x, y in points)
        weight = ' font-weight="600"' if name == PolicyName.ADAPTIVE.value else ""
        end = points[-1]
        parts.append(
            f'<polyline class="line" stroke="{colour}"{extra}{width} points="{path}"/>'
            f'<g fill="{colour}">{dots}</g>'
            f'<polyline class="line" stroke="{colour}" style="stroke-width:0.8" points='
            f'"{end[0] + 4:.1f},{end[1]:.1f} {end[0] + 16:.1f},{at:.1f}"/>'
            f'<text x="{end[0] + 20:.1f}" y="{at + 4:.1f}" style="fill:{colour}"{weight}>'
            f"{escape(name)} {rates[-1]:.1%}</text>"
        )
    return parts


def _colours(report: Report) -> dict[str, str]:
    found = {LIMIT: _LIMIT, PolicyName.ADAPTIVE.value: _ADAPTIVE}
    for number, name in enumerate(report.fixed):
        found[name] = _COLOURS[number % len(_COLOURS)]
    return found


def _apart(ends: Sequence[float]) -> list[float]:
    """Heights for the names of lines that end at these, moved down where they would overlap."""
    placed = [0.0] * len(ends)
    lowest = float("-inf")
    for position in sorted(range(len(ends)), key=ends.__getitem__):
        lowest = max(ends[position], lowest + _NAME_GAP)
        placed[position] = lowest
    return placed
