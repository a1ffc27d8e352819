"""The disk tier over restarts, damage and full filesystems (real files, O_DIRECT)."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from disk_bench import MIB, SPACE, Bench, Found, Memory, edit, key, pattern, place

from onggi_core.engine.actions import ForgetPage, NoteUses
from onggi_core.engine.events import IoOutcome
from onggi_core.wire.requests import SpaceSpec
from onggi_sidecar.disk.device import Device
from onggi_sidecar.disk.layout import TableLayout
from onggi_sidecar.disk.segment import SEGMENT_HEADER_BYTES


@pytest.fixture
def bench(tmp_path: Path, memory: Memory) -> Iterator[Bench]:
    life = Bench(tmp_path, memory)
    yield life
    life.kill()


def again(old: Bench, **changes: int) -> Bench:
    return Bench(old.folder, old.memory, **changes)


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


def test_a_table_cut_short_on_a_full_filesystem_keeps_what_is_before_the_cut(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write(0, place(0))
    bench.write(1, bench.plan.segment_bytes)
    bench.stop()
    table = bench.folder / "table"
    os.truncate(table, TableLayout(bench.plan.segment_bytes).blocks_offset(1))
    really = os.pwrite

    def full(fd: int, raw: bytes, offset: int) -> int:
        if offset + len(raw) > os.fstat(fd).st_size:
            raise OSError(errno.ENOSPC, "No space left on device")
        return really(fd, raw, offset)

    monkeypatch.setattr(os, "pwrite", full)
    life = again(bench)
    assert life.report.problems == []
    assert life.report.adopted_blocks == 1
    assert life.read(life.adopted[key(0)]) == pattern(0)
    monkeypatch.undo()
    assert life.write(2, bench.plan.segment_bytes).outcomes[0] is IoOutcome.DONE
    life.kill()
    life = again(bench)
    assert life.read(life.adopted[key(2)]) == pattern(2)
    life.kill()


def test_a_bit_lost_in_memory_after_the_checksum_was_taken_is_found(bench: Bench) -> None:
    end = bench.write(1, place(0))
    wrong = Found(key(2), bytes(16), place(0), end.checksums[0])
    assert bench.read(wrong) is IoOutcome.CORRUPT


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


@pytest.mark.parametrize("name", ["segment-000000", "table"])
def test_a_file_that_cannot_be_opened_costs_what_it_held_and_never_the_tier(
    bench: Bench, name: str
) -> None:
    bench.write(1, place(1))
    bench.stop()
    (bench.folder / name).unlink()
    (bench.folder / name).symlink_to(name)  # ELOOP, as root too
    life = again(bench)
    assert life.adopted == {}
    assert "cannot be read" in life.report.problems[0]
    assert life.write(2, place(1)).outcomes[0] is IoOutcome.DONE
    life.kill()
    healed = again(bench)
    assert list(healed.adopted) == [key(2)]
    healed.kill()


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


def test_a_block_written_twice_is_told_twice_and_its_later_place_last(bench: Bench) -> None:
    """The engine keeps the last: a set of all keys here would take as much as its index."""
    bench.write(1, place(0))
    bench.write(1, place(5))
    bench.stop()
    life = again(bench)
    assert life.adopted[key(1)].place == place(5)
    assert life.report.adopted_blocks == 2
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


def test_the_next_segment_is_made_ahead_and_no_more_than_one(bench: Bench) -> None:
    bench.write(1, place(0))
    bench.idle()
    assert segment_files(bench.folder) == ["segment-000000", "segment-000001"]
    bench.write(2, bench.plan.segment_bytes)
    bench.idle()
    assert len(segment_files(bench.folder)) == 3
    bench.stop()
    life = again(bench)
    life.write(3, place(1))
    life.idle()
    assert len(segment_files(bench.folder)) == 3
    life.kill()


def test_no_segment_is_made_ahead_beyond_the_live_budget(bench: Bench) -> None:
    bench.segments.make_ahead_within(1)
    bench.write(1, place(0))
    bench.idle()
    assert segment_files(bench.folder) == ["segment-000000"]


def segment_files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("segment-*"))


def test_a_removed_segment_is_gone_from_the_folder_and_from_the_next_life(bench: Bench) -> None:
    bench.segments.make_ahead_within(0)
    bench.write(1, place(0))
    bench.write(2, bench.plan.segment_bytes)
    bench.tier.remove_segment(1)
    bench.idle()
    assert segment_files(bench.folder) == ["segment-000000"]
    bench.kill()
    life = again(bench)
    assert set(life.adopted) == {key(1)}
    assert life.report.lost_blocks == 0
    life.kill()


def test_a_segment_removed_and_written_again_keeps_what_came_after(bench: Bench) -> None:
    bench.write(1, place(0))
    bench.tier.remove_segment(0)
    end = bench.write(2, place(1))
    bench.idle()
    assert bench.read(Found(key(2), key(1), place(1), end.checksums[0])) == pattern(2)
    bench.stop()
    assert set(again(bench).adopted) == {key(2)}


def test_blocks_come_back_in_order_of_their_last_use(tmp_path: Path, memory: Memory) -> None:
    times_s = iter(range(1000, 2000, 10))  # uses are known to within eight seconds
    life = Bench(tmp_path, memory, wall_clock=lambda: next(times_s))
    for n in range(4):
        life.write(n, place(n))
    for n in (2, 0):
        life.tier.note_uses(NoteUses(place(n), place(1), bytes([n + 1])))
    life.stop()
    assert list(again(life).adopted) == [key(1), key(3), key(2), key(0)]
