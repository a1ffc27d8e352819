"""Damage and full filesystems, with the numbers that are right for each (real files)."""

import os
import resource
import shutil
import time
from collections.abc import Callable, Iterator
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
    fill_up,
    key,
    pattern,
    place,
    record_offset,
    rewrite_record,
)

from onggi_core.engine.events import IoOutcome
from onggi_core.wire.requests import SpaceSpec
from onggi_sidecar.disk.layout import (
    BLOCK_BYTES,
    RECORD_BYTES,
    REGIONS_OFFSET,
    pack_header,
    pack_record,
)
from onggi_sidecar.disk.scan import scan_table
from onggi_sidecar.disk.segment import SEGMENT_HEADER_BYTES


@pytest.fixture
def bench(tmp_path: Path, memory: Memory) -> Iterator[Bench]:
    life = Bench(tmp_path, memory)
    yield life
    life.kill()


def again(old: Bench) -> Bench:
    return Bench(old.folder, old.memory)


def read_adopted(life: Bench, number: int) -> bytes | IoOutcome:
    return life.read(life.adopted[key(number)], life.spaces[key(number)])


def flip(path: Path, offset: int, bit: int) -> None:
    edit(path, offset + bit // 8, lambda b: bytes([b[0] ^ 1 << bit % 8]))


def prefix(life: Bench, numbers: range) -> int:
    """How many blocks of a chain are hits before the first miss."""
    for count, n in enumerate(numbers):
        if key(n) not in life.adopted or read_adopted(life, n) != pattern(n):
            return count
    return len(numbers)


def test_damaged_blocks_are_misses_and_the_others_hits(bench: Bench) -> None:
    """Eight chained blocks; 3 flipped, 5 cut to half, the record of 6 zeroed, that of 7 describes
    another layout and still parses. Reported as osaurus-ai/vmlx-swift#431 and
    Mesh-LLM/mesh-llm#1228."""
    other = SpaceSpec(b"g" * 16, PAGE_BYTES, 16)
    bench.write(99, place(20), other)
    for n in range(1, 9):
        bench.write(n, place(n))
    bench.stop()
    segment, table = bench.folder / "segment-000000", bench.folder / "table"
    edit(segment, SEGMENT_HEADER_BYTES + place(3) + 70_000, lambda b: bytes([b[0] ^ 4]))
    half = PAGE_BYTES // 2
    edit(segment, SEGMENT_HEADER_BYTES + place(5) + half, lambda b: bytes(len(b)), half)
    rewrite_record(table, key(7), lambda key, parent, checksum, _: (key, parent, checksum, 0))
    edit(table, record_offset(table, key(6)), lambda b: bytes(len(b)), RECORD_BYTES)

    life = again(bench)
    assert prefix(life, range(1, 9)) == 2
    got = {n: read_adopted(life, n) for n in range(1, 9) if key(n) in life.adopted}
    assert {n for n, found in got.items() if found == pattern(n)} == {1, 2, 4, 8}
    assert {n for n, found in got.items() if found is IoOutcome.CORRUPT} == {3, 5, 7}
    corrupt = {n for n, found in got.items() if found is IoOutcome.CORRUPT}
    assert len(corrupt) + life.report.damaged_blocks == 4
    assert life.write(3, place(3)).outcomes[0] is IoOutcome.DONE
    assert life.write(6, place(6)).outcomes[0] is IoOutcome.DONE
    life.stop()
    healed = again(bench)
    assert prefix(healed, range(1, 9)) == 4
    assert read_adopted(healed, 6) == pattern(6)
    assert healed.report.damaged_blocks == 0
    healed.kill()


def test_no_flipped_bit_is_ever_returned(tmp_path: Path, memory: Memory) -> None:
    """Every bit of one small block, then every bit of its record, one at a time."""
    space = SpaceSpec(b"s" * 16, 96, 1)
    life = Bench(tmp_path, memory)
    block = Found(key(1), bytes(16), 0, life.write(1, 0, space).checksums[0])
    segment, table = tmp_path / "segment-000000", tmp_path / "table"
    for bit in range(96 * 8):
        flip(segment, SEGMENT_HEADER_BYTES, bit)
        assert life.read(block, space) is IoOutcome.CORRUPT
        flip(segment, SEGMENT_HEADER_BYTES, bit)
    assert life.read(block, space) == pattern(1, 96)
    life.stop()
    sound = table.read_bytes()
    record_at = record_offset(table, key(1))
    for bit in range(RECORD_BYTES * 8):
        flip(table, record_at, bit)
        found = scan_table(table, budget_bytes=64 * MIB)
        assert [region.spaces.total() for region in found.regions.values()] == [0]
        assert found.damaged_records == 1
        table.write_bytes(sound)


def test_a_digest_that_is_damaged_costs_no_record(bench: Bench) -> None:
    bench.write(1, place(0))
    bench.stop()
    table = bench.folder / "table"
    flip(table, REGIONS_OFFSET + 2 * BLOCK_BYTES - 8, 3)
    life = again(bench)
    assert set(life.adopted) == {key(1)}
    assert life.report.damaged_blocks == 0
    life.kill()


def test_two_segment_files_exchanged_are_removed_and_never_read(bench: Bench) -> None:
    bench.write(1, place(0))
    bench.write(2, bench.plan.segment_bytes)
    bench.stop()
    first, second = bench.folder / "segment-000000", bench.folder / "segment-000001"
    first.rename(bench.folder / "aside")
    second.rename(first)
    (bench.folder / "aside").rename(second)
    life = again(bench)
    assert life.adopted == {}
    assert life.report.lost_blocks == 2
    assert "segment-000000 belongs to another tier or place" in life.report.problems[0]
    assert life.write(1, place(0)).outcomes[0] is IoOutcome.DONE
    life.kill()


def test_a_page_in_anothers_place_is_never_its_bytes(bench: Bench) -> None:
    """A drive that answers with another sector, or a copy gone wrong: right bytes, wrong block."""
    for n in (1, 2):
        bench.write(n, place(n))
    bench.stop()
    segment = bench.folder / "segment-000000"
    raw = segment.read_bytes()[SEGMENT_HEADER_BYTES + place(1) :][:PAGE_BYTES]
    edit(segment, SEGMENT_HEADER_BYTES + place(2), lambda _: raw, PAGE_BYTES)
    life = again(bench)
    assert read_adopted(life, 1) == pattern(1)
    assert read_adopted(life, 2) is IoOutcome.CORRUPT
    life.kill()


def test_a_record_in_anothers_place_is_a_miss(bench: Bench) -> None:
    for n in (1, 2):
        bench.write(n, place(n))
    bench.stop()
    table = bench.folder / "table"
    first = table.read_bytes()[record_offset(table, key(1)) :][:RECORD_BYTES]
    rewrite_record(table, key(2), lambda *_: first)
    life = again(bench)
    assert set(life.adopted) == {key(1)}
    assert read_adopted(life, 1) in (pattern(1), IoOutcome.CORRUPT)
    life.kill()


@pytest.mark.parametrize("keep", [0, 100, BLOCK_BYTES, REGIONS_OFFSET, REGIONS_OFFSET + 5000])
def test_a_table_cut_short_is_read_up_to_the_cut(bench: Bench, keep: int) -> None:
    bench.write(1, place(0))
    bench.stop()
    os.truncate(bench.folder / "table", keep)
    life = again(bench)
    assert life.adopted == {}
    assert life.write(1, place(0)).outcomes[0] is IoOutcome.DONE
    life.stop()
    healed = again(bench)
    assert read_adopted(healed, 1) == pattern(1)
    healed.kill()


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (b"", "less than its header"),
        (bytes(BLOCK_BYTES), "header is damaged"),
        (b"garbage" * 1000, "header is damaged"),
        (pack_header(b"u" * 16, 4 * MIB, 0.0).replace(b"\3\0\0\0", b"\2\0\0\0", 1), "damaged"),
    ],
    ids=["empty", "zeros", "garbage", "flipped"],
)
def test_a_table_that_cannot_be_read_begins_the_tier_anew_and_says_why(
    bench: Bench, damage: bytes, reason: str
) -> None:
    bench.write(1, place(0))
    bench.stop()
    (bench.folder / "table").write_bytes(damage)
    life = again(bench)
    assert life.adopted == {}
    assert reason in life.report.problems[0]
    assert "begins empty" in life.report.problems[0]
    assert sorted(path.name for path in bench.folder.iterdir()) == ["table"]
    assert life.write(1, place(0)).outcomes[0] is IoOutcome.DONE
    life.kill()


def test_a_tier_of_an_earlier_format_is_discarded_with_a_sentence(
    tmp_path: Path, memory: Memory
) -> None:
    (tmp_path / "journal").write_bytes(b"ONGGIJNL" * 11)
    (tmp_path / "segment-000000").write_bytes(bytes(BLOCK_BYTES))
    life = Bench(tmp_path, memory)
    assert "format 1" in life.report.problems[0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["table"]
    life.kill()


def test_records_of_an_unknown_space_are_damaged_and_counted_once(bench: Bench) -> None:
    for n in (1, 2):
        bench.write(n, place(n))
    bench.stop()
    table = bench.folder / "table"
    rewrite_record(table, key(1), lambda *fields: (*fields[:3], 77))
    life = again(bench)
    assert set(life.adopted) == {key(2)}
    assert life.report.damaged_blocks == 1
    life.stop()
    assert again(bench).report.damaged_blocks == 0


def test_a_record_damaged_while_the_agent_lives_is_freed_and_its_neighbours_kept(
    bench: Bench,
) -> None:
    for n in (1, 2):
        bench.write(n, place(n))
    bench.write(9, bench.plan.segment_bytes)  # so that the first block is read again
    table = bench.folder / "table"
    flip(table, record_offset(table, key(1)), 5)
    bench.write(3, place(3))
    assert bench.table.damaged_records == 1
    bench.stop()
    assert set(again(bench).adopted) == {key(2), key(3), key(9)}


def test_a_table_cut_while_the_agent_lives_costs_no_place(bench: Bench) -> None:
    bench.write(1, place(1))
    bench.write(9, bench.plan.segment_bytes)  # so that the first block is read again
    os.truncate(bench.folder / "table", REGIONS_OFFSET)
    ended = bench.write(2, place(2))
    assert ended.outcomes[0] is IoOutcome.DONE
    assert bench.read(Found(key(2), bytes(16), place(2), ended.checksums[0])) == pattern(2)


@pytest.mark.parametrize("now_s", [-1.0, 2.0**33])
def test_a_clock_that_is_wrong_by_ages_costs_no_thread(
    tmp_path: Path, memory: Memory, now_s: float
) -> None:
    life = Bench(tmp_path, memory, wall_clock=lambda: now_s)
    assert life.write(1, place(1)).outcomes[0] is IoOutcome.DONE
    life.stop()
    healed = again(life)
    assert read_adopted(healed, 1) == pattern(1)
    healed.kill()


@pytest.fixture
def volume(small_volume: Callable[[str], Path]) -> Path:
    return small_volume("40m")


def test_a_disk_filled_by_others_is_no_space_and_heals(volume: Path, memory: Memory) -> None:
    """Quota 64 MiB on a filesystem of 40, some used, then another file fills it. Reported as
    dingodb/DingoCache#83, zuston/riffle#591 and openvstorage/alba#573."""
    life = Bench(volume, memory)
    held = {n: Found(key(n), bytes(16), place(n), b"") for n in range(20)}
    for n, block in held.items():
        block.checksum = life.write(n, place(n)).checksums[0]
    life.idle()
    filler = volume / "filler"
    fill_up(filler)
    per_segment, first = life.plan.segment_bytes, 2
    for n in range(100):
        begun_s = time.monotonic()
        end = life.write(100 + n, (first + n % 5) * per_segment)
        assert end.outcomes == (IoOutcome.NO_SPACE,)
        assert time.monotonic() - begun_s < 5.0
    assert life.segments.no_space
    for n, block in held.items():
        assert life.read(block) == pattern(n)
    assert life.tier.counts.faults[IoOutcome.FAULT] == 0
    filler.unlink()
    give_up_s = time.monotonic() + 60.0
    while life.write(300, first * per_segment).outcomes != (IoOutcome.DONE,):
        assert time.monotonic() < give_up_s
        time.sleep(0.05)
    ends = [life.write(400 + n, first * per_segment + place(n)) for n in range(30)]
    assert {end.outcomes for end in ends} == {(IoOutcome.DONE,)}
    life.kill()


def test_a_full_filesystem_is_asked_once_for_many_stores(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit on file sizes refuses the preallocation of a segment in the same way."""
    asked: list[int] = []
    allocate = os.posix_fallocate

    def counted(fd: int, offset: int, length: int) -> None:
        asked.append(length)
        allocate(fd, offset, length)

    bench.segments.make_ahead_within(0)
    bench.write(1, place(0))
    monkeypatch.setattr(os, "posix_fallocate", counted)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, hard))
    try:
        ends = [bench.write(n, n * bench.plan.segment_bytes) for n in range(1, 10)]
        assert bench.read(Found(key(1), bytes(16), place(0), b"")) is IoOutcome.CORRUPT
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert {end.outcomes for end in ends} == {(IoOutcome.NO_SPACE,)}
    assert bench.segments.no_space
    assert len(asked) == 1


def test_a_folder_taken_away_is_no_space_for_new_segments_and_no_crash(bench: Bench) -> None:
    bench.segments.make_ahead_within(0)
    end = bench.write(1, place(0))
    shutil.rmtree(bench.folder)
    assert bench.write(2, bench.plan.segment_bytes).outcomes == (IoOutcome.NO_SPACE,)
    assert bench.read(Found(key(1), bytes(16), place(0), end.checksums[0])) == pattern(1)
    bench.folder.mkdir()


def test_the_record_helpers_of_this_file_agree_with_the_tier(bench: Bench) -> None:
    """Guards the tests above: a record rewritten as it was changes nothing."""
    bench.write(1, place(0))
    bench.stop()
    table = bench.folder / "table"
    before = table.read_bytes()
    rewrite_record(table, key(1), lambda *fields: fields)
    assert table.read_bytes() == before
    assert pack_record(key(1), key(0), bytes(16), 0)[:16] == key(1)
    assert set(again(bench).spaces.values()) == {SPACE}
