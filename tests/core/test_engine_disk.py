"""What the engine does with its disk tier, one sentence a test."""

from __future__ import annotations

import pytest
from shell import PAGE, Shell, chain, checksum, spec

from onggi_core.engine import loads
from onggi_core.engine.actions import WriteRun
from onggi_core.engine.engine import Engine
from onggi_core.engine.events import (
    Adopted,
    ExtentTouched,
    IoOutcome,
    Stopping,
    Tick,
)
from onggi_core.policy.names import PolicyName
from onggi_core.wire.replies import Looked, Slot
from onggi_core.wire.requests import (
    Lookup,
    Prefetch,
)

A, B = spec("a"), spec("b")
KEYS = chain("prompt", 4)


def on_disk_alone(*, apart: bool = False) -> tuple[Shell, int]:
    """KEYS were written down and their host pages given to others. The shell, and a client.

    apart: another's block lies between the first of them and the rest."""
    shell = Shell(extents=1, segments=3)
    client = shell.open(A)
    shell.store(client, KEYS[:1])
    shell.end_jobs()
    if apart:
        shell.store(client, chain("between", 1))
        shell.end_jobs()
    shell.store(client, KEYS[1:], KEYS[0])
    shell.end_jobs()
    shell.store(client, chain("other", 4))
    shell.end_jobs()
    return shell, client


def left_by(life: Shell) -> Adopted:
    """What the journal of an earlier life tells the next one."""
    rows = life.journal.values()
    return Adopted(
        A,
        keys=[key for _, key, _ in rows],
        parents=[parent for _, _, parent in rows],
        places=list(life.journal),
        checksums=[checksum(life.disk[place]) for place in life.journal],
    )


def test_what_went_to_disk_comes_back_verified() -> None:
    shell, client = on_disk_alone()
    assert shell.ask(client, Lookup(tuple(KEYS))) == Looked(0, 4)
    assert shell.load(client, KEYS, wait_ms=100) is None
    shell.end_jobs()
    (ticket,) = shell.loads
    shell.finish(ticket)
    stats = shell.stats()
    assert stats["hit_disk_blocks"] == 4
    assert stats["hit_host_blocks"] == 0
    assert stats["tokens_saved"] == 64


def test_a_damaged_block_on_disk_is_a_miss_and_the_run_before_it_a_hit() -> None:
    shell, client = on_disk_alone()
    place = next(p for p, (_, key, _) in shell.journal.items() if key == KEYS[2])
    shell.disk[place] = b"flipped"
    shell.load(client, KEYS, wait_ms=100)
    shell.end_jobs()
    (load,) = shell.loads.values()
    assert load.reply.blocks == 2
    assert shell.stats()["errors"] == {"corrupt": 1}
    assert place not in shell.journal


def test_a_load_whose_wait_ends_gets_the_run_that_is_there() -> None:
    shell, client = on_disk_alone(apart=True)
    shell.load(client, KEYS, wait_ms=100)
    assert [len(job.keys) for job in shell.jobs.values()] == [1, 2, 1]  # a file holds four
    shell.end_job(next(iter(shell.jobs)))
    shell.now_s += 1
    shell.step(Tick())
    (load,) = shell.loads.values()
    assert load.reply.blocks == 1


def test_prefetch_brings_blocks_in_so_that_a_load_need_not_wait() -> None:
    shell, client = on_disk_alone()
    assert shell.ask(client, Prefetch(tuple(KEYS))) == Looked(0, 4)
    shell.end_jobs()
    assert shell.load(client, KEYS).blocks == 4
    assert shell.stats()["prefetched_blocks"] == 4


def test_what_is_here_of_a_prompt_does_not_make_room_for_the_rest_of_it() -> None:
    """The beginning went for the end, which is worth nothing without it."""
    shell = Shell(extents=1, segments=4)
    client = shell.open(A)
    long = chain("longer than the arena", 6)
    shell.store(client, long[:4])
    shell.end_jobs()
    shell.store(client, chain("other", 4))
    shell.end_jobs()
    shell.store(client, long[4:], long[3])
    shell.end_jobs()
    assert shell.load(client, long[:2], wait_ms=1000) is None
    shell.end_jobs()
    shell.finish(next(iter(shell.loads)))
    shell.store(client, chain("another", 2))
    shell.end_jobs()
    assert shell.ask(client, Prefetch(tuple(long))) == Looked(2, 6)
    shell.end_jobs()
    assert shell.ask(client, Lookup(tuple(long))) == Looked(4, 6)


def test_nor_in_another_space() -> None:
    shell = Shell(extents=1, segments=3)
    client = shell.open(A, B)
    shell.store(client, KEYS[:3], space=1)
    shell.end_jobs()
    shell.store(client, KEYS[:3], space=0)
    shell.end_jobs()
    went = shell.stats()["evicted_host_blocks"]
    assert shell.ask(client, Prefetch(tuple(KEYS[:3]))) == Looked(1, 3)
    assert shell.stats()["evicted_host_blocks"] == went
    assert not shell.jobs, "there was no room to read to"


def ends(shell: Shell) -> tuple[int, ...]:
    stats = shell.stats()
    return tuple(stats[f"prefetch_{end}_blocks"] for end in ("useful", "late", "useless"))


def test_a_prefetch_is_useful_once_when_a_load_uses_what_it_brought() -> None:
    shell, client = on_disk_alone()
    shell.ask(client, Prefetch(tuple(KEYS)))
    shell.end_jobs()
    shell.load(client, KEYS[:3])
    assert ends(shell) == (0, 0, 0)  # offered, not used yet
    for _ in range(2):
        for ticket in tuple(shell.loads):
            shell.finish(ticket)
        assert ends(shell) == (3, 0, 0)
        shell.load(client, KEYS[:3])


def test_a_prefetch_is_late_when_a_load_has_to_wait_for_it() -> None:
    shell, client = on_disk_alone()
    shell.ask(client, Prefetch(tuple(KEYS)))
    shell.load(client, KEYS, wait_ms=100)
    assert ends(shell) == (0, 4, 0)
    shell.end_jobs()
    (ticket,) = shell.loads
    shell.finish(ticket)
    assert ends(shell) == (0, 4, 0)


def test_a_prefetch_is_useless_when_its_blocks_are_evicted_unused() -> None:
    shell, client = on_disk_alone()
    shell.ask(client, Prefetch(tuple(KEYS)))
    shell.end_jobs()
    assert shell.store(client, chain("crowd", 4)) > 0
    assert ends(shell)[2] > 0
    assert ends(shell)[:2] == (0, 0)


def test_blocks_of_an_earlier_life_are_adopted() -> None:
    first = Shell()
    client = first.open(A)
    first.store(client, KEYS)
    first.end_jobs()
    second = Shell(disk=first.disk, journal=dict(first.journal))
    second.step(left_by(first))
    client = second.open(A)
    assert second.ask(client, Lookup(tuple(KEYS))) == Looked(0, 4)
    second.load(client, KEYS, wait_ms=100)
    second.end_jobs()
    (load,) = second.loads.values()
    assert load.reply.blocks == 4


def test_a_full_filesystem_rests_its_segment_and_the_tier_goes_on() -> None:
    shell = Shell(segments=2)
    client = shell.open(A)
    shell.store(client, KEYS)
    shell.end_jobs()
    shell.store(client, chain("more", 2))
    assert [(job.place // (4 * PAGE), len(job.keys)) for job in shell.jobs.values()] == [(1, 2)]
    for job in tuple(shell.jobs):
        shell.end_job(job, IoOutcome.NO_SPACE)
    assert {job.place // (4 * PAGE) for job in shell.jobs.values()} == {0}
    shell.end_jobs()
    assert shell.stats()["errors"] == {"no_space": 2}
    shell.now_s += 11
    shell.step(Tick())
    shell.store(client, chain("third", 2))
    assert {job.place // (4 * PAGE) for job in shell.jobs.values()} == {1}


def test_a_place_that_failed_is_never_used_again() -> None:
    shell = Shell(extents=1, segments=1)
    client = shell.open(A)
    shell.store(client, KEYS[:1])
    (job,) = shell.jobs.values()
    assert isinstance(job, WriteRun)
    shell.end_job(job.job, IoOutcome.FAULT)
    for name in "abcdefgh":
        shell.store(client, chain(name, 1))
        assert all(other.place != job.place for other in shell.jobs.values())
        shell.end_jobs()


def test_a_segment_with_a_place_that_failed_is_not_emptied_for_another_size() -> None:
    shell = Shell(extents=4, segments=1)
    client = shell.open(A)
    shell.store(client, KEYS[:4])
    (job,) = shell.jobs.values()
    shell.end_job(job.job, IoOutcome.FAULT, IoOutcome.DONE)
    assert shell.stats()["disk_pages"] == 3
    shell.store(shell.open(spec("large", 2 * PAGE)), chain("large", 1))
    assert not shell.jobs
    assert shell.stats()["disk_pages"] == 3


def test_past_a_bound_of_blocks_a_load_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loads, "WAITING_BLOCKS_MAX", 4)
    shell = Shell(extents=2)
    client = shell.open(A)
    ticket = shell.prepare(client, KEYS[:4]).ticket
    assert shell.load(client, KEYS[:2], wait_ms=1000) is None
    assert shell.load(client, KEYS[:2], wait_ms=1000) is None
    answered = shell.load(client, KEYS[:4], wait_ms=1000)
    assert answered is not None
    assert answered.blocks == 0
    shell.fill(ticket)
    shell.complete(ticket)
    assert [load.reply.blocks for load in shell.loads.values()] == [2, 2]
    assert shell.load(client, KEYS[:4], wait_ms=1000).blocks == 4


def test_stopping_answers_those_who_wait_and_admits_nothing() -> None:
    shell, client = on_disk_alone()
    assert shell.load(client, KEYS, wait_ms=1000) is None
    shell.step(Stopping())
    assert not shell.asked_loads
    assert shell.prepare(client, chain("x", 1)).slots == (Slot.NO_ROOM,)


def test_on_a_full_filesystem_each_block_is_tried_twice_at_most() -> None:
    shell = Shell(extents=4, segments=10)
    client = shell.open(A)
    shell.store(client, KEYS)
    shell.end_jobs()
    shell.store(client, chain("more", 8))
    tries = 0
    while shell.jobs:
        job = next(iter(shell.jobs.values()))
        full = job.place >= 4 * PAGE
        tries += 1
        shell.end_job(job.job, IoOutcome.NO_SPACE if full else IoOutcome.DONE)
    assert tries <= 2 * 8
    assert shell.stats()["disk_pages"] == 4


def test_a_load_that_comes_before_the_first_extent_waits_for_it() -> None:
    """An engine that outlives its agent got nothing in the agent's first second, though all of it
    lay on disk."""
    first = Shell()
    client = first.open(A)
    first.store(client, KEYS)
    first.end_jobs()
    second = Shell(touched=0, disk=first.disk)
    second.step(left_by(first))
    client = second.open(A)
    assert second.load(client, KEYS).blocks == 0
    assert second.load(client, KEYS, wait_ms=100) is None
    assert second.load(client, chain("nowhere", 2), wait_ms=100).blocks == 0
    second.step(ExtentTouched(0))
    second.end_jobs()
    (ticket,) = second.loads
    assert second.loads[ticket].reply.blocks == 4
    second.finish(ticket)
    assert second.stats()["waiting_loads"] == 0


def test_a_load_parked_before_the_first_extent_ends_with_its_wait() -> None:
    first = Shell()
    first.store(first.open(A), KEYS)
    first.end_jobs()
    second = Shell(touched=0, disk=first.disk)
    second.step(left_by(first))
    client = second.open(A)
    second.load(client, KEYS, wait_ms=100)
    second.now_s += 1
    second.step(Tick())
    assert not second.asked_loads
    second.step(ExtentTouched(0))
    assert not second.jobs


def test_a_load_that_waits_for_a_hint_hurries_its_read_and_says_so_once() -> None:
    shell, client = on_disk_alone()
    assert shell.ask(client, Prefetch(tuple(KEYS))) == Looked(0, 4)
    hinted = set(shell.jobs)
    for _ in range(2):
        assert shell.load(client, KEYS, wait_ms=100) is None
    assert set(shell.hurried) == hinted
    assert len(shell.hurried) == len(hinted)
    shell.end_jobs()
    assert len(shell.loads) == 2


def test_a_read_for_a_load_is_never_hurried() -> None:
    shell, client = on_disk_alone()
    for _ in range(2):
        assert shell.load(client, KEYS, wait_ms=100) is None
    assert shell.hurried == []
    shell.end_jobs()


@pytest.mark.parametrize("segments", [3, 1], ids=["disk is larger", "arena is larger"])
def test_a_block_on_disk_does_not_make_room_for_the_block_that_follows_it(segments: int) -> None:
    """It was used longest ago; what follows it would be worth nothing without it."""
    shell = Shell(extents=2, segments=segments, pages_each=4)
    shell.engine = Engine(shell.engine._state.facts, candidates=(PolicyName.LRU,))
    for number in range(2):
        shell.step(ExtentTouched(number))
    client = shell.open(spec("a"))
    first, second = chain("talk", 2)
    assert shell.store(client, [first]) == 1
    for number in range(4 * segments - 1):
        shell.end_jobs()
        assert shell.store(client, chain(f"once {number}", 1)) == 1
    shell.end_jobs()
    assert len(shell.journal) == 4 * segments
    assert shell.store(client, [second], parent=first) == 1
    shell.end_jobs()
    on_disk = {key for _, key, _ in shell.journal.values()}
    assert {first, second} <= on_disk
    assert len(on_disk) == 4 * segments
