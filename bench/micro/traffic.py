"""A process that keeps an agent's disk tier busy, beside whatever is measured."""

from __future__ import annotations

import multiprocessing
import signal
import time
from multiprocessing.synchronize import Event
from pathlib import Path
from types import TracebackType
from typing import Final

from bench.agent import DEADLINE_S, attach, space_for
from bench.pages import Region, chain
from bench.sizes import MIB
from onggi import Client

PAGE_BYTES: Final = MIB
BATCH: Final = 8
KEPT: Final = 32
"""Batches that are loaded again: twice what the small arena of a lookup bench holds."""
PAUSE_S: Final = 0.02
"""Between rounds of 8 MiB: an engine that stores some 400 MiB/s, not one that only stores."""
START_S: Final = 60.0


class Traffic:
    """`with Traffic(socket):` for as long as it should be busy."""

    def __init__(self, socket: Path) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._stop = spawn.Event()
        self._begun = spawn.Event()
        arguments = (str(socket), self._stop, self._begun)
        self._process = spawn.Process(target=_store_and_load, args=arguments, daemon=True)

    def __enter__(self) -> Traffic:
        self._process.start()
        if not self._begun.wait(START_S):
            raise TimeoutError(f"the disk traffic did not begin within {START_S:.0f} s")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._process.join(START_S)
        self._process.kill()


def _store_and_load(socket: str, stop: Event, begun: Event) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    region = Region(BATCH * PAGE_BYTES)
    region.fill_differently()
    pages = region.pages(0, region.nbytes, PAGE_BYTES)
    client = Client(socket, spaces=[space_for(PAGE_BYTES)], deadline_s=DEADLINE_S)
    attach(client)
    number = 0
    while not stop.is_set():
        client.store(chain("traffic", number, BATCH), pages)
        if number >= KEPT:
            begun.set()
            client.load(chain("traffic", number - KEPT, BATCH), pages, wait_s=1.0)
        number += 1
        time.sleep(PAUSE_S)
    client.close()
