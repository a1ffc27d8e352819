"""Broken and hanging devices: which page is at fault, who waits for how long."""

import errno
import queue
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from disk_bench import (
    MIB,
    PAGE_BYTES,
    SPACE,
    WAIT_S,
    Bench,
    Found,
    Memory,
    key,
    pattern,
    place,
    run_of_one,
)

from onggi_core.engine.actions import ReadRun, WriteRun
from onggi_core.engine.events import IoOutcome, ReadEnded, WriteEnded
from onggi_core.geometry import stride
from onggi_sidecar.disk.device import Device
from onggi_sidecar.disk.schedule import QUEUE_MAX, Job, Queue
from onggi_sidecar.disk.workers import Workers

DONE, FAULT, CORRUPT = IoOutcome.DONE, IoOutcome.FAULT, IoOutcome.CORRUPT
PAGE = stride(PAGE_BYTES)
BAD = 2
"""The page of a run whose sectors are broken."""


class BadSector(Device):
    """Says EIO to every call that touches page BAD of the first segment."""

    def read_into(self, pages: Sequence[memoryview], offset_bytes: int) -> int:
        _refuse(pages, offset_bytes)
        return Device.read_into(self, pages, offset_bytes)

    def write_from(self, pages: Sequence[memoryview], offset_bytes: int) -> None:
        _refuse(pages, offset_bytes)
        Device.write_from(self, pages, offset_bytes)


def _refuse(pages: Sequence[memoryview], offset_bytes: int) -> None:
    begin = offset_bytes - 4096
    end = begin + sum(map(len, pages))
    if begin < (BAD + 1) * PAGE and end > BAD * PAGE:
        raise OSError(errno.EIO, "Input/output error")


class Hanging(Device):
    """Waits in a read until it is told to go on."""

    def read_into(self, pages: Sequence[memoryview], offset_bytes: int) -> int:
        _go_on.wait(WAIT_S)
        return Device.read_into(self, pages, offset_bytes)


_go_on = threading.Event()


def wrap(life: Bench, kind: type[Device]) -> Device:
    sound = life.segments.at(0)
    assert sound is not None
    life.segments._devices[0] = kind(sound.fd, sound.direct)
    return sound


def write_run(life: Bench, numbers: range) -> WriteEnded:
    """Pages scattered in memory, one after the other on disk."""
    offsets = tuple((n * 7 % 16) * PAGE for n in numbers)
    for n, offset in zip(numbers, offsets, strict=True):
        life.memory.view(offset, PAGE_BYTES)[:] = pattern(n)
    keys = tuple(map(key, numbers))
    parents = tuple(key(n - 1) if n else bytes(16) for n in numbers)
    first = place(numbers.start)
    life.tier.write(WriteRun(next(life.jobs), SPACE, first, PAGE, offsets, keys, parents))
    end = life.ends.get(timeout=WAIT_S)
    assert isinstance(end, WriteEnded)
    return end


def read_run(
    life: Bench, numbers: range, checksums: Sequence[bytes]
) -> tuple[ReadEnded, list[bytes]]:
    offsets = tuple((n * 5 % 16) * PAGE for n in numbers)
    for offset in offsets:
        life.memory.view(offset, PAGE_BYTES)[:] = b"?" * PAGE_BYTES
    keys, first = tuple(map(key, numbers)), place(numbers.start)
    job = next(life.jobs)
    life.tier.read(ReadRun(job, SPACE, first, PAGE, offsets, keys, tuple(checksums), False))
    end = life.ends.get(timeout=WAIT_S)
    assert isinstance(end, ReadEnded)
    return end, [bytes(life.memory.view(offset, PAGE_BYTES)) for offset in offsets]


@pytest.fixture
def life(tmp_path: Path, memory: Memory) -> Bench:
    return Bench(tmp_path, memory)


def test_a_run_scattered_in_memory_lies_in_one_piece_on_disk(life: Bench) -> None:
    end = write_run(life, range(16))
    assert end.outcomes == (DONE,) * 16
    back, pages = read_run(life, range(16), end.checksums)
    assert back.outcomes == (DONE,) * 16
    assert pages == [pattern(n) for n in range(16)]
    life.stop()
    again = Bench(life.folder, life.memory)
    assert [again.adopted[key(n)].place for n in range(16)] == [place(n) for n in range(16)]
    assert [again.adopted[key(n)].checksum for n in range(16)] == list(end.checksums)
    assert again.adopted[key(9)].parent == key(8)
    again.kill()


def test_a_damaged_page_of_a_run_fails_alone(life: Bench) -> None:
    end = write_run(life, range(5))
    checksums = [bytes(16) if n == 3 else sum_ for n, sum_ in enumerate(end.checksums)]
    back, pages = read_run(life, range(5), checksums)
    assert back.outcomes == (DONE, DONE, DONE, CORRUPT, DONE)
    assert pages[4] == pattern(4)
    life.kill()


def test_a_bad_sector_in_a_run_costs_its_page_alone_in_both_directions(life: Bench) -> None:
    sums = write_run(life, range(5)).checksums
    sound = wrap(life, BadSector)
    back, pages = read_run(life, range(5), sums)
    assert back.outcomes == (DONE, DONE, FAULT, DONE, DONE)
    assert [pages[n] for n in (0, 1, 3, 4)] == [pattern(n) for n in (0, 1, 3, 4)]
    end = write_run(life, range(5))
    assert end.outcomes == (DONE, DONE, FAULT, DONE, DONE)
    assert [bool(checksum) for checksum in end.checksums] == [True, True, False, True, True]
    life.segments._devices[0] = sound
    life.stop()
    again = Bench(life.folder, life.memory)
    assert set(again.adopted) == {key(n) for n in (0, 1, 3, 4)}
    again.kill()


def test_a_run_behind_the_end_of_a_cut_file_is_corrupt_from_there_on(life: Bench) -> None:
    end = write_run(life, range(4))
    life.stop()
    with (life.folder / "segment-000000").open("r+b") as file:
        file.truncate(4096 + place(2) + 5000)
    again = Bench(life.folder, life.memory)
    back, pages = read_run(again, range(4), end.checksums)
    assert back.outcomes == (DONE, DONE, CORRUPT, CORRUPT)
    assert pages[:2] == [pattern(0), pattern(1)]
    again.kill()


def hanging(folder: Path, memory: Memory, **changes: float) -> tuple[Bench, Found]:
    life = Bench(folder, memory, **changes)  # type: ignore[arg-type]  # floats and whole numbers
    checksum = life.write(1, place(0)).checksums[0]
    life.idle()
    wrap(life, Hanging)
    _go_on.clear()
    return life, Found(key(1), bytes(16), place(0), checksum)


def hang_in(life: Bench, block: Found) -> None:
    """One read is begun and does not come back."""
    life.tier.read(run_of_one(0, block))
    give_up_s = time.monotonic() + WAIT_S
    while not life.workers.stuck(longer_than_s=0.0):
        assert time.monotonic() < give_up_s


def test_a_disk_that_hangs_in_every_thread_abandons_what_waits_on_time(
    tmp_path: Path, memory: Memory
) -> None:
    """dynamo#5012: onboarding from disk hung for ever. Nobody comes back to look at the queue, and
    a job that the device has begun is never given up: it may still write into its page."""
    life, block = hanging(tmp_path, memory, io_deadline_s=0.2, threads=2)
    for job in range(100, 106):
        life.tier.read(run_of_one(job, block))
    ends = [life.ends.get(timeout=WAIT_S) for _ in range(4)]
    assert [(end.job, end.outcomes) for end in ends] == [
        (job, (IoOutcome.ABANDONED,)) for job in range(102, 106)
    ]
    assert life.workers.counts.late == 4
    assert life.workers.stuck(longer_than_s=0.1) == 2
    _go_on.set()
    late = [life.ends.get(timeout=WAIT_S) for _ in range(2)]
    assert {(end.job, end.outcomes) for end in late} == {(100, (DONE,)), (101, (DONE,))}
    life.kill()


def test_a_full_queue_abandons_at_once_and_is_counted(tmp_path: Path, memory: Memory) -> None:
    life, block = hanging(tmp_path, memory, threads=1)
    hang_in(life, block)
    for job in range(1, 1200):
        life.tier.read(run_of_one(job, block))
    refused = 1199 - QUEUE_MAX[Queue.LOAD]
    assert life.workers.counts.refused[Queue.LOAD] == refused
    _go_on.set()
    outcomes = [life.ends.get(timeout=WAIT_S).outcomes[0] for _ in range(1200)]
    assert outcomes.count(IoOutcome.ABANDONED) == refused
    life.kill()


def test_the_end_does_not_wait_for_a_disk_that_hangs(tmp_path: Path, memory: Memory) -> None:
    life, block = hanging(tmp_path, memory, threads=1)
    hang_in(life, block)
    begun_s = time.monotonic()
    assert not life.tier.stop(deadline_s=begun_s + 0.3)
    assert time.monotonic() - begun_s < WAIT_S / 2
    assert (life.folder / "segment-000000").stat().st_size > MIB
    _go_on.set()
    life.ends.get(timeout=WAIT_S)


def test_who_waits_for_the_end_takes_no_wake_up_from_the_threads(
    tmp_path: Path, memory: Memory
) -> None:
    life, block = hanging(tmp_path, memory, threads=2)
    hang_in(life, block)
    give_up_s = time.monotonic() + WAIT_S
    ending = threading.Thread(target=life.workers.drain, kwargs={"deadline_s": give_up_s})
    ending.start()
    for number in range(2, 12):
        assert life.write(number, place(number)).outcomes == (DONE,)
    _go_on.set()
    life.ends.get(timeout=WAIT_S)
    ending.join(WAIT_S)
    assert not ending.is_alive()
    life.kill()


def test_a_job_due_before_what_the_watch_sleeps_towards_is_abandoned_on_time() -> None:
    workers = Workers(time.monotonic, threads=1)
    go_on, told = threading.Event(), queue.Queue[str]()
    now_s = time.monotonic()
    jobs = [
        Job(1, Queue.LOAD, lambda: _wait_for(go_on), lambda: None, now_s + 60),
        Job(2, Queue.LOAD, lambda: told.put("late one was run"), lambda: None, now_s + 60),
        Job(3, Queue.PREFETCH, lambda: told.put("run"), lambda: told.put("abandoned"), now_s + 0.1),
    ]
    for job in jobs:
        workers.add(job)
    assert told.get(timeout=WAIT_S) == "abandoned"
    go_on.set()
    assert told.get(timeout=WAIT_S) == "late one was run"
    assert workers.stop(deadline_s=time.monotonic() + WAIT_S) == 0


def _wait_for(event: threading.Event) -> None:
    event.wait(WAIT_S)


def test_a_bug_in_a_job_gives_its_page_back_and_is_told(
    life: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    class Mistaken(Device):
        def read_into(self, pages: Sequence[memoryview], offset_bytes: int) -> int:
            raise RuntimeError("deliberate")

    fell = threading.Event()
    life.tier.workers.fell = fell.set
    written = write_run(life, range(1))
    wrap(life, Mistaken)
    end, _ = read_run(life, range(1), written.checksums)
    assert end.outcomes == (IoOutcome.ABANDONED,)
    assert fell.wait(WAIT_S)
    assert "a bug in a disk job" in caplog.text
    assert write_run(life, range(1)).outcomes == (DONE,)  # the thread lives on
