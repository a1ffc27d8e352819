"""Chunks, segments and what an earlier life left, a sentence a test."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import pytest
from shell import PAGE, Shell, chain, checksum, pattern, spec
from walker import check

from onggi_core.engine.actions import ReadRun, WriteRun
from onggi_core.engine.events import Adopted
from onggi_core.engine.promotion import SPREAD
from onggi_core.engine.state import CHUNK_BYTES, RUN_BYTES
from onggi_core.engine.tier import EMPTIED_MAX, PART_MAX
from onggi_core.errors import BadRequest
from onggi_core.identity import ROOT
from onggi_core.wire.replies import Looked
from onggi_core.wire.requests import Lookup, Prefetch, SpaceSpec

A = spec("a")
LONG = chain("long", 600)
PER_CHUNK = CHUNK_BYTES // PAGE


def big() -> Shell:
    return Shell(extents=2, segments=2, pages_each=2048)


def adopted(
    keys: list[bytes], parents: list[bytes], places: list[int], space: SpaceSpec = A
) -> Adopted:
    sums = [checksum(pattern(space, key)) for key in keys]
    return Adopted(space, keys=keys, parents=parents, places=places, checksums=sums)


def runs(shell: Shell) -> list[WriteRun | ReadRun]:
    return list(shell.jobs.values())


def test_a_long_prompt_is_written_in_chunks_that_end_with_its_segments() -> None:
    shell = big()
    shell.store(shell.open(A), LONG)
    written: list[WriteRun | ReadRun] = []
    while shell.jobs:
        written.append(runs(shell)[0])
        shell.end_job(written[-1].job)
    lengths = [len(run.keys) for run in written]
    assert lengths == [64, 64, 128, PER_CHUNK, 88]
    assert [run.place for run in written] == [PAGE * sum(lengths[:at]) for at in range(5)]
    assert [key for run in written for key in run.keys] == LONG
    assert all(
        run.offsets == tuple(range(run.offsets[0], run.offsets[0] + PAGE * len(run.keys), PAGE))
        for run in written
    )


def test_a_long_prompt_is_read_in_few_chunks_in_its_order() -> None:
    shell = big()
    client = shell.open(A)
    shell.store(client, LONG)
    shell.end_jobs()
    second = Shell(extents=2, segments=2, pages_each=2048, disk=shell.disk)
    rows = shell.journal.items()
    second.step(
        adopted([k for _, (_, k, _) in rows], [p for _, (_, _, p) in rows], [at for at, _ in rows])
    )
    client = second.open(A)
    assert second.load(client, LONG, wait_ms=100) is None
    assert [len(run.keys) for run in runs(second)] == [PER_CHUNK, PER_CHUNK, 88]
    assert [key for run in runs(second) for key in run.keys] == LONG
    second.end_jobs()
    (load,) = second.loads.values()
    assert load.reply.blocks == 600
    check(second.engine)


def test_a_read_that_keeps_every_disk_thread_busy_goes_in_longer_runs() -> None:
    quarters = spec("quarters", page_bytes=RUN_BYTES // 4)
    blocks = chain("longer", SPREAD * 4)
    first = Shell(extents=5, segments=5, pages_each=2048)
    first.store(first.open(quarters), blocks)
    first.end_jobs()
    shell = Shell(extents=5, segments=5, pages_each=2048, disk=first.disk)
    rows = [(key, parent, at) for at, (_, key, parent) in first.journal.items()]
    shell.step(adopted(*(list(column) for column in zip(*rows, strict=True)), space=quarters))
    assert shell.load(shell.open(quarters), blocks, wait_ms=100) is None
    assert [len(run.keys) for run in runs(shell)] == [4] * SPREAD
    shell.end_jobs()
    assert shell.stats()["read_bytes"] == SPREAD * RUN_BYTES


def test_what_lies_in_a_row_on_disk_is_one_read_wherever_there_is_room_for_it() -> None:
    """Seen: reads were no longer than the chains that made room for them, for good."""
    shell = Shell(extents=1, segments=4, pages_each=8)
    client = shell.open(A)
    singles = [chain(f"single {n}", 1) for n in range(8)]
    for keys in (LONG[:4], *singles):
        shell.store(client, keys)
        shell.end_jobs()
    for keys in singles[::2]:
        load = shell.load(client, keys)
        assert load is not None
        shell.finish(load.ticket)
    assert shell.load(client, LONG[:4], wait_ms=100) is None
    (run,) = runs(shell)
    assert run.keys == tuple(LONG[:4])
    assert all(after - before > PAGE for before, after in pairwise(sorted(run.offsets)))
    shell.end_jobs()
    (found,) = shell.loads.values()
    assert found.reply.blocks == 4
    check(shell.engine)


def test_a_page_larger_than_a_run_is_a_run_of_its_own() -> None:
    wide = spec("wide", page_bytes=RUN_BYTES + 1)
    shell = Shell(extents=1, segments=1, pages_each=2048)
    shell.store(shell.open(wide), chain("w", 2))
    assert [len(run.keys) for run in runs(shell)] == [1]
    shell.end_jobs()
    assert shell.stats()["disk_pages"] == 2


def test_blocks_of_two_prompts_never_share_a_run() -> None:
    shell = big()
    client = shell.open(A)
    first = shell.prepare(client, chain("one", 3)).ticket
    second = shell.prepare(client, chain("two", 3)).ticket
    for ticket in (first, second):
        shell.fill(ticket)
        shell.complete(ticket)
    assert [len(run.keys) for run in runs(shell)] == [3, 3]


def test_a_hint_and_a_load_may_want_the_same_blocks() -> None:
    shell = Shell(extents=1, segments=2)
    client = shell.open(A)
    shell.store(client, LONG[:4])
    shell.end_jobs()
    shell.store(client, chain("other", 4))
    shell.end_jobs()
    shell.ask(client, Prefetch(tuple(LONG[:4])))
    assert shell.load(client, LONG[:4], wait_ms=100) is None
    assert len(shell.jobs) == 1
    shell.end_jobs()
    (load,) = shell.loads.values()
    assert load.reply.blocks == 4


def test_of_two_rows_for_one_key_or_one_place_the_later_holds() -> None:
    one, two, three = chain("rows", 3)
    shell = Shell(segments=2)
    shell.step(
        adopted([one, two, one, three], [ROOT, one, ROOT, two], [0, PAGE, 2 * PAGE, 2 * PAGE])
    )
    check(shell.engine)
    assert shell.stats()["disk_pages"] == 2
    assert shell.ask(shell.open(A), Lookup((two,))) == Looked(0, 1)
    assert shell.ask(shell.open(A), Lookup((one,))) == Looked(0, 0)


def test_rows_whose_parent_is_unknown_or_in_a_ring_are_adopted_and_can_be_given_up() -> None:
    one, two, three, four = chain("rows", 4)
    shell = Shell(extents=1, segments=1)
    shell.step(
        adopted(
            [one, two, three, four],
            [two, one, chain("gone", 1)[0], four],
            [0, PAGE, 2 * PAGE, 3 * PAGE],
        )
    )
    check(shell.engine)
    client = shell.open(A)
    shell.store(client, chain("fresh", 4))
    shell.end_jobs()
    check(shell.engine)
    assert shell.stats()["evicted_disk_blocks"] == 4
    find = shell.engine._state.blocks.tables[0].find
    assert [find(key) for key in (one, two, three, four)] == [None] * 4


def test_a_space_that_is_known_already_adopts_what_it_lacks() -> None:
    one, two, three = chain("rows", 3)
    shell = Shell(segments=2)
    client = shell.open(A)
    shell.store(client, [two], one)
    shell.end_jobs()
    shell.step(adopted([one, two, three], [ROOT, one, two], [4 * PAGE, 5 * PAGE, 6 * PAGE]))
    check(shell.engine)
    assert shell.stats()["disk_pages"] == 3
    assert shell.ask(client, Lookup((one, two, three))) == Looked(0, 3)


@pytest.mark.parametrize("place", [PAGE // 2, 3 * 4 * PAGE, -PAGE])
def test_a_place_that_is_no_page_of_the_tier_is_refused_and_nothing_adopted(place) -> None:
    keys = chain("rows", 3)
    shell = Shell(segments=2)
    with pytest.raises(BadRequest):
        shell.step(adopted(keys, [ROOT, *keys[:2]], [0, PAGE, place]))
    check(shell.engine)
    assert shell.stats()["blocks"] == 0
    assert shell.stats()["disk_pages"] == 0


def test_columns_of_different_length_are_refused() -> None:
    shell = Shell()
    event = dataclasses.replace(adopted(chain("rows", 2), [ROOT] * 2, [0, PAGE]), places=[0])
    with pytest.raises(BadRequest):
        shell.step(event)


def test_a_segment_with_too_many_pages_for_a_step_goes_to_another_size_in_parts() -> None:
    old = [number.to_bytes(16, "big") for number in range(1, EMPTIED_MAX + 2 * PART_MAX + 1)]
    shell = Shell(extents=2, segments=1, pages_each=len(old))
    shell.step(adopted(old, [ROOT] * len(old), list(range(0, PAGE * len(old), PAGE))))
    client = shell.open(spec("b", 2 * PAGE))
    pages = []
    for number in range(3):
        shell.store(client, chain(f"new/{number}", 16))
        pages.append(shell.engine.stats()["disk_pages"])
    assert pages == [EMPTIED_MAX + PART_MAX, EMPTIED_MAX, 16]
    assert [len(run.keys) for run in runs(shell)] == [16]


def test_a_disk_that_hangs_makes_what_lies_there_a_miss_until_a_probe_passes() -> None:
    shell = Shell(extents=1, segments=4)
    client = shell.open(A)
    for name in ("one", "two"):
        shell.store(client, chain(name, 4))
        shell.end_jobs()
    one = chain("one", 4)
    shell.load(client, one[:1], wait_ms=30_000)
    shell.now_s += 2
    assert shell.ask(client, Lookup(tuple(one))) == Looked(0, 1)
    assert shell.stats()["disk_breaker"] == "open"
    assert shell.load(client, one[1:], wait_ms=100).blocks == 0
    shell.now_s += 2
    assert shell.ask(client, Lookup(tuple(one))).pending == 4
    assert shell.stats()["disk_breaker"] == "half_open"
    for key in one[1:]:
        assert shell.load(client, [key], wait_ms=100) is None
        shell.end_job(next(reversed(shell.jobs)))
    assert shell.stats()["disk_breaker"] == "closed"
    assert shell.stats()["disk_breaker_opened"] == 1
    shell.end_jobs()
    check(shell.engine)
