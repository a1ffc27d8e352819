"""Copies that two threads share: all bytes, each once, and none after the call is over."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onggi import crew
from onggi.crew import (
    CHUNK_BYTES,
    SHARED_FROM_BYTES,
    TRY_AGAIN,
    TRY_BOTH,
    Crew,
    Move,
    move,
)

PAGE = 4096


class Memory:
    """Bytes with an address."""

    def __init__(self, nbytes: int, content: bytes = b"") -> None:
        self.buffer = bytearray(content or bytes(nbytes))
        self._held = ctypes.c_char.from_buffer(self.buffer)
        self.address = ctypes.addressof(self._held)


def numbered(pages: int) -> bytes:
    return b"".join(number.to_bytes(8, "big") * (PAGE // 8) for number in range(pages))


def yes() -> bool:
    return True


def shared(crew: Crew, moves: Sequence[Move], may: Callable[[], bool]) -> bool:
    """A copy that goes the shared way for sure: the second does."""
    crew.move([(moves[0][0], moves[0][1], 1)], 1, yes)
    return crew.move(moves, 1, may)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(1, 700), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_every_byte_gets_where_it_belongs(sizes: list[int], dice: object) -> None:
    pages = sum(sizes)
    source, target = Memory(0, numbered(pages)), Memory(pages * PAGE)
    places, at = [], 0
    for size in sizes:
        places.append((at, size))
        at += size
    dice.shuffle(order := list(places))  # type: ignore[attr-defined]
    moves, expected, to = [], bytearray(), 0
    for begin, size in order:
        moves.append((target.address + to, source.address + begin * PAGE, size * PAGE))
        expected += source.buffer[begin * PAGE : (begin + size) * PAGE]
        to += size * PAGE
    assert move(moves, yes)
    assert target.buffer == expected


def test_a_copy_that_may_not_go_on_says_so_and_has_ended() -> None:
    source, target = Memory(0, b"x" * 8 * CHUNK_BYTES), Memory(8 * CHUNK_BYTES)
    asked = []

    def twice() -> bool:
        asked.append(threading.current_thread())
        return len(asked) < 3

    assert not shared(Crew(), [(target.address, source.address, 8 * CHUNK_BYTES)], twice)
    seen = bytes(target.buffer)
    assert seen.count(b"x") <= 4 * CHUNK_BYTES
    assert bytes(target.buffer) == seen


def test_the_caller_waits_for_what_the_second_thread_still_copies() -> None:
    source, target = Memory(0, b"x" * 8 * CHUNK_BYTES), Memory(8 * CHUNK_BYTES)
    caller, there, ended = threading.current_thread(), threading.Event(), []

    def slow_on_the_second() -> bool:
        if threading.current_thread() is caller:
            there.wait(60)
            return True
        if not there.is_set():
            there.set()
            threading.Event().wait(0.2)
            ended.append(True)
        return True

    assert shared(Crew(), [(target.address, source.address, 8 * CHUNK_BYTES)], slow_on_the_second)
    assert ended, "it came back while the second thread was still at it"
    assert bytes(target.buffer) == bytes(source.buffer)


def test_a_fault_on_the_second_thread_is_the_callers() -> None:
    source, target = Memory(8 * CHUNK_BYTES), Memory(8 * CHUNK_BYTES)
    caller, failed = threading.current_thread(), threading.Event()

    def fails_on_the_second() -> bool:
        if threading.current_thread() is caller:
            failed.wait(60)
            return True
        failed.set()
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        shared(Crew(), [(target.address, source.address, 8 * CHUNK_BYTES)], fails_on_the_second)


def test_nothing_is_kept_of_a_copy_that_is_over() -> None:
    """What it asked whether it may is the arena, whose mapping goes with the last who holds it."""

    class Asked:
        def __call__(self) -> bool:
            return True

    one, asked = Crew(), Asked()
    source, target = Memory(0, b"x" * 8 * CHUNK_BYTES), Memory(8 * CHUNK_BYTES)
    gone = weakref.ref(asked)
    assert shared(one, [(target.address, source.address, 8 * CHUNK_BYTES)], asked)
    del asked
    for _ in range(1000):
        if gone() is None:
            break
        threading.Event().wait(0.005)  # the second thread may be on its way out
    assert gone() is None


def test_a_thread_that_gives_way_copies_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = Memory(0, b"x" * SHARED_FROM_BYTES), Memory(SHARED_FROM_BYTES)
    went: list[int] = []

    def with_second(moves: Sequence[Move], nbytes: int, may: Callable[[], bool]) -> bool:
        del moves, may
        went.append(nbytes)
        return True

    monkeypatch.setattr(crew._crew, "move", with_second)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    long = [(target.address, source.address, SHARED_FROM_BYTES)]

    def behind_the_others() -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        assert move(long, yes)

    thread = threading.Thread(target=behind_the_others)
    thread.start()
    thread.join(60)
    assert went == []
    assert target.buffer == source.buffer
    assert move(long, yes)
    assert went == [SHARED_FROM_BYTES]


def test_a_copy_that_was_broken_off_is_no_measure() -> None:
    now_s = [0.0]
    one = Crew(clock=lambda: now_s[0])
    source, target = Memory(0, b"x" * CHUNK_BYTES), Memory(CHUNK_BYTES)
    for _ in range(4):
        assert not one.move([(target.address, source.address, CHUNK_BYTES)], 1, lambda: False)
    assert one._ways[1]._took_s == {True: 0.0, False: 0.0}


def test_a_second_caller_copies_alone() -> None:
    one, began, go_on = Crew(), threading.Event(), threading.Event()
    nbytes = 8 * CHUNK_BYTES
    source, target = Memory(0, b"x" * nbytes), Memory(nbytes)
    held = [(target.address, source.address, nbytes)]

    def held_up() -> bool:
        began.set()
        return go_on.wait(60)

    first = threading.Thread(target=shared, args=(one, held, held_up))
    first.start()
    assert began.wait(60)
    threads: set[threading.Thread] = set()

    def noted() -> bool:
        threads.add(threading.current_thread())
        return True

    for _ in range(2):
        assert one.move(held, 1, noted)
    assert threads == {threading.current_thread()}
    go_on.set()
    first.join(60)
    assert not first.is_alive()


def test_interrupts_at_any_moment_leave_nothing_being_copied_and_nobody_waiting() -> None:
    """In a process of its own: a storm of signals, whose handler raises as Ctrl-C does."""
    script = """
import ctypes, random, signal, sys, threading, time
from onggi.crew import CHUNK_BYTES, Crew
nbytes, one = 16 * CHUNK_BYTES, Crew()
source, target = bytearray(b"x" * nbytes), bytearray(nbytes)
ends = [ctypes.addressof(ctypes.c_char.from_buffer(part)) for part in (target, source)]
one.move([(*ends, nbytes)], nbytes, lambda: True)
one._ways.clear()
random.seed(5)
storm = False
def interrupt(*_):
    if storm:
        raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
interrupts = 0
for number in range(150):
    one._ways.clear()
    one._ways[nbytes.bit_length()] = ways = type("Shared", (), {
        "shared": lambda self: True, "note": lambda self, **_: None})()
    try:
        storm = True
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 2e-3), random.uniform(1e-5, 1e-3))
        try:
            one.move([(*ends, nbytes)], nbytes, lambda: True)
        finally:
            storm = False
            signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        interrupts += 1
        storm = False
        signal.setitimer(signal.ITIMER_REAL, 0)
    ctypes.memset(ends[0], 0, nbytes)
    time.sleep(0.002)
    assert not any(target[at] for at in range(0, nbytes, 4096)), f"copied after the end, {number}"
assert one.move([(*ends, nbytes)], nbytes, lambda: True) and target == source
print(interrupts)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 10, "interrupts came at all"


@pytest.mark.parametrize(("alone_s", "shared_s"), [(1.0, 0.5), (0.5, 1.0)])
def test_the_faster_way_is_taken_and_the_other_tried_again(
    alone_s: float, shared_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, ways = [0.0], []

    def alone(moves: Sequence[Move], may: Callable[[], bool]) -> bool:
        del moves, may
        ways.append("alone")
        now_s[0] += alone_s
        return True

    def with_second(job: object) -> bool:
        del job
        ways.append("shared")
        now_s[0] += shared_s
        return True

    one = Crew(clock=lambda: now_s[0])
    monkeypatch.setattr(crew, "alone", alone)
    monkeypatch.setattr(one, "_share", with_second)
    for _ in range(TRY_BOTH + 10 * TRY_AGAIN):
        assert one.move([], SHARED_FROM_BYTES, yes)
    slower = "alone" if alone_s > shared_s else "shared"
    assert ways[:TRY_BOTH].count(slower) == TRY_BOTH // 2
    assert ways[TRY_BOTH:].count(slower) == 10


def test_a_child_has_a_second_thread_of_its_own() -> None:
    nbytes = 8 * CHUNK_BYTES
    source, target = Memory(0, os.urandom(nbytes)), Memory(nbytes)
    for _ in range(3):
        assert move([(target.address, source.address, nbytes)], yes)
    child = os.fork()
    if child == 0:
        ctypes.memset(target.address, 0, nbytes)
        right = all(move([(target.address, source.address, nbytes)], yes) for _ in range(3))
        os._exit(0 if right and target.buffer == source.buffer else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_who_gets_no_thread_copies_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    nbytes, one = 8 * CHUNK_BYTES, Crew()
    source, target = Memory(0, os.urandom(nbytes)), Memory(nbytes)
    assert one.move([(target.address, source.address, nbytes)], nbytes, yes)
    assert target.buffer == source.buffer
    monkeypatch.undo()
    while not _shares(one, source, target, nbytes):
        pass


def _shares(one: Crew, source: Memory, target: Memory, nbytes: int) -> bool:
    assert one.move([(target.address, source.address, nbytes)], nbytes, yes)
    return one._thread is not None


def test_a_child_of_a_fork_inside_a_shared_copy_waits_for_nobody() -> None:
    nbytes, child = 4 * CHUNK_BYTES, -1
    source, target = Memory(0, os.urandom(nbytes)), Memory(nbytes)
    one, inside = Crew(), threading.Event()
    me, fork = threading.get_ident(), threading.Event()

    def may() -> bool:
        nonlocal child
        if threading.get_ident() != me:
            inside.set()
            assert fork.wait(60.0)
        elif child < 0 and inside.wait(60.0):
            child = os.fork()
            signal.alarm(0 if child else 60)
            fork.set()
        return True

    job = crew._Job([(target.address, source.address, nbytes)], may)
    one._thread = threading.Thread(target=one._run, daemon=True)
    one._thread.start()
    whole = one._share(job)
    if child == 0:
        os._exit(1 if whole else 0)
    assert whole
    assert target.buffer == source.buffer
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "it has a part of it"
