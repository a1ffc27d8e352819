"""What routers are told of blocks that Onggi keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from engine_harness import soon
from grouped_engine import KINDS, GroupedEngine
from vllm_stand_ins import BLOCK, Request, step_output

from onggi.connectors.vllm import events
from onggi.connectors.vllm import told as told_of
from onggi.connectors.vllm.events import Events
from onggi.connectors.vllm.hybrid.kinds import Kind
from onggi.connectors.vllm.metadata import Report, SaveJob
from onggi.connectors.vllm.told import BlocksRemoved, BlocksStored
from onggi_core.wire.locate import At

KIND = Kind((0,), BLOCK)
PIECE = BLOCK // 2
"""Tokens of one of the engine's hashes."""


class Hashed(Request):
    """A request that carries the engine's own hashes."""

    @property
    def block_hashes(self) -> list[bytes]:
        return [f"h{n}".encode() for n in range(self.num_tokens // PIECE)]


def job(number: int, first: int, blocks: int) -> SaveJob:
    keys = tuple(f"k{n}".encode() for n in range(first, first + blocks))
    return SaveJob(number, "r", b"", keys, tuple(range(blocks)))


def over(number: int, kept: int) -> Report:
    return Report(saves_over={number: 1}, kept={number: kept})


@pytest.fixture
def told() -> Events:
    return Events(PIECE)


def plan(told: Events, number: int, first: int, blocks: int, request: Any = None) -> None:
    request = request or Hashed("r", list(range(8 * BLOCK)))
    told.planned(job(number, first, blocks), request, KIND, first)


def test_a_stored_run_is_told_by_the_engines_hashes(told: Events) -> None:
    plan(told, 1, 2, 3)
    assert told.take() == []
    told.reported(over(1, 3))
    (event,) = told.take()
    assert event == BlocksStored(
        groups=(0,),
        hashes=(b"h5", b"h7", b"h9"),  # of the piece that ends where the block does
        parent=b"h3",
        token_ids=tuple(range(2 * BLOCK, 5 * BLOCK)),
        block_tokens=BLOCK,
        lora_id=None,
        lora_name=None,
    )
    assert told.take() == []


def test_what_was_refused_is_not_told(told: Events) -> None:
    plan(told, 1, 0, 4)
    told.reported(over(1, 2))
    (event,) = told.take()
    assert (event.hashes, event.parent) == ((b"h1", b"h3"), None)
    plan(told, 2, 2, 1)
    told.reported(over(2, 0))
    plan(told, 3, 2, 1)
    told.reported(Report(saves_dropped={3}))
    told.reported(over(3, 1))
    assert told.take() == []


def test_a_block_is_told_once_until_it_is_gone(told: Events) -> None:
    for number, blocks in ((1, 2), (2, 3)):
        plan(told, number, 0, blocks)
        told.reported(over(number, blocks))
    first, second = told.take()
    assert (len(first.hashes), second.hashes, second.parent) == (2, (b"h5",), b"h3")
    told.missing(KIND, [b"k2", b"k9"])
    assert told.take() == [BlocksRemoved((0,), (b"h5",))]
    told.missing(KIND, [b"k2"])
    assert told.take() == []
    plan(told, 3, 0, 3)
    told.reported(over(3, 3))
    (again,) = told.take()
    assert again.hashes == (b"h5",)


def test_all_ranks_must_have_stored_it() -> None:
    told = Events(PIECE, ranks=2)
    plan(told, 1, 0, 3)
    told.reported(over(1, 3))
    assert told.take() == []
    told.reported(over(1, 1))
    (event,) = told.take()
    assert event.hashes == (b"h1",)


def test_a_reset_takes_all_of_it_back(told: Events) -> None:
    plan(told, 1, 0, 2)
    told.reported(over(1, 2))
    plan(told, 2, 2, 1)
    told.take()
    told.reset()
    told.reported(over(2, 1))
    assert told.take() == [BlocksRemoved((0,), (b"h1", b"h3"))]


def test_blocks_that_the_engine_has_no_name_for_are_not_told(told: Events) -> None:
    plan(told, 1, 0, 3, Hashed("r", list(range(2 * BLOCK))))
    told.reported(over(1, 3))
    assert told.take() == []


def test_nothing_is_kept_where_nobody_listens() -> None:
    told = Events()
    told.planned(job(1, 0, 1), SimpleNamespace(), KIND, 0)
    told.reported(over(1, 1))
    told.missing(KIND, [b"k0"])
    assert told.take() == []


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch, told: Events) -> None:
    monkeypatch.setattr(told_of, "TOLD_MAX", 2)
    monkeypatch.setattr(events, "TAKEN_MAX", 2)
    for number in range(4):
        plan(told, number, number, 1)
        told.reported(over(number, 1))
    assert len(told.take()) == 2
    told.missing(KIND, [b"k0", b"k3"])
    assert told.take() == [BlocksRemoved((0,), (b"h7",))]


def test_an_adapter_is_named(told: Events) -> None:
    lora = SimpleNamespace(lora_int_id=7, lora_name="tone")
    plan(told, 1, 0, 1, Hashed("r", list(range(BLOCK)), lora_request=lora))
    told.reported(over(1, 1))
    (event,) = told.take()
    assert (event.lora_id, event.lora_name) == (7, "tone")


def test_an_engine_of_one_group_tells_what_it_stores(make_agent: Any, make_sides: Any) -> None:
    agent = make_agent()
    sides = make_sides(agent, events=Events(PIECE))
    request = Hashed("r", list(range(3 * BLOCK)))
    sides.scheduler.matched(request, 0)
    sides.scheduler.admitted(request, [[1, 2, 3]], 0)
    plan = sides.scheduler.plan(step_output({"r": 3 * BLOCK}, {"r": [1, 2, 3]}))
    sides.worker.after_forward(plan)
    (event,) = soon(lambda: reported(sides))
    assert event.hashes == (b"h1", b"h3", b"h5")
    agent.__exit__()  # and with it all that it kept
    other = Hashed("s", list(range(3 * BLOCK)))
    assert sides.scheduler.matched(other, 0) == (0, False)
    assert soon(sides.scheduler.events.take) == [BlocksRemoved((0,), event.hashes[:2])]


def reported(sides: Any) -> Sequence[Any]:
    sides.worker.finished()
    sides.scheduler.reported(sides.worker.take_report(), ())
    taken: Sequence[Any] = sides.scheduler.events.take()
    return taken


def test_an_engine_of_several_groups_tells_of_each(make_agent: Any) -> None:
    engine = GroupedEngine(make_agent(), blocks=120, hashes=PIECE)
    engine.add(Hashed("r", list(range(4 * BLOCK))), 1)
    while not engine.idle:
        engine.step()
    taken = engine.scheduler.events.take()
    engine.close()
    assert {event.groups: len(event.hashes) for event in taken} == {
        kind.groups: 4 for kind in KINDS
    }


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch", "ignore::DeprecationWarning:vllm")
def test_events_speak_vllms_own_words() -> None:
    """One for each group, under the medium and owner that a router can tell from the device's."""
    pytest.importorskip("vllm", reason="vLLM is not installed here")
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec, SlidingWindowSpec

    from onggi.connectors.vllm.publish import to_vllm

    common = {"block_size": BLOCK, "num_kv_heads": 1, "head_size": 8, "dtype": torch.float32}
    specs = [FullAttentionSpec(**common), SlidingWindowSpec(**common, sliding_window=64)]
    groups = [SimpleNamespace(kv_cache_spec=spec) for spec in specs]
    first, second, gone = (bytes([n]) * 32 for n in range(3))
    tokens = tuple(range(2 * BLOCK))
    stored = BlocksStored((0, 1), (first, second), None, tokens, BLOCK, None, None)
    later = [BlocksRemoved((1,), (gone,)), replace(stored, groups=(0,), at=At.DISK)]
    told = list(to_vllm([stored, *later, BlocksRemoved((0,), (gone,), At.DISK)], groups))
    assert [(event.group_idx, event.medium, event.ownership) for event in told] == [
        (0, "CPU", "onggi"),
        (1, "CPU", "onggi"),
        (1, "CPU", "onggi"),
        (0, "STORAGE", "onggi"),
        (0, "STORAGE", "onggi"),
    ]
    assert [event.kv_cache_spec_kind for event in told[:2]] == ["full_attention", "sliding_window"]
    assert told[0].token_ids == list(tokens)
    assert len(set(told[0].block_hashes)) == 2
    assert told[2].block_hashes[0] not in told[0].block_hashes
