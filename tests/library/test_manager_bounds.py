"""What a manager and its agent need for themselves at a million tokens, counted."""

from __future__ import annotations

import gc
import threading
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed here")

from onggi_core.board.layout import Layout  # noqa: E402
from onggi_core.board.writer import Board  # noqa: E402
from onggi_core.engine.engine import Engine  # noqa: E402
from onggi_core.engine.events import Asked, ExtentTouched, SessionOpened  # noqa: E402
from onggi_core.engine.state import Facts  # noqa: E402
from onggi_core.identity import ROOT  # noqa: E402
from onggi_core.wire.requests import Hello, SpaceSpec, StoreComplete, StoreOutcome, StorePrepare  # noqa: E402
from onggi_library.manager import sizes  # noqa: E402
from onggi_library.manager.ahead import QUEUE_BYTES_MAX, Ahead  # noqa: E402
from onggi_library.manager.ledger import Ledger, disk_room, host_room  # noqa: E402
from onggi_library.manager.pages import cut, keys_of  # noqa: E402
from onggi_library.manager.table import StepTable  # noqa: E402
from onggi_library.manager.values import flatten  # noqa: E402
from onggi_library.own_tiers import extent_of  # noqa: E402

STEPS = 62_500
"""A million tokens, 16 a step."""
MB = 1_000_000


PART: Final = 5
"""The agent's index is counted for one in so many of them: it grows evenly, in columns."""


def resident_bytes() -> int:
    """This process's own memory: not what it maps of files, such as code that runs the first time.
    What it grows by depends on what was free before: as much as a third of what is asked for."""
    gc.collect()
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024


def live_bytes() -> int:
    """What is allocated and not freed, from the first time on that this is asked."""
    if not tracemalloc.is_tracing():
        tracemalloc.start(1)
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


Measure = Callable[[], int]


def in_a_process_of_its_own(
    what: Callable[[Measure], tuple[int, int]], measure: Measure
) -> tuple[int, int]:
    """Numbers that are counted there, where nothing else grows."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(what, measure).result()


def books(measure: Measure) -> tuple[int, int]:
    """By how much a process grows, and what the table says of itself."""
    kv = [(torch.zeros(1, 8, 16, 4), torch.zeros(1, 8, 16, 4)) for _ in range(32)]
    form = flatten(kv)[0]
    before = measure()
    table = StepTable()
    ledger = Ledger(host_room(64 << 20, 200 << 30), disk_room(1 << 30, 1 << 40))
    for step in range(STEPS):
        if step % 100 == 0:
            form = flatten(kv)[0]
        table.replace(step, table.new_serial(), form)
        ledger.add(cut(form.nbytes))
    assert len(table) == STEPS
    return measure() - before, table.nbytes


def test_the_managers_own_books_are_10_mb_at_most() -> None:
    """A model of 32 layers, whose values are keys and values of each; and they are what stats()
    says they are."""
    grown, counted = in_a_process_of_its_own(books, resident_bytes)
    assert MB < grown <= 10 * MB
    assert MB < counted <= 10 * MB
    live, counted = in_a_process_of_its_own(books, live_bytes)
    assert 0.9 * live <= counted <= 1.1 * live


def index(measure: Measure) -> tuple[int, int]:
    """By how much a process grows, and what the engine says of its index."""
    page, extent, steps = 64 << 10, 64 << 20, STEPS // PART
    before = measure()
    extents = steps * page // extent + 1
    slots = 1 << steps.bit_length()
    board = Board(bytearray(Layout(slots).nbytes), slots)
    engine = Engine(Facts(b"e" * 16, "a", extents * extent, 0, extent, extents), board=board)
    for number in range(extents):
        engine.step(ExtentTouched(number), 0.0)
    engine.step(SessionOpened(1), 0.0)
    engine.step(Asked(1, 0, Hello(1, "t", (SpaceSpec(b"f" * 16, page, 16),))), 0.0)
    for serial in range(1, steps + 1):
        wanted = StorePrepare(0, ROOT, tuple(keys_of(serial, 1, 9)))
        (answer,) = engine.step(Asked(1, 1, wanted), 0.0)
        done = StoreComplete(answer.reply.ticket, StoreOutcome.SEALED)  # type: ignore[union-attr]
        engine.step(Asked(1, 2, done), 0.0)
    stats = engine.stats()
    assert stats["host_pages"] == steps
    return measure() - before, stats["index_bytes"]


def test_the_agents_index_is_50_mb_at_most() -> None:
    grown, counted = in_a_process_of_its_own(index, resident_bytes)
    assert MB < PART * grown <= 50 * MB
    assert MB < PART * counted <= 50 * MB
    live, counted = in_a_process_of_its_own(index, live_bytes)
    assert 0.7 * live <= counted <= 1.2 * live


def test_the_queue_of_what_comes_up_ahead_is_100_mb_at_most() -> None:
    go, came = threading.Event(), []

    def bring(step: int | str, serial: int) -> None:
        go.wait()
        came.append((step, serial))

    ahead = Ahead(bring)
    taken = [ahead.add(f"s{n}", n, 3 * MB) for n in range(1, 50)]
    assert taken.count(True) == 33
    assert ahead.nbytes == 99 * MB <= QUEUE_BYTES_MAX == 100 * MB
    assert ahead.add("s1", 1, 3 * MB), "what is in the queue is in it once"
    assert not ahead.add("large", 99, QUEUE_BYTES_MAX + 1)
    ahead.wait_for(33)
    assert ahead.nbytes == 96 * MB
    go.set()
    ahead.wait_until_idle()
    assert came == [(f"s{n}", n) for n in range(1, 33)]
    ahead.close()
    assert not ahead.add("late", 100, 1)


def test_numbers_are_gib_and_fractions_and_texts_are_taken() -> None:
    assert sizes.size("cpu_memory", 50) == 50 << 30
    assert sizes.size("cpu_memory", 0.25) == 256 << 20
    assert sizes.size("cpu_memory", "50GiB") == 50 << 30


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (-1, r"cpu_memory is -1; use a number of GiB, such as 0\.5, or \"512MiB\""),
        (float("nan"), r"cpu_memory is nan"),
        (None, r"cpu_memory is None, a NoneType; use a number of GiB, such as 0.5, or"),
        (True, r"cpu_memory is True, a bool"),
        ("50GB", r"cpu_memory is '50GB', which has the unit 'GB', .*; write 50GiB or 50G;"),
    ],
)
def test_a_size_that_is_none_is_named_with_what_is_right(given: Any, said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        sizes.size("cpu_memory", given)


def test_an_arena_has_extents_for_several_sizes_of_pages() -> None:
    for memory in (16 << 20, 1 << 30, 3 << 30, 200 << 30):
        extent = extent_of(memory)
        assert memory // extent >= 16
        assert extent >= 1 << 20


def test_the_ledger_counts_whole_regions_for_each_size_of_pages() -> None:
    ledger = Ledger(host_room(1 << 20, 8 << 20), disk_room(0, 0))
    large, small = cut(1 << 20), cut(4096)
    for _ in range(6):
        assert ledger.fits(large)
        ledger.add(large)
    assert ledger.fits(small)
    ledger.add(small)
    assert not ledger.fits(large)
    ledger.discard(large)
    assert not ledger.fits(large), "what is discarded is there until it is known to be gone"
    ledger.all_gone()
    assert ledger.fits(large)
