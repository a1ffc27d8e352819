"""The thread that makes extents resident before they are offered, and gives their memory back.

First touch of memory is 10 to 60 times slower than copying into touched memory, and whoever
touches is charged. So the agent does it, in the background, and an extent is offered only when
all of it is resident. Punching a hole into 64 MiB takes milliseconds, which a loop does not have.
"""

import enum
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from onggi_core.quantity import spell_bytes
from onggi_sidecar.arena.file import ArenaFile
from onggi_sidecar.log import LOG

SWEEP_S: Final = 10.0
"""How often extents without memory are looked at. A client that was about to fill its page table
when one was given back has taken up to 4 MiB of it again; nothing else would ever free that."""


STOP_WITHIN_S: Final = 2.0
"""A step takes a millisecond, but a node that is out of memory may hold it for as long as it likes;
the thread is a daemon and keeps no process."""


class Work(enum.Enum):
    TOUCH = "touch"
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class Settled:
    """Nothing is left to touch. `problem` is empty unless the volume gave out."""

    ready_bytes: int
    asked_bytes: int
    problem: str = ""


class Toucher:
    """Touches and releases extents of one arena, on one thread of its own, in the order asked.

    `touched(extent)`, `refused(extent)` and `settled(Settled)` are called on that thread; the
    agent hands them on to its loop. So is `fell`, when the thread ends by what no volume does: an
    arena that neither grows nor gives memory back must not go on in silence.

    Each touch ends in one of the first two, but for those that stop() cuts off, and asking for an
    extent again that has memory or waits for it changes nothing, so the queue never holds more than
    two entries an extent.
    """

    def __init__(
        self,
        arena: ArenaFile,
        *,
        touched: Callable[[int], None],
        refused: Callable[[int], None],
        settled: Callable[[Settled], None],
        fell: Callable[[], None],
    ) -> None:
        self._arena = arena
        self._touched = touched
        self._refused = refused
        self._settled = settled
        self._fell = fell
        self._asked: deque[tuple[Work, int]] = deque()
        self._last: dict[int, tuple[Work, int]] = {}
        """For each extent with open work: what was asked last, and how much is open."""
        self._touches_open = 0
        self._wake = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="onggi-touch", daemon=True)

    def start(self, extents: int) -> None:
        """Begin with the first `extents` of the file."""
        for extent in range(extents):
            self.touch(extent)
        self._thread.start()

    def touch(self, extent: int) -> None:
        """Make an extent resident. For any thread."""
        with self._wake:
            last, _ = self._last.get(extent, (None, 0))
            if last is Work.TOUCH or (last is None and self._arena.has_memory(extent)):
                return
            self._touches_open += 1
            self._add(Work.TOUCH, extent)

    def release(self, extent: int) -> None:
        """Give an extent's memory back to the node. For any thread; nobody may hold its pages."""
        with self._wake:
            self._add(Work.RELEASE, extent)

    def stop(self) -> None:
        """Ask the thread to end after its present step and wait for it, if it does not hang."""
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        if self._thread.ident is not None:
            self._thread.join(STOP_WITHIN_S)

    def _add(self, work: Work, extent: int) -> None:
        _, open_work = self._last.get(extent, (work, 0))
        self._last[extent] = work, open_work + 1
        self._asked.append((work, extent))
        self._wake.notify_all()

    def _ended(self, work: Work, extent: int) -> None:
        with self._wake:
            last, open_work = self._last.pop(extent)
            if open_work > 1:
                self._last[extent] = last, open_work - 1
            if work is Work.TOUCH:
                self._touches_open -= 1

    def _run(self) -> None:
        try:
            self._work()
        except Exception:  # noqa: BLE001  any bug: the agent ends, its disk tier sealed
            LOG.exception("a bug in the arena's toucher")
            self._fell()

    def _work(self) -> None:
        while not self._stopping:
            with self._wake:
                self._wake.wait_for(lambda: self._asked or self._stopping, SWEEP_S)
                asked = self._asked.popleft() if self._asked else None
            match asked:
                case None:
                    self._arena.sweep()
                case (Work.TOUCH, extent):
                    self._touch(extent)
                case (Work.RELEASE, extent):
                    self._arena.release_extent(extent)
                    self._ended(Work.RELEASE, extent)

    def _touch(self, extent: int) -> None:
        """Touch one extent. A half-touched one is freed."""
        try:
            for step in range(self._arena.touch_steps):
                if self._stopping:
                    return
                self._arena.touch_step(extent, step)
        except OSError as why:
            self._arena.release_extent(extent)
            self._give_up(extent, why)
            return
        self._arena.publish(extent)
        self._ended(Work.TOUCH, extent)
        self._touched(extent)
        if not self._touches_open:
            self._settled(Settled(self._arena.ready_bytes, self._arena.ready_bytes))

    def _give_up(self, extent: int, why: OSError) -> None:
        """The volume is full: refuse this and what else is to be touched. Each try would take all
        the memory that is left, and free it again."""
        with self._wake:
            refused = [extent, *(n for work, n in self._asked if work is Work.TOUCH)]
            self._asked = deque((w, n) for w, n in self._asked if w is not Work.TOUCH)
        for number in refused:
            self._ended(Work.TOUCH, number)
            self._refused(number)
        ready_bytes = self._arena.ready_bytes
        asked_bytes = ready_bytes + len(refused) * self._arena.header.extent_bytes
        problem = (
            f"the volume of {self._arena.path} gave out ({why.strerror}) after "
            f"{spell_bytes(ready_bytes)} of {spell_bytes(asked_bytes)}; serving with what there is"
        )
        self._settled(Settled(ready_bytes, asked_bytes, problem))
