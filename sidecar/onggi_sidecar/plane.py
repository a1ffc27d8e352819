"""The data plane: one thread that owns the engine and the clients' sockets.

A blocking epoll loop and not asyncio: a round trip costs half of it here, and nothing that HTTP,
metrics or heartbeats do on the main thread comes between a request and its answer but the GIL.
Everything that touches the engine runs on this thread; others leave events in the mailbox or call.
Each turn gives every client and the mailbox a bounded piece of work, so nobody starves another.
"""

import heapq
import select
import threading
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from onggi_core.engine.events import Event
from onggi_sidecar.log import LOG
from onggi_sidecar.mailbox import Mailbox

TICK_S: Final = 0.25
"""Leases are half a minute and a filesystem is asked again after seconds; a load's own deadline is
a wake-up of its own."""
CALL_WITHIN_S: Final = 1.0
"""How long another thread waits for an answer of the plane: the longest request takes a tenth."""
WAKES_A_S: Final = 1000
"""Wake-ups are rounded up to this fraction of a second, so that however many loads wait there are
no more than this many for each second of the longest wait."""

Handler = Callable[[int], None]
T = TypeVar("T")


class PlaneSilent(Exception):
    """The plane has ended or did not answer in time."""


class Plane:
    """Made and set up by one thread, then `start`ed. `fell` is called, on the plane, when a bug
    was met: clients are not heard any more, events and calls still are, until stop()."""

    def __init__(
        self,
        mailbox: Mailbox,
        *,
        step: Callable[[Event], None],
        tick: Callable[[], None],
        fell: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._mailbox = mailbox
        self._step = step
        self._tick = tick
        self._fell = fell
        self._clock = clock
        self._epoll = select.epoll()
        self._handlers: dict[int, Handler] = {}
        self._again: list[Callable[[], None]] = []
        self._when_idle: list[Callable[[], None]] = []
        self._wakes: list[int] = []
        self._wakes_set: set[int] = set()
        self._ticks_at_s = 0.0
        self._fallen = False
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="onggi-plane", daemon=True)
        self._epoll.register(mailbox.number, select.EPOLLIN)

    # ---- for other threads

    def start(self) -> None:
        self._thread.start()

    def post(self, event: Event) -> None:
        self._mailbox.post(event)

    def call(self, work: Callable[[], T], within_s: float = CALL_WITHIN_S) -> T:
        """What `work` answers or raises, run on the plane between two turns. Raises PlaneSilent."""
        done = threading.Event()
        answer: list[Any] = [None, PlaneSilent("the data plane has ended")]

        def run() -> None:
            if not self._ending:
                try:
                    answer[:] = work(), None
                except Exception as fault:  # noqa: BLE001  raised again where it is waited for
                    answer[1] = fault
            done.set()

        if not self._thread.is_alive():
            raise answer[1]
        self._mailbox.send(run)
        if not done.wait(within_s):
            raise PlaneSilent(f"the data plane did not answer within {within_s:g} s")
        if answer[1] is not None:
            raise answer[1]
        result: T = answer[0]
        return result

    def stop(self, within_s: float = CALL_WITHIN_S) -> bool:
        """End the thread; True once it has ended. A daemon: it cannot keep the process."""

        def end() -> None:
            self._ending = True

        if self._thread.is_alive():
            self._mailbox.send(end)
            self._thread.join(within_s)
        return not self._thread.is_alive()

    # ---- for what runs on the plane

    def watch(self, number: int, mask: int, handler: Handler) -> None:
        """Call `handler` with the epoll events of a descriptor, level-triggered."""
        if number in self._handlers:
            self._epoll.modify(number, mask)
        else:
            self._epoll.register(number, mask)
        self._handlers[number] = handler

    def forget(self, number: int) -> None:
        """Before a watched descriptor is closed."""
        if self._handlers.pop(number, None) is not None:
            self._epoll.unregister(number)

    def again(self, work: Callable[[], None]) -> None:
        """Call `work` in the next turn, without waiting for anything."""
        self._again.append(work)

    def when_idle(self, work: Callable[[], None]) -> None:
        """Call `work` at the end of a turn that found nothing at all to do; it has to be short,
        since whoever asks meanwhile waits for it."""
        self._when_idle.append(work)

    def wake_at(self, when_s: float) -> None:
        """See to it that a tick comes soon after `when_s`."""
        wake = int(when_s * WAKES_A_S) + 1
        if wake not in self._wakes_set:
            self._wakes_set.add(wake)
            heapq.heappush(self._wakes, wake)

    # ---- the thread

    def _run(self) -> None:
        try:
            while not self._ending:
                if self._fallen:
                    self._serve_the_end()
                    continue
                try:
                    self._turn()
                except Exception:  # noqa: BLE001  any bug: the disk tier has to be sealed
                    LOG.exception("a bug in the data plane")
                    self._fallen = True
                    self._fell()
        except Exception:  # noqa: BLE001  the main thread goes on without this one
            LOG.exception("a second bug in the data plane; it ends")
        finally:
            self._ending = True
            self._mailbox.close()
            self._epoll.close()

    def _turn(self) -> None:
        now_s = self._clock()
        due_s = self._ticks_at_s
        if self._wakes:
            due_s = min(due_s, self._wakes[0] / WAKES_A_S)
        if due_s <= now_s:
            self._on_time(now_s)
            due_s = now_s
        wait_s = 0.0 if self._again or self._when_idle else max(0.0, due_s - now_s)
        handlers, mailbox = self._handlers, self._mailbox
        found = self._epoll.poll(wait_s)
        for number, mask in found:
            handler = handlers.get(number)  # none: the mailbox, or closed earlier in this turn
            if handler is not None:
                handler(mask)
        again, self._again = self._again, []
        for work in again:
            work()
        mailbox.take(self._step)
        if self._when_idle and not (found or again or self._again):
            self._when_idle.pop(0)()

    def _on_time(self, now_s: float) -> None:
        while self._wakes and self._wakes[0] <= now_s * WAKES_A_S:
            self._wakes_set.remove(heapq.heappop(self._wakes))
        self._ticks_at_s = now_s + TICK_S
        self._tick()

    def _serve_the_end(self) -> None:
        """After a bug: what disk jobs report and what the agent's end asks for, nothing else."""
        waiting = select.poll()
        waiting.register(self._mailbox.number, select.POLLIN)
        waiting.poll(TICK_S * 1000)
        self._mailbox.take(self._step)
