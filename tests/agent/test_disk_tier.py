"""The disk tier over restarts, damage and full filesystems (real files, O_DIRECT)."""

import errno
import os
import resource
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from disk_bench import (
    MIB,
    PAGE_BYTES,
    SPACE,
    Bench,
    Found,
    Memory,
    edit,
    key,
    pattern,
    place,
    run_of_one,
)

from onggi_core.engine.actions import ForgetPage
from onggi_core.engine.events import IoOutcome
from onggi_core.wire.requests import SpaceSpec
from onggi_sidecar.disk.device import Device
from onggi_sidecar.disk.record import (
    FRAME,
    PUT_BODY,
    RECORD_BYTES,
    Kind,
    header_record,
    pack_record,
    space_record,
)
from onggi_sidecar.disk.replay import replay
from onggi_sidecar.disk.segment import SEGMENT_HEADER_BYTES


@pytest.fixture
def bench(tmp_path: Path, memory: Memory) -> Iterator[Bench]:
    life = Bench(tmp_path, memory)
    yield life
    life.kill()


def again(old: Bench, **changes: int) -> Bench:
    return Bench(old.folder, old.memory, **changes)


def put_record_offset(folder: Path, name: bytes) -> int:
    """Where the PUT record of a key lies in the journal."""
    raw = (folder / "journal").read_bytes()
    for at in range(0, len(raw), RECORD_BYTES):
        _, kind, body = FRAME.unpack_from(raw, at)
        if kind == Kind.PUT and PUT_BODY.unpack(body)[3] == name:
            return at
    raise AssertionError(name)


def test_what_was_written_comes_back_after_a_clean_end(bench: Bench) -> None:
    for n in range(8):
        assert bench.write(n, place(n)).outcomes[0] is IoOutcome.DONE
    assert bench.stop()
    life = again(bench)
    assert life.report.adopted_blocks == 8
    assert life.report.sealed
    assert [life.read(life.adopted[key(n)]) for n in range(8)] == [pattern(n) for n in range(8)]
    assert life.adopted[key(3)].parent == key(2)
    life.kill()


def test_what_was_written_comes_back_after_a_kill(bench: Bench) -> None:
    for n in range(3):
        bench.write(n, place(n))
    bench.kill()
    life = again(bench)
    assert life.report.adopted_blocks == 3
    assert not life.report.sealed
    assert life.read(life.adopted[key(2)]) == pattern(2)
    life.kill()


def test_pages_go_past_the_page_cache_where_the_filesystem_lets_them(bench: Bench) -> None:
    bench.write(0, place(0))
    device = Device.open(bench.folder / "segment-000000")
    if not device.direct:
        pytest.skip("this filesystem refuses O_DIRECT; pages went through the page cache")
    device.close()


def test_damaged_blocks_are_misses_and_the_others_hits(bench: Bench) -> None:
    """Eight blocks; 3 flipped, 5 cut to half, record of 6 zeroed, record of 7 describes another
    layout and still parses. Reported as osaurus-ai/vmlx-swift#431 and Mesh-LLM/mesh-llm#1228."""
    other = SpaceSpec(b"g" * 16, PAGE_BYTES, 16)
    bench.write(99, place(20), other)
    for n in range(1, 9):
        bench.write(n, place(n))
    bench.stop()
    segment, journal = bench.folder / "segment-000000", bench.folder / "journal"
    edit(segment, SEGMENT_HEADER_BYTES + place(3) + 70_000, lambda b: bytes([b[0] ^ 4]))
    half = PAGE_BYTES // 2
    edit(segment, SEGMENT_HEADER_BYTES + place(5) + half, lambda b: bytes(len(b)), half)
    edit(journal, put_record_offset(bench.folder, key(6)), lambda b: bytes(len(b)), RECORD_BYTES)
    edit(journal, put_record_offset(bench.folder, key(7)), _give_to_space_1, RECORD_BYTES)

    life = again(bench)
    got = {n: read_adopted(life, n) for n in range(1, 9) if key(n) in life.adopted}
    assert {n for n, found in got.items() if found == pattern(n)} == {1, 2, 4, 8}
    assert {n for n, found in got.items() if found is IoOutcome.CORRUPT} == {3, 5, 7}
    corrupt = life.tier.counts.faults[IoOutcome.CORRUPT]
    assert corrupt + life.report.damaged_blocks == 4
    assert life.write(3, place(3)).outcomes[0] is IoOutcome.DONE
    assert life.write(6, place(6)).outcomes[0] is IoOutcome.DONE
    life.stop()
    healed = again(bench)
    assert healed.read(healed.adopted[key(3)]) == pattern(3)
    assert healed.read(healed.adopted[key(6)]) == pattern(6)
    healed.kill()


def read_adopted(life: Bench, number: int) -> bytes | IoOutcome:
    return life.read(life.adopted[key(number)], life.spaces[key(number)])


def _give_to_space_1(record: bytes) -> bytes:
    """The same record with another space, hence another layout, and a CRC that fits."""
    _, kind, body = FRAME.unpack(record)
    fields = list(PUT_BODY.unpack(body))
    fields[0] = 1
    return pack_record(Kind(kind), PUT_BODY.pack(*fields))


def test_a_file_cut_short_loses_only_the_blocks_behind_the_cut(bench: Bench) -> None:
    for n in range(4):
        bench.write(n, place(n))
    bench.stop()
    os.truncate(bench.folder / "segment-000000", SEGMENT_HEADER_BYTES + place(2) + 5000)
    life = again(bench)
    assert life.read(life.adopted[key(1)]) == pattern(1)
    assert life.read(life.adopted[key(2)]) is IoOutcome.CORRUPT
    assert life.read(life.adopted[key(3)]) is IoOutcome.CORRUPT
    assert life.write(3, place(3)).outcomes[0] is IoOutcome.DONE
    life.kill()


def test_no_flipped_bit_is_ever_returned(tmp_path: Path, memory: Memory) -> None:
    """Every bit of one small block, then every bit of its record, one at a time."""
    space = SpaceSpec(b"s" * 16, 96, 1)
    life = Bench(tmp_path, memory)
    block = Found(key(1), bytes(16), 0, life.write(1, 0, space).checksums[0])
    segment, journal = tmp_path / "segment-000000", tmp_path / "journal"
    for bit in range(96 * 8):
        flip(segment, SEGMENT_HEADER_BYTES, bit)
        assert life.read(block, space) is IoOutcome.CORRUPT
        flip(segment, SEGMENT_HEADER_BYTES, bit)
    assert life.read(block, space) == pattern(1, 96)
    life.stop()
    record_at = put_record_offset(tmp_path, key(1))
    for bit in range(RECORD_BYTES * 8):
        flip(journal, record_at, bit)
        raw = journal.read_bytes()
        found = replay(raw, tier_bytes=64 * MIB)
        assert found.live == []
        assert found.damaged_records == 1
        flip(journal, record_at, bit)


def flip(path: Path, offset: int, bit: int) -> None:
    edit(path, offset + bit // 8, lambda b: bytes([b[0] ^ 1 << bit % 8]))


def test_a_bit_lost_in_memory_after_the_checksum_was_taken_is_found(bench: Bench) -> None:
    end = bench.write(1, place(0))
    wrong = Found(key(2), bytes(16), place(0), end.checksums[0])
    assert bench.read(wrong) is IoOutcome.CORRUPT


def test_a_torn_tail_is_cut_off_and_the_rest_kept(bench: Bench) -> None:
    for n in range(3):
        bench.write(n, place(n))
    bench.kill()
    journal = bench.folder / "journal"
    os.truncate(journal, journal.stat().st_size - 40)
    life = again(bench)
    assert set(life.adopted) == {key(0), key(1)}
    assert life.report.torn_bytes == RECORD_BYTES - 40
    life.write(2, place(2))
    life.stop()
    assert set(again(bench).adopted) == {key(0), key(1), key(2)}


@pytest.mark.parametrize("damage", [b"", b"\0" * RECORD_BYTES, b"garbage" * 100])
def test_a_journal_that_cannot_be_read_begins_the_tier_anew_and_says_why(
    bench: Bench, damage: bytes
) -> None:
    bench.write(1, place(0))
    bench.stop()
    (bench.folder / "journal").write_bytes(damage)
    life = again(bench)
    assert life.adopted == {}
    assert "begins empty" in life.report.problems[0]
    assert sorted(p.name for p in bench.folder.iterdir()) == ["journal"]
    assert life.write(1, place(0)).outcomes[0] is IoOutcome.DONE
    life.kill()


def test_a_segment_of_another_tier_is_removed_and_its_blocks_are_gone(bench: Bench) -> None:
    bench.write(1, place(0))
    bench.write(2, bench.plan.segment_bytes)
    bench.stop()
    edit(bench.folder / "segment-000000", 20, lambda b: bytes([b[0] ^ 1]))
    life = again(bench)
    assert set(life.adopted) == {key(2)}
    assert life.report.lost_blocks == 1
    assert "segment-000000 has a damaged header" in life.report.problems[0]
    assert life.write(1, place(0)).outcomes[0] is IoOutcome.DONE
    life.kill()


def test_a_smaller_budget_gives_the_room_back_and_keeps_what_fits(bench: Bench) -> None:
    bench.write(1, place(0))
    bench.write(2, bench.plan.segment_bytes * (bench.plan.segments - 1))
    bench.stop()
    life = again(bench, budget_bytes=32 * MIB)
    assert set(life.adopted) == {key(1)}
    assert used_bytes(bench.folder) <= 32 * MIB
    life.kill()


def test_a_later_block_at_a_place_replaces_the_earlier(bench: Bench) -> None:
    bench.write(1, place(0))
    bench.write(2, place(0))
    bench.stop()
    assert set(again(bench).adopted) == {key(2)}


def test_a_block_written_twice_is_adopted_once(bench: Bench) -> None:
    bench.write(1, place(0))
    bench.write(1, place(5))
    bench.stop()
    life = again(bench)
    assert life.adopted[key(1)].place == place(5)
    assert life.report.adopted_blocks == 1
    life.kill()


def test_a_segment_given_to_another_page_size_keeps_only_those(bench: Bench) -> None:
    small = SpaceSpec(b"g" * 16, 4096, 16)
    for n in range(3):
        bench.write(n, place(n))
    bench.write(7, 4096 * 5, small)
    bench.stop()
    life = again(bench)
    assert set(life.adopted) == {key(7)}
    life.kill()


def test_a_forgotten_block_stays_forgotten(bench: Bench) -> None:
    bench.write(1, place(0))
    bench.write(2, place(1))
    bench.tier.forget(ForgetPage(place(0), SPACE, key(1)))
    bench.stop()
    assert set(again(bench).adopted) == {key(2)}


def test_the_journal_is_compacted_and_nothing_passes_the_budget(bench: Bench) -> None:
    small = SpaceSpec(b"g" * 16, 100, 16)
    ends = [bench.write(n, 4096 * (n % 10), small).outcomes[0] for n in range(3000)]
    assert set(ends) == {IoOutcome.DONE}
    assert bench.journal.compactions >= 1
    assert bench.journal.records < 2 * 10 + 1024 + 10
    bench.stop()
    life = again(bench)
    assert set(life.adopted) == {key(n) for n in range(2990, 3000)}
    assert life.read(life.adopted[key(2995)], small) == pattern(2995, 100)
    assert used_bytes(bench.folder) <= 64 * MIB
    life.kill()


def test_every_segment_full_stays_within_the_budget(bench: Bench) -> None:
    for segment in range(bench.plan.segments):
        assert (
            bench.write(segment, segment * bench.plan.segment_bytes).outcomes[0] is IoOutcome.DONE
        )
    assert bench.plan.segments >= 14
    assert used_bytes(bench.folder) <= bench.budget_bytes
    bench.stop()


def used_bytes(folder: Path) -> int:
    return sum(p.stat().st_blocks * 512 for p in folder.iterdir())


def test_no_space_is_an_outcome_asked_for_once_and_over_when_space_is_back(bench: Bench) -> None:
    """A full filesystem taken for a broken one: zuston/riffle#591. The limit on file sizes stands
    in for it: it refuses the preallocation of a segment in the same way."""
    bench.write(1, place(0))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, hard))
    try:
        end = bench.write(2, bench.plan.segment_bytes)
        assert end.outcomes[0] is IoOutcome.NO_SPACE
        assert bench.tier.no_space
        assert bench.write(3, 2 * bench.plan.segment_bytes).outcomes[0] is IoOutcome.NO_SPACE
        block = Found(key(1), bytes(16), place(0), b"")
        assert bench.read(block) is IoOutcome.CORRUPT
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    bench.tier._no_space_until_s = 0.0
    assert bench.write(2, bench.plan.segment_bytes).outcomes[0] is IoOutcome.DONE


class FaultyDevice(Device):
    """Says EIO to everything."""

    def read_into(self, page: memoryview, offset_bytes: int) -> int:
        raise OSError(errno.EIO, "Input/output error")

    def write_from(self, page: memoryview, offset_bytes: int) -> None:
        raise OSError(errno.EIO, "Input/output error")


def test_a_broken_place_is_a_fault_and_nothing_is_recorded_for_it(bench: Bench) -> None:
    bench.write(1, place(0))
    sound = bench.tier._devices[0]
    bench.tier._devices[0] = FaultyDevice(sound.fd, sound.direct)
    assert bench.write(2, place(1)).outcomes[0] is IoOutcome.FAULT
    assert bench.read(Found(key(1), bytes(16), place(0), b"")) is IoOutcome.FAULT
    bench.tier._devices[0] = sound
    bench.stop()
    assert set(again(bench).adopted) == {key(1)}


class HangingDevice(Device):
    """Waits in a read until it is told to go on."""

    def read_into(self, page: memoryview, offset_bytes: int) -> int:
        _go_on.wait(10)
        return super().read_into(page, offset_bytes)


_go_on = threading.Event()


def test_a_hanging_disk_abandons_what_waits_and_never_what_it_has_begun(
    tmp_path: Path, memory: Memory
) -> None:
    """dynamo#5012: onboarding from disk hung for ever."""
    life = Bench(tmp_path, memory, io_deadline_s=0.05, threads=1)
    checksum = life.write(1, place(0)).checksums[0]
    sound = life.tier._devices[0]
    life.tier._devices[0] = HangingDevice(sound.fd, sound.direct)
    _go_on.clear()
    for job in (100, 101):
        life.tier.read(run_of_one(job, Found(key(1), bytes(16), place(0), checksum)))
    give_up_s = time.monotonic() + 10
    while life.workers.stuck(longer_than_s=0.06) == 0:
        assert time.monotonic() < give_up_s
    _go_on.set()
    ends = [life.ends.get(timeout=10) for _ in range(2)]
    assert [(end.job, end.outcomes[0]) for end in ends] == [
        (100, IoOutcome.DONE),
        (101, IoOutcome.ABANDONED),
    ]
    assert life.workers.counts.late == 1
    life.kill()


def test_a_full_queue_abandons_at_once(tmp_path: Path, memory: Memory) -> None:
    life = Bench(tmp_path, memory, threads=1)
    checksum = life.write(1, place(0)).checksums[0]
    sound = life.tier._devices[0]
    life.tier._devices[0] = HangingDevice(sound.fd, sound.direct)
    _go_on.clear()
    for job in range(1200):
        life.tier.read(run_of_one(job, Found(key(1), bytes(16), place(0), checksum)))
    assert life.workers.counts.refused in (1200 - 1024, 1200 - 1025)
    _go_on.set()
    outcomes = [life.ends.get(timeout=10).outcomes[0] for _ in range(1200)]
    assert outcomes.count(IoOutcome.ABANDONED) == life.workers.counts.refused
    life.kill()


def test_a_hundred_thousand_records_are_read_back() -> None:
    """More than one unpacking takes, so that batches and what is left over both count."""
    parts = [header_record(b"u" * 16, 1024 * MIB), space_record(1, SpaceSpec(b"s" * 16, 4096, 16))]
    for n in range(100_000):
        fields = (1, 0, n * 4096, key(n), bytes(16), bytes(16), 4096, 0.0)
        parts.append(pack_record(Kind.PUT, PUT_BODY.pack(*fields)))
    found = replay(b"".join(parts), tier_bytes=1024 * MIB)
    assert len(found.live) == 100_000
