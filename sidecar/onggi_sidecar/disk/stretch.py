"""A stretch of pages between memory and one file: one call for all of them, or one a page.

One call is what makes a small page as fast as a large one. Where it fails, each page is tried by
itself, so that a bad sector costs one page and not the run.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from onggi_core.engine.events import IoOutcome
from onggi_sidecar.disk.device import Device
from onggi_sidecar.disk.outcome import classify


@dataclass(frozen=True, slots=True)
class Stretch:
    """pages [n] of stride_bytes uint8 each, anywhere in memory; in the file one after the other
    from offset_bytes. page_bytes of each belong to the block; the rest is padding."""

    device: Device
    offset_bytes: int
    pages: Sequence[memoryview]
    page_bytes: int

    def page(self, index: int) -> "Stretch":
        """One of them."""
        offset_bytes = self.offset_bytes + sum(map(len, self.pages[:index]))
        return Stretch(self.device, offset_bytes, self.pages[index : index + 1], self.page_bytes)


def read_stretch(stretch: Stretch, late: Callable[[], bool]) -> list[IoOutcome]:
    """Fill the pages; DONE for each whose bytes all arrived, CORRUPT behind the file's end.

    late: asked before each page that is tried by itself; once it says so the rest is ABANDONED.
    """
    try:
        got = stretch.device.read_into(stretch.pages, stretch.offset_bytes)
    except OSError as fault:
        if len(stretch.pages) == 1:
            return [classify(fault)]
        return _one_by_one(read_stretch, stretch, late)
    outcomes, begin = [], 0
    for page in stretch.pages:
        whole = got >= begin + stretch.page_bytes
        outcomes.append(IoOutcome.DONE if whole else IoOutcome.CORRUPT)
        begin += len(page)
    return outcomes


def write_stretch(stretch: Stretch, late: Callable[[], bool]) -> list[IoOutcome]:
    """Write the pages. A full filesystem is asked once for all of them, not once for each."""
    try:
        stretch.device.write_from(stretch.pages, stretch.offset_bytes)
    except OSError as fault:
        outcome = classify(fault)
        if len(stretch.pages) == 1 or outcome is IoOutcome.NO_SPACE:
            return [outcome] * len(stretch.pages)
        return _one_by_one(write_stretch, stretch, late)
    return [IoOutcome.DONE] * len(stretch.pages)


def _one_by_one(
    move: Callable[[Stretch, Callable[[], bool]], list[IoOutcome]],
    stretch: Stretch,
    late: Callable[[], bool],
) -> list[IoOutcome]:
    outcomes: list[IoOutcome] = []
    for index in range(len(stretch.pages)):
        outcomes += [IoOutcome.ABANDONED] if late() else move(stretch.page(index), late)
    return outcomes
