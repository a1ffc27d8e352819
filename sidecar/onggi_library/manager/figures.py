"""What a manager did and holds, to read and to look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

from onggi_core.quantity import format_size
from onggi_library.rounding import Rounding

BAR: Final = 30
_WIDE, _LINE, _FILL, _BACK = 420, 26, "#4c78a8", "#e6e6e6"


@dataclass(frozen=True, slots=True)
class TierFigures:
    """hits: gets that found their value there."""

    name: str
    used_bytes: int
    capacity_bytes: int
    hits: int

    @property
    def share(self) -> float:
        return min(1.0, self.used_bytes / self.capacity_bytes) if self.capacity_bytes else 0.0


@dataclass(frozen=True, slots=True)
class Learned:
    """How sure is what was learned of earlier gets: 0 to 1, of the gets lately."""

    next_right: float
    """Whose step was foretold by the one before,"""
    after_right: float
    """and by the one before that. What is foretold is brought up once this is foresight.SURE."""
    hot: float | None
    """Met by a value that stayed on the device, of those that as many could have met at best. None:
    fewer than hot.WINDOW gets so far."""

    def __str__(self) -> str:
        hot = "" if self.hot is None else f"; device hits: {self.hot:.0%} of the most possible"
        return (
            f"guessed right: {self.next_right:.0%} of the next steps, {self.after_right:.0%} of "
            f"those after{hot}"
        )


@dataclass(frozen=True, slots=True)
class Stats:
    """Since the start, and now. show() is a picture, svg() the same for a page."""

    steps: int
    kept_bytes: int
    """Of all values, as the tiers below the device count them."""
    puts: int
    gets: int
    tiers: tuple[TierFigures, ...]
    """device, host, disk."""
    ahead_bytes: int
    """Brought up to the device before they were asked for, and then asked for."""
    awaited_bytes: int
    """That a get had to wait for."""
    queue_bytes: int
    """Of values that wait to be brought up."""
    books_bytes: int
    """What this process knows of steps and their values."""
    index_bytes: int
    """What the agent knows of their pages, and of those of others where it serves others."""
    learned: Learned
    lost_steps: int
    """Of an earlier manager of this name: they did not get to its disk, and are not here."""
    rounding: Rounding | None
    """What int8 below the device did to values; None: they are exact there."""

    @property
    def hidden_share(self) -> float:
        """Of what came up and was used: the part that nobody waited for. 1 where nothing came."""
        moved = self.ahead_bytes + self.awaited_bytes
        return self.ahead_bytes / moved if moved else 1.0

    def show(self) -> str:
        """A bar a tier, how full it is, and what came from it."""
        lines = [f"{self.steps:,} steps, {format_size(self.kept_bytes)}B"]
        for tier in self.tiers:
            full = round(tier.share * BAR)
            sizes = f"{format_size(tier.used_bytes)}B of {format_size(tier.capacity_bytes)}B"
            bar = "#" * full + "." * (BAR - full)
            lines.append(f"{tier.name:<7}[{bar}] {sizes:<20} {_hits(tier)}")
        lines.append(f"{self._said}, {format_size(self.queue_bytes)}B queued")
        lines.append(f"index: {self._known}")
        lines.append(str(self.learned))
        if self.rounding is not None:
            off = f"{self.rounding.relative:.2%} (root mean square)"
            lines.append(f"int8 below the device is off by {off}")
        return "\n".join(lines)

    __str__ = show

    def svg(self) -> str:
        """The same as a picture."""
        parts = []
        for row, tier in enumerate(self.tiers):
            at = row * _LINE
            said = f"{tier.name}: {format_size(tier.used_bytes)}B, {_hits(tier)}"
            for width, colour in ((_WIDE, _BACK), (tier.share * _WIDE, _FILL)):
                parts.append(
                    f'<rect y="{at}" width="{width:.1f}" height="{_LINE - 6}" fill="{colour}"/>'
                )
            parts.append(f'<text x="6" y="{at + 15}">{escape(said)}</text>')
        high = len(self.tiers) * _LINE
        for below, said in enumerate((self._said, f"index: {self._known}")):
            at = high + below * _LINE + 15
            parts.append(f'<text x="6" y="{at}">{escape(said)}</text>')
        body = "\n".join(parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDE}" height="{high + 2 * _LINE}" '
            f'font-family="sans-serif" font-size="12">\n{body}\n</svg>\n'
        )

    def _repr_svg_(self) -> str:
        """What a notebook shows."""
        return self.svg()

    @property
    def _known(self) -> str:
        return (
            f"{format_size(self.books_bytes)}B here, {format_size(self.index_bytes)}B in the agent"
        )

    @property
    def _said(self) -> str:
        moved = self.ahead_bytes + self.awaited_bytes
        if not moved:
            return "nothing had to come up"
        return f"prefetched in time: {self.hidden_share:.0%} of {format_size(moved)}B"


def _hits(tier: TierFigures) -> str:
    return "1 hit" if tier.hits == 1 else f"{tier.hits:,} hits"
