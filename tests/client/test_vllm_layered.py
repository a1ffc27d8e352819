"""Loads that come layer by layer: who waits for what, and what a failure half way leaves."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import pytest
from vllm_stand_ins import BLOCK, SPACE, Request, page_of, step_output

from onggi import Client, block_keys
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


class DyingArena:
    """An arena whose agent goes after the first layer was copied."""

    def __init__(self, arena: Any, agent: Any) -> None:
        self._arena, self._agent, self._copied = arena, agent, 0

    @property
    def alive(self) -> bool:
        return bool(self._arena.alive)

    def copy_out(self, pieces: Any) -> bool:
        self._copied += 1
        if self._copied == 2:
            self._agent.retire()
        return bool(self._arena.copy_out(pieces))


def test_an_agent_that_goes_half_way_fails_the_step_and_the_blocks_are_reported(
    agent: Any, make_sides: Any
) -> None:
    tokens = [900 + i for i in range(4 * BLOCK + 3)]
    keys = block_keys(tokens, BLOCK)
    client = Client(agent.socket_path, spaces=[SPACE], deadline_s=30.0)
    pages = [page_of(tokens[: (n + 1) * BLOCK]) for n in range(4)]
    assert client.store(keys, pages).stored == 4
    client.close()
    sides = make_sides(agent, layerwise=True)
    copier = sides.copiers[0]
    copier.load = lambda arena, pairs, after: host_load(  # type: ignore[method-assign]
        DyingArena(arena, agent), copier._pages, pairs
    )
    one = Request("r", tokens)
    sides.scheduler.arrived(one)
    assert sides.scheduler.matched(one, 0) == (4 * BLOCK, False)
    sides.scheduler.admitted(one, [[6, 7, 8, 9, 10]], 4 * BLOCK)
    one.num_computed_tokens = 4 * BLOCK
    plan = sides.scheduler.plan(step_output({"r": 3}, {"r": [6, 7, 8, 9, 10]}))
    sides.worker.load(plan)
    for layer in ("l0", "l1"):
        sides.worker.wait_for_layer(layer)  # the forward pass goes on, on what there is
    sides.worker.after_forward(plan)
    assert sides.worker.take_errors() == {6, 7, 8, 9}
    report = sides.worker.take_report()
    assert [blocks for blocks, _ in report.loaded.values()] == [0]
    sides.scheduler.reported(report, ())
    again = Request("again", tokens)
    sides.scheduler.arrived(again)
    assert sides.scheduler.matched(again, 0) == (0, False)  # and not the same answer for ever


def test_an_engine_that_does_not_ask_for_its_layers_computes_and_is_served_whole_then(
    agent: Any, make_sides: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """As one that replays a captured graph: it may have read the layers before they came."""
    tokens = [700 + i for i in range(2 * BLOCK + 3)]
    client = Client(agent.socket_path, spaces=[SPACE], deadline_s=30.0)
    pages = [page_of(tokens[: (n + 1) * BLOCK]) for n in range(2)]
    assert client.store(block_keys(tokens, BLOCK), pages).stored == 2
    client.close()
    sides = make_sides(agent, layerwise=True)
    for name, asks, errors in (("first", ["l0"], {6, 7}), ("second", [], set())):
        one = Request(name, tokens)
        sides.scheduler.arrived(one)
        assert sides.scheduler.matched(one, 0) == (2 * BLOCK, False)
        sides.scheduler.admitted(one, [[6, 7, 8]], 2 * BLOCK)
        plan = sides.scheduler.plan(step_output({name: 3}, {name: [6, 7, 8]}))
        sides.worker.load(plan)
        for layer in asks:
            sides.worker.wait_for_layer(layer)
        sides.worker.after_forward(plan)
        assert sides.worker.take_errors() == errors
        sides.scheduler.reported(sides.worker.take_report(), ())
        sides.scheduler._failures.forget(block_keys(tokens, BLOCK))
    assert caplog.text.count("does not ask for its layers one by one (1 of 2)") == 1
    assert sides.memories[0].read(7) == pages[1]
