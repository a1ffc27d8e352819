"""What a manager counts of its own calls, and what it learns of them."""

from __future__ import annotations

from typing import Any

from onggi_library.carrier import Source
from onggi_library.manager.below import Below
from onggi_library.manager.device import DeviceTier
from onggi_library.manager.figures import Learned, Stats, TierFigures
from onggi_library.manager.foresight import Foresight
from onggi_library.manager.steps import Step


class Tally:
    """Not thread-safe."""

    def __init__(self, device: DeviceTier, lost: int) -> None:
        """lost: steps that were there by name and are not whole any more."""
        self.puts = 0
        self._gets = 0
        self._hits = {"device": 0, Source.HOST.value: 0, Source.DISK.value: 0}
        self._ahead_bytes = self._awaited_bytes = 0
        self._device = device
        self._lost = lost
        self._foresight = Foresight()

    def found_on_device(self, serial: int, nbytes: int, *, ahead: bool) -> None:
        """By a get. ahead: it had been brought up for it."""
        self._hits["device"] += 1
        self._ahead_bytes += ahead * nbytes
        self._asked(serial, met=not ahead)

    def found_below(self, serial: int, nbytes: int, source: Source) -> None:
        self._hits[source.value] += 1
        self._awaited_bytes += nbytes
        self._asked(serial, met=False)

    def foretold(self, step: Step, reader: int) -> tuple[Step, ...]:
        """A thread got this step; which ones are worth bringing up for it."""
        return self._foresight.read(step, reader)

    def stats(
        self,
        steps: int,
        below: Below,
        figures: dict[str, Any],
        *,
        queue_bytes: int,
        known_bytes: int,
    ) -> Stats:
        """figures: the agent's, empty if it does not answer. known_bytes: of steps."""
        device, hits, lower = self._device, self._hits, below.tiers
        host, disk = (figures.get(f"{tier}_used_bytes", 0) for tier in ("host", "disk"))
        return Stats(
            steps=steps,
            kept_bytes=lower.ledger.live_bytes,
            puts=self.puts,
            gets=self._gets,
            tiers=(
                TierFigures("device", device.used_bytes, device.capacity_bytes, hits["device"]),
                TierFigures("host", host, lower.host_bytes, hits["host"]),
                TierFigures("disk", disk, lower.disk_bytes, hits["disk"]),
            ),
            ahead_bytes=self._ahead_bytes,
            awaited_bytes=self._awaited_bytes,
            queue_bytes=queue_bytes,
            books_bytes=known_bytes + device.nbytes,
            index_bytes=figures.get("index_bytes", 0),
            learned=Learned(
                self._foresight.next_right, self._foresight.after_right, device.hot.sureness
            ),
            lost_steps=self._lost,
            rounding=below.coding.rounding,
        )

    def _asked(self, serial: int, *, met: bool) -> None:
        self._gets += 1
        self._device.hot.asked(serial, met=met, places=len(self._device))
