"""One look at the board tells that no tier holds a prompt's first block, and never wrongly."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.core import walker
from tests.core.shell import Shell, chain, spec

from onggi_core.board.beginnings import FULL, Beginnings, place
from onggi_core.board.layout import SLOTS_MIN, Layout
from onggi_core.board.reader import BoardReader
from onggi_core.board.writer import Board
from onggi_core.identity import ROOT
from onggi_core.index.adopting import add_adopted
from onggi_core.index.blocks import Blocks
from onggi_core.index.digests import Digests
from onggi_core.page import PageState
from onggi_core.wire.replies import Mode
from onggi_core.wire.requests import Discard, Missed, Prefetch

A, B = spec("A"), spec("B")


def reader(engine: Any) -> BoardReader:
    board = engine._state.board
    return BoardReader(board.buffer.obj, board.layout.slots)


def test_a_prompt_may_begin_from_its_store_to_its_last_page() -> None:
    shell = Shell(segments=0)
    session, keys = shell.open(A, B), chain("p", 4)
    board = reader(shell.engine)
    assert not board.may_begin(keys[0])
    ticket = shell.prepare(session, keys).ticket  # type: ignore[union-attr]
    assert board.may_begin(keys[0])
    shell.fill(ticket)
    shell.complete(ticket)
    assert board.may_begin(keys[0])
    assert not board.may_begin(keys[1]), "no prompt begins in the middle of another"
    shell.ask(session, Discard(tuple(keys)))
    walker.check(shell.engine)
    assert not board.may_begin(keys[0])


def test_what_lies_on_disk_alone_may_begin() -> None:
    shell = Shell(extents=1, segments=4)
    session, first = shell.open(A), chain("first", 4)
    shell.store(session, first)
    shell.end_jobs()
    shell.store(session, chain("second", 4))
    shell.end_jobs()
    looked = shell.ask(session, Prefetch(tuple(first)))
    assert (looked.ready, looked.pending) == (0, 4)  # type: ignore[union-attr]
    assert reader(shell.engine).may_begin(first[0])


def test_prompts_missed_on_the_board_count_as_if_they_had_been_asked_for() -> None:
    told, asked = Shell(), Shell()
    prompts = tuple(tuple(chain(name, 4)) for name in "xyz")
    session = told.open(A)
    told.ask(session, Missed(prompts))
    other = asked.open(A)
    for prompt in prompts:
        asked.ask(other, Prefetch(prompt))
    names = ("lookup_requests", "lookup_blocks", "miss_blocks", "demand", "observe")
    assert {n: told.stats()[n] for n in names} == {n: asked.stats()[n] for n in names}
    assert told.stats()["miss_blocks"] == 12
    told.finish(told.load(session, told_store(told, session)).ticket)
    assert told.stats()["lookup_requests"] == 3, "who tells of prompts has its loads not counted"


def told_store(shell: Shell, session: int) -> list[bytes]:
    keys = chain("stored", 2)
    shell.store(session, keys)
    return keys


def test_a_full_byte_stays_and_others_count_down() -> None:
    counts = memoryview(bytearray(16))
    beginnings = Beginnings(counts)
    same = b"".join(bytes(12) + number.to_bytes(4, "big") for number in range(300))
    for block in range(300):
        beginnings.add(block, same)
        beginnings.add(block, same)  # again: it is counted once
    assert counts[0] == FULL
    beginnings.remove(range(300), same)
    assert counts[0] == FULL
    beginnings.add(7, bytes(7 * 16) + b"\1" * 16)
    assert counts[1] == 1
    beginnings.remove(range(9), bytes(7 * 16) + b"\1" * 16)
    assert counts[1] == 0
    beginnings.remove(range(5000, 5004), b"")


@pytest.mark.parametrize("said", [0, 1, 8192, 1 << 40])
def test_a_board_that_says_nothing_of_beginnings_is_asked(said: int) -> None:
    buffer = bytearray(Layout(SLOTS_MIN).nbytes)
    Board(buffer, SLOTS_MIN)
    assert not BoardReader(buffer, SLOTS_MIN).may_begin(b"k" * 16)
    buffer[8:16] = said.to_bytes(8, "little")
    assert BoardReader(buffer, SLOTS_MIN).may_begin(b"k" * 16)


def test_adopted_chains_begin_where_they_follow_nothing() -> None:
    counts = memoryview(bytearray(1 << 10))
    index = Blocks(Beginnings(counts))
    index.table_for(0)
    prompts = [chain(f"p{number}", 5) for number in range(20)]
    keys = [key for prompt in prompts for key in prompt]
    parents = [key for prompt in prompts for key in (ROOT, *prompt[:-1])]
    add_adopted(index, 0, Digests(b"".join(keys)), Digests(b"".join(parents)))
    assert sum(counts) == 20
    assert all(counts[place(prompt[0], len(counts))] for prompt in prompts)


def test_adopted_beginnings_behind_a_key_of_zeros_are_counted() -> None:
    counts = memoryview(bytearray(1 << 10))
    index = Blocks(Beginnings(counts))
    index.table_for(0)
    keys = [*chain("p", 2), ROOT, *chain("q", 2)]
    parents = [ROOT, keys[0], keys[1], ROOT, keys[3]]
    made = add_adopted(index, 0, Digests(b"".join(keys)), Digests(b"".join(parents)))
    assert counts[place(keys[3], len(counts))] == 1
    assert index.kids[made.blocks[2]] == 0
    assert index.depth[made.blocks[4]] == 1


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32))
def test_whatever_comes_and_goes_what_is_held_may_begin(seed: int) -> None:
    dice = random.Random(seed)
    counts = memoryview(bytearray(64))
    index = Blocks(Beginnings(counts))
    index.table_for(0)
    prompts = [chain(f"p{number}", 6) for number in range(8)]
    states = index.host.states
    for _ in range(60):
        prompt = dice.choice(prompts)
        begin = dice.choice((0, 0, dice.randrange(6)))
        parent = prompt[begin - 1] if begin else ROOT
        if dice.random() < 0.6:
            keys = prompt[begin:]
            made = None
            if all(index.tables[0].find(key) is None for key in keys):
                made = index.new_chain(0, keys, parent)
            above = [parent, *keys]
            blocks = made or [index.new(0, *pair) for pair in zip(keys, above, strict=False)]
            for block in blocks:
                states[block] = PageState.SEALED
        else:
            blocks = [index.tables[0].find(key) for key in prompt[begin:]]
            held = [block for block in blocks if block is not None and states[block]]
            for block in held:
                states[block] = PageState.FREE
            if held and held == list(range(held[0], held[-1] + 1)):
                index.forget_tail(range(held[0], held[-1] + 1))
            else:
                for block in reversed(held):
                    index.forget_if_nowhere(block)
        for one in prompts:
            block = index.tables[0].find(one[0])
            if block is not None and states[block]:
                assert counts[place(one[0], 64)], "it is held, and the board denies it"
    for block in [n for n, state in enumerate(states) if state]:
        states[block] = PageState.FREE
        index.forget_if_nowhere(block)
    assert len(index) == 0
    assert not any(counts), "all went"


def test_a_paused_agent_counts_what_was_missed_as_it_counts_what_was_asked() -> None:
    shell = Shell()
    session = shell.open(A)
    shell.engine._state.mode = Mode.PAUSED
    shell.ask(session, Missed((tuple(chain("p", 3)),)))
    assert shell.stats()["miss_blocks"] == 3
    assert shell.stats()["observe"]["asked_blocks"] == 0
