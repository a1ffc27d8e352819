"""What a mistaken or hostile client may not do to the others. Each was seen once."""

from __future__ import annotations

from shell import PAGE, Shell, chain, spec

from onggi_core.engine import writeback
from onggi_core.engine.actions import Refuse
from onggi_core.engine.events import IoOutcome, SessionOpened
from onggi_core.engine.state import SPACES_MAX
from onggi_core.wire.replies import Looked, Slot
from onggi_core.wire.requests import Hello, Lookup, Prefetch

A = spec("a")


def test_rings_of_parents_can_be_evicted() -> None:
    """A block that is its own parent, or two that are each other's, had no leaf and never went."""
    shell = Shell(extents=1, segments=0)
    client = shell.open(A)
    one, two, three = chain("ring", 3)
    assert shell.store(client, [one], parent=one) == 1
    assert shell.store(client, [two], parent=three) == 1
    assert shell.store(client, [three], parent=two) == 1
    fresh = chain("fresh", 4)
    assert shell.store(client, fresh) == 4
    assert shell.ask(client, Lookup(tuple(fresh))) == Looked(4, 4)


def test_a_hello_never_costs_a_space_that_it_names_itself() -> None:
    """With all but one space in use, naming an idle one and two new ones dropped the idle one."""
    shell = Shell()
    for number in range(0, SPACES_MAX - 1, 31):
        names = range(number, min(number + 31, SPACES_MAX - 1))
        shell.open(*[spec(f"used {n}") for n in names])
    idle = shell.open(A)
    shell.close(idle)
    shell.step(SessionOpened(10_000))
    refused = shell.ask(10_000, Hello(1, "test", (A, spec("new 1"), spec("new 2"))))
    assert isinstance(refused, Refuse)
    assert "spaces" in refused.sentence
    again = shell.open(A)
    assert shell.store(again, chain("x", 1)) == 1
    shell.end_jobs()
    assert shell.stats()["spaces"] == SPACES_MAX


def test_a_disk_that_hangs_pins_no_more_than_a_quarter_of_the_arena() -> None:
    """64 pages under way were all the arena there was, and no store found room any more."""
    shell = Shell(extents=4, segments=4)
    client = shell.open(A)
    for name in "abcdefgh":
        assert shell.store(client, chain(name, 2)) == 2
    assert sum(len(job.keys) for job in shell.jobs.values()) == 16 // writeback.WRITES_SHARE


def test_a_full_filesystem_keeps_what_is_on_disk() -> None:
    """With every segment resting, each new block evicted one after another and found no place."""
    shell = Shell(extents=4, segments=1)
    client = shell.open(A)
    kept = chain("kept", 4)
    shell.store(client, kept)
    shell.end_jobs()
    for name in "abc":
        shell.store(client, chain(name, 2))
        while shell.jobs:
            shell.end_job(next(iter(shell.jobs)), IoOutcome.NO_SPACE)
    assert shell.stats()["disk_pages"] == 4 - 2  # one each for the two blocks that were tried
    assert shell.stats()["disk_used_bytes"] == 2 * PAGE


def test_a_key_that_a_hint_names_twice_is_brought_in_once() -> None:
    """The second began a read into a page that was being read into: the agent ended."""
    shell = Shell(extents=2, segments=2)
    client = shell.open(A)
    one, two = chain("twice", 2)
    shell.store(client, [one, two])
    shell.end_jobs()
    for name in ("x", "y"):
        shell.store(client, chain(name, 4))
    assert shell.ask(client, Prefetch((one, two, one, two))) == Looked(0, 4)
    assert [key for job in shell.jobs.values() for key in job.keys].count(one) == 1
    shell.end_jobs()
    assert shell.ask(client, Lookup((one, two))) == Looked(2, 2)


def test_what_a_store_is_told_of_does_not_make_room_for_it_though_no_chain_holds_it() -> None:
    """Only the last block that was here was kept, as if the others were what it stands on: a store
    was told EXISTS of a block whose page it was given itself."""
    shell = Shell(extents=1, segments=0)
    client = shell.open(A)
    old, new = chain("old", 4), chain("new", 3)
    shell.store(client, old)
    reply = shell.prepare(client, [old[1], old[0], *new])
    assert [slot in set(Slot) for slot in reply.slots] == [True, True, False, False, True]
    assert reply.slots[:2] == (Slot.EXISTS, Slot.EXISTS)
    assert reply.slots[4] == Slot.NO_ROOM
    assert shell.ask(client, Lookup(tuple(old))) == Looked(2, 2)


def test_nor_where_another_client_said_that_it_follows_nothing() -> None:
    shell = Shell(extents=1, segments=0)
    client = shell.open(A)
    one, two, three, four, five = chain("c", 5)
    for key in (one, two):
        shell.store(client, [key])
    shell.store(client, chain("d", 2))
    reply = shell.prepare(client, [one, two, three, four, five])
    assert reply.slots[:2] == (Slot.EXISTS, Slot.EXISTS)
    assert reply.slots[4] == Slot.NO_ROOM
    assert shell.ask(client, Lookup((one, two, three, four, five))) == Looked(2, 4)
