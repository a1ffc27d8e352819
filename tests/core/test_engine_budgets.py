"""Budgets that change while the tiers serve, and the room that is kept ready, a sentence a test."""

from __future__ import annotations

import itertools

import pytest
from shell import PAGE, Shell, chain, spec
from walker import check

from onggi_core.engine.actions import ReleaseExtent, ReleaseSegment, TouchExtent
from onggi_core.engine.budgets import GIVEN_UP_MAX, TOUCH_AGAIN_S
from onggi_core.engine.events import BudgetSet, ExtentTouched, GoOn, IoOutcome, Tick
from onggi_core.engine.state import LEASE_S
from onggi_core.errors import BadRequest
from onggi_core.wire.replies import Looked, Slot
from onggi_core.wire.requests import Lookup

A = spec("a")
KEYS = chain("prompt", 4)


def settle(shell: Shell) -> None:
    for _ in range(20):
        shell.end_jobs()
        shell.step(Tick())
        check(shell.engine)


def test_a_smaller_budget_lets_go_of_what_is_empty_at_once() -> None:
    shell = Shell(extents=4, segments=0)
    shell.store(shell.open(A), KEYS)
    actions = shell.step(BudgetSet(2, 0))
    assert actions == [ReleaseExtent(3), ReleaseExtent(2)]
    assert shell.ask(shell.open(A), Lookup(tuple(KEYS))) == Looked(4, 4)
    assert shell.stats()["arena_ready_bytes"] == 2 * 4 * PAGE


def test_a_smaller_budget_writes_down_before_it_gives_up() -> None:
    shell = Shell(extents=2, segments=4)
    client = shell.open(A)
    for name in ("one", "two"):
        shell.store(client, chain(name, 4))
    shell.step(BudgetSet(1, 4))
    assert shell.stats()["arena_leaving_bytes"] == 4 * PAGE
    settle(shell)
    assert shell.stats()["arena_leaving_bytes"] == 0
    assert shell.stats()["unwritten_blocks"] == 0
    assert shell.ask(client, Lookup(tuple(chain("one", 4)))).pending == 4
    assert shell.ask(client, Lookup(tuple(chain("two", 4)))).pending == 4
    assert len(shell.extents_held) == 1


@pytest.mark.parametrize("how", ["pinned", "reserved", "quarantined"])
def test_a_shrink_waits_for_who_uses_a_page_and_ends_by_itself(how) -> None:
    shell = Shell(extents=1, segments=0)
    client = shell.open(A)
    if how == "pinned":
        shell.store(client, KEYS)
        ticket = shell.load(client, KEYS[:1]).ticket
    else:
        ticket = shell.prepare(client, KEYS).ticket
    if how == "quarantined":
        shell.now_s += LEASE_S
        shell.step(Tick())
    shell.step(BudgetSet(0, 0))
    settle(shell)
    assert shell.extents_held == {0}
    assert shell.prepare(client, chain("more", 1)).slots == (Slot.NO_ROOM,)
    if how == "pinned":
        shell.finish(ticket)
    else:
        shell.fill(ticket)
        shell.complete(ticket)
    settle(shell)
    assert shell.extents_held == set()
    assert shell.stats()["host_pages"] == 0


def test_a_larger_budget_touches_first_and_offers_then() -> None:
    shell = Shell(extents=2, segments=0)
    client = shell.open(A)
    shell.step(BudgetSet(0, 0))
    assert shell.prepare(client, KEYS).slots == (Slot.NO_ROOM,) * 4
    actions = shell.step(BudgetSet(2, 0))
    assert actions == [TouchExtent(0), TouchExtent(1)]
    assert shell.prepare(client, KEYS).slots == (Slot.NO_ROOM,) * 4
    shell.touch(1)
    assert shell.store(client, KEYS) == 4
    shell.touch(0)
    check(shell.engine)


def test_a_refused_extent_is_asked_for_again_one_at_a_time() -> None:
    shell = Shell(extents=3, segments=0)
    shell.step(BudgetSet(0, 0))
    shell.step(BudgetSet(3, 0))
    for number in tuple(shell.touching):
        shell.touch(number, refused=True)
    assert shell.stats()["refused_extents"] == 3
    assert not [a for a in shell.step(Tick()) if isinstance(a, TouchExtent)]
    shell.now_s += TOUCH_AGAIN_S
    assert shell.step(Tick()) == [TouchExtent(0)]
    shell.touch(0)
    shell.now_s += 1
    assert shell.step(Tick()) == [TouchExtent(1)]


def test_an_extent_that_comes_after_its_budget_went_is_let_go_of() -> None:
    shell = Shell(extents=2, touched=1, segments=0)
    shell.step(BudgetSet(1, 0))
    shell.extents_held.add(1)
    assert shell.step(ExtentTouched(1)) == [ReleaseExtent(1)]
    check(shell.engine)


def test_a_budget_that_comes_back_takes_back_what_has_not_left() -> None:
    shell = Shell(extents=2, segments=0)
    client = shell.open(A)
    ticket = shell.prepare(client, [*KEYS, *chain("more", 4)]).ticket
    shell.step(BudgetSet(1, 0))
    assert shell.stats()["arena_leaving_bytes"] == 4 * PAGE
    assert not [a for a in shell.step(BudgetSet(2, 0)) if isinstance(a, TouchExtent)]
    shell.fill(ticket)
    assert shell.complete(ticket).sealed == 8
    assert shell.stats()["arena_leaving_bytes"] == 0


def test_a_smaller_disk_budget_forgets_what_was_there_and_lets_go_of_the_file() -> None:
    shell = Shell(extents=2, segments=2)
    client = shell.open(A)
    for name in ("one", "two"):
        shell.store(client, chain(name, 4))
        shell.end_jobs()
    actions = shell.step(BudgetSet(2, 1))
    assert [a for a in actions if isinstance(a, ReleaseSegment)] == [ReleaseSegment(1)]
    assert shell.stats()["disk_pages"] == 4
    assert len(shell.journal) == 4
    settle(shell)
    shell.step(BudgetSet(2, 2))
    shell.store(client, chain("three", 4))
    shell.end_jobs()
    assert shell.stats()["disk_pages"] == 8


def test_a_disk_shrinks_only_once_its_readers_and_writers_are_done() -> None:
    shell = Shell(extents=1, segments=1)
    client = shell.open(A)
    shell.store(client, KEYS)
    shell.step(BudgetSet(1, 0))
    assert shell.stats()["disk_leaving_bytes"] == 4 * PAGE
    settle(shell)
    assert shell.stats()["disk_leaving_bytes"] == 0
    assert not shell.journal
    assert shell.ask(client, Lookup(tuple(KEYS))) == Looked(4, 4)


def test_a_segment_that_failed_in_a_place_can_leave_all_the_same() -> None:
    shell = Shell(extents=1, segments=1)
    shell.store(shell.open(A), KEYS)
    shell.end_job(next(iter(shell.jobs)), IoOutcome.FAULT, IoOutcome.DONE)
    shell.step(BudgetSet(1, 0))
    settle(shell)
    assert shell.stats()["disk_leaving_bytes"] == 0


@pytest.mark.parametrize(("extents", "segments"), [(3, 0), (-1, 0), (0, 3), (0, -1)])
def test_a_budget_that_cannot_be_is_refused_and_changes_nothing(extents, segments) -> None:
    shell = Shell(extents=2, segments=2)
    with pytest.raises(BadRequest):
        shell.step(BudgetSet(extents, segments))
    assert shell.stats()["arena_budget_bytes"] == 2 * 4 * PAGE


def test_no_step_of_a_shrink_gives_up_more_than_its_part() -> None:
    shell = Shell(extents=1, segments=0, pages_each=3 * GIVEN_UP_MAX)
    client = shell.open(A)
    shell.store(client, chain("long", 3 * GIVEN_UP_MAX))
    left = [shell.stats()["host_pages"]]
    shell.step(BudgetSet(0, 0))
    left.append(shell.stats()["host_pages"])
    while shell.extents_held:
        shell.step(Tick())
        left.append(shell.stats()["host_pages"])
    assert max(a - b for a, b in itertools.pairwise(left)) <= 2 * GIVEN_UP_MAX
    assert left[-1] == 0


def test_above_the_high_watermark_cold_leaves_go_down_to_the_low_one_and_a_store_finds_room() -> (
    None
):
    shell = Shell(extents=1, segments=0, pages_each=256)
    client = shell.open(A)
    for name in ("cold", "warm"):
        shell.store(client, chain(name, 128))
    shell.step(Tick())
    assert shell.stats()["host_pages"] == 256 - 8
    assert shell.stats()["watermark_blocks"] == 8
    assert shell.ask(client, Lookup(tuple(chain("cold", 128)))) == Looked(120, 120)
    evicted = shell.stats()["evicted_host_blocks"]
    assert shell.store(client, chain("new", 8)) == 8
    assert shell.stats()["evicted_host_blocks"] == evicted


def test_what_is_not_on_disk_yet_is_not_given_up_ahead_of_time() -> None:
    shell = Shell(extents=1, segments=4, pages_each=256)
    client = shell.open(A)
    shell.store(client, chain("first", 256))
    shell.step(Tick())
    assert shell.stats()["watermark_blocks"] == 0
    shell.end_jobs()
    shell.step(Tick())
    assert shell.stats()["watermark_blocks"] == 8
    assert shell.stats()["unwritten_blocks"] == 0
    assert shell.ask(client, Lookup(tuple(chain("first", 256)))).pending == 256


def test_each_page_size_has_room_of_its_own_kept_ready_whatever_else_was_ever_used() -> None:
    """One client with pages larger than a part in 64 turned it off for all."""
    shell = Shell(extents=4, segments=0, pages_each=128)
    huge, large, small = (shell.open(spec(n, page_bytes=PAGE * k)) for n, k in SIZES)
    assert shell.store(huge, chain("huge", 2)) == 2
    shell.store(large, chain("large", 128))
    for number in range(2):
        shell.store(small, chain(f"small {number}", 64))
    rest(shell)
    slab = shell.engine._state.host.slab
    assert slab.room(PAGE) >= 512 // 32
    assert slab.room(4 * PAGE) * 4 >= 512 // 32
    evicted = shell.stats()["evicted_host_blocks"]
    assert shell.store(small, chain("new", 8)) == 8
    assert shell.store(large, chain("new", 2)) == 2
    assert shell.stats()["evicted_host_blocks"] == evicted


SIZES = (("huge", 16), ("large", 4), ("small", 1))


def rest(shell: Shell) -> None:
    shell.step(Tick())
    while shell.engine.busy:
        shell.step(GoOn())
        check(shell.engine)


def test_a_store_that_passes_the_high_watermark_is_noticed_without_a_tick() -> None:
    shell = Shell(extents=1, segments=0, pages_each=256)
    client = shell.open(A)
    shell.store(client, chain("cold", 128))
    assert not shell.engine.busy
    shell.store(client, chain("warm", 126))
    assert shell.engine.busy
    shell.step(GoOn())
    assert shell.stats()["host_pages"] == 256 - 8
    assert not shell.engine.busy


def test_what_cannot_be_given_up_yet_keeps_nobody_busy() -> None:
    shell = Shell(extents=1, segments=4, pages_each=256)
    shell.store(shell.open(A), chain("first", 256))
    shell.step(GoOn())
    assert not shell.engine.busy
    assert shell.stats()["watermark_blocks"] == 0


def test_a_long_shrink_goes_on_between_ticks_and_one_that_waits_keeps_nobody_busy() -> None:
    shell = Shell(extents=1, segments=0, pages_each=3 * GIVEN_UP_MAX)
    client, keys = shell.open(A), chain("long", 3 * GIVEN_UP_MAX)
    shell.store(client, keys)
    ticket = shell.load(client, keys[:1]).ticket
    shell.step(BudgetSet(0, 0))
    steps = 0
    while shell.engine.busy:
        shell.step(GoOn())
        steps += 1
    assert steps == 3 - 1
    assert shell.stats()["host_pages"] == 1  # a reader holds it
    shell.finish(ticket)
    settle(shell)
    assert shell.extents_held == set()
