"""Loads that come layer by layer: who waits for what, and what a failure half way leaves."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import pytest

from onggi.connectors.vllm.layered import UNIT_BYTES, LayerLoad, host_load
from onggi.connectors.vllm.layout import PageMap, Run

LAYERS, PART, BLOCKS = 3, 4096, 4
PAGE = LAYERS * PART


class FakeArena:
    """An arena whose copies a test lets through, or not, by layer."""

    def __init__(self) -> None:
        self.alive = True
        self.gates = [threading.Event() for _ in range(LAYERS)]
        self.begun: list[int] = []
        self.copiers: list[int] = []
        self.fail_at = -1

    def copy_out(self, pieces: list[tuple[int, int, int]]) -> bool:
        layer = pieces[0][0] % PAGE // PART
        self.begun.append(layer)
        self.copiers.append(threading.get_ident())
        assert self.gates[layer].wait(30)
        if layer == self.fail_at:
            raise OSError("spoilt on purpose")
        return self.alive


def a_load(arena: Any, blocks: int = BLOCKS) -> LayerLoad:
    runs = tuple(Run(1 << 20, PART, PART, n * PART, n) for n in range(LAYERS))
    pages = PageMap(runs, PAGE, BLOCKS, tuple(f"l{n}" for n in range(LAYERS)))
    return host_load(arena, pages, [(n, n * PAGE) for n in range(blocks)])


def test_a_layer_is_waited_for_and_no_other() -> None:
    arena = FakeArena()
    load = a_load(arena)
    helper = threading.Thread(target=load.help)
    arena.gates[0].set()
    helper.start()
    load.wait(0)  # returns although the helper cannot end layer 1
    reached = threading.Event()
    waiter = threading.Thread(target=lambda: (load.wait(1), reached.set()))
    waiter.start()
    assert not reached.wait(0.05)
    arena.gates[1].set()
    assert reached.wait(30)
    arena.gates[2].set()
    assert load.end()
    helper.join()
    waiter.join()
    assert arena.begun == [0, 1, 2]  # nobody copies twice


def test_without_a_helper_whoever_waits_copies() -> None:
    arena = FakeArena()
    for gate in arena.gates:
        gate.set()
    load = a_load(arena)
    load.wait(1)
    assert arena.begun == [1]
    assert load.end()
    assert sorted(arena.begun) == [0, 1, 2]
    assert set(arena.copiers) == {threading.get_ident()}


def test_an_arena_taken_back_half_way_fails_the_whole_load() -> None:
    arena = FakeArena()
    for gate in arena.gates:
        gate.set()
    load = a_load(arena)
    load.wait(0)
    arena.alive = False
    load.wait(1)
    load.wait(2)
    assert not load.end()
    assert arena.begun == [0, 1]  # what comes after a failure is not worth copying


def test_an_error_is_raised_at_the_end_and_hangs_nobody() -> None:
    arena = FakeArena()
    arena.fail_at = 1
    for gate in arena.gates:
        gate.set()
    load = a_load(arena)
    load.help()
    for layer in range(LAYERS):
        load.wait(layer)
    with pytest.raises(OSError, match="spoilt on purpose"):
        load.end()


def test_a_block_that_is_not_there_is_refused_before_a_byte_is_copied() -> None:
    arena = FakeArena()
    with pytest.raises(ValueError, match="block 4 is outside the 4"):
        a_load(arena, BLOCKS + 1)
    assert arena.begun == []


def test_units_are_small_enough_to_share() -> None:
    part = UNIT_BYTES // 2
    memory = ctypes.create_string_buffer(1)
    runs = (Run(ctypes.addressof(memory), part, part, 0, 0),)
    load = host_load(FakeArena(), PageMap(runs, part, 9, ("l",)), [(n, n * part) for n in range(9)])  # type: ignore[arg-type]
    assert [len(unit) for unit in load._todo[0]] == [2, 2, 2, 2, 1]
