"""What a context of a million tokens needs beside its keys and values, counted: in this process,
in the agent's index, and asked for ahead of its use."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed here")

from tests.library.tiered_kit import MIB, agent, noise  # noqa: E402

from onggi_core.engine.engine import Engine  # noqa: E402
from onggi_core.engine.events import Asked, ExtentTouched, SessionOpened  # noqa: E402
from onggi_core.engine.state import Facts  # noqa: E402
from onggi_core.identity import ROOT  # noqa: E402
from onggi_core.wire.requests import Hello, SpaceSpec, StoreComplete, StoreOutcome, StorePrepare  # noqa: E402
from onggi_library.context import context as context_module  # noqa: E402
from onggi_library.context import share as share_module  # noqa: E402
from onggi_library.context.attention_map import SEEN_MIN, AttentionMap  # noqa: E402
from onggi_library.context.context import BLOCK_TOKENS, TieredContext  # noqa: E402
from onggi_library.context.errors import ContextLost  # noqa: E402
from onggi_library.context.pieces import Cut, Spots  # noqa: E402
from onggi_library.context.share import PIECE_BYTES_MAX, RUN_BYTES, Wanted, share  # noqa: E402

MB = 1_000_000
TOKENS = 1 << 20
LAYERS = 32
PART = 16
"""One in so many layers is counted: each has lists, pieces and chains of its own."""
COUNTED = LAYERS // PART
ROW_BYTES = 4096
"""Of a token in a layer of an 8B model."""
DEVICE_BYTES = 8 << 30
CHUNK = 1 << 15


class NothingKept:
    """Tiers that take everything and have nothing: rows of a byte or two a token are not what a
    million tokens need. told: what was stored, as an agent would hear of it."""

    def __init__(self, told: list[tuple[bytes, tuple[bytes, ...]]] | None = None) -> None:
        self._told = told

    def put(
        self, keys: Sequence[bytes], _rows: Any, *, parent: bytes = ROOT, depth: int = 0
    ) -> None:
        if self._told is not None:
            self._told.append((parent, tuple(keys)))

    def fetch(self, _keys: Sequence[bytes], rows: Any) -> None:
        rows.zero_()

    def expect(self, chains: Sequence[Sequence[bytes]]) -> None: ...

    def discard(self, keys: Sequence[bytes]) -> None: ...

    def close(self) -> None: ...


def filled(store: NothingKept, patch: pytest.MonkeyPatch) -> TieredContext:
    """A context of a million tokens in some of its layers, whose rows are tiny and whose pieces are
    those of an 8B model."""
    patch.setattr(context_module, "PageStore", lambda *_: store)
    patch.setattr(share_module, "RUN_BYTES", RUN_BYTES * 4 // ROW_BYTES)
    context = TieredContext(
        "/nowhere", layers=COUNTED, device_bytes=DEVICE_BYTES // PART * 4 // ROW_BYTES, recent=0
    )
    keys = torch.zeros(1, 1, CHUNK, 1, dtype=torch.float16)
    for _ in range(TOKENS // CHUNK):
        for layer in range(COUNTED):
            context.append(layer, keys, keys)
    return context


def test_pieces_of_a_tiny_row_are_those_of_a_large_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the counts below would be of another context."""
    large = share(Wanted(DEVICE_BYTES, LAYERS, BLOCK_TOKENS, 128, 2048), 1, ROW_BYTES)
    monkeypatch.setattr(share_module, "RUN_BYTES", RUN_BYTES * 4 // ROW_BYTES)
    tiny = Wanted(DEVICE_BYTES // PART * 4 // ROW_BYTES, COUNTED, BLOCK_TOKENS, 128, 0)
    assert (large.piece, large.run) == (share(tiny, 1, 4).piece, share(tiny, 1, 4).run)


def test_what_is_known_of_a_million_tokens_is_10_mb_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        context = filled(NothingKept(), monkeypatch)
        for layer in range(COUNTED):
            context.attend(layer, torch.zeros(1, 1, 1, 1, dtype=torch.float16))
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    report = context.report()
    assert report.tokens == TOKENS
    assert report.tier_bytes >= (TOKENS - 4096) * COUNTED * 4
    assert PART * taken <= 10 * MB
    assert 0.7 * taken <= report.metadata_bytes <= 10 * MB // PART
    context.close()


@pytest.mark.parametrize("block_tokens", [128, 16])
def test_the_map_of_attention_is_bounded_however_small_the_pieces(block_tokens: int) -> None:
    """A million tokens of 32 layers in pieces of one block: a small budget makes them so."""
    blocks = TOKENS // block_tokens
    cut = Cut(block_tokens, 1, 1)
    spots = Spots(cut, [blocks] * LAYERS)
    assert len(spots) == LAYERS * (blocks - 1)
    shares = dict.fromkeys(range(1, blocks), 1 / blocks)
    shares[blocks // 2] = 0.5
    learned = AttentionMap()
    tracemalloc.start()
    try:
        learned.observe(0, shares, [])
        for _ in range(SEEN_MIN - 1):
            learned.observe(0, {blocks // 2: 0.5}, [])
        for layer in range(1, LAYERS):
            learned.observe(layer, {1: 0.1, blocks - 1: 0.1}, [])
        taken = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        chosen = learned.choose(spots, 4)
        choosing = tracemalloc.get_traced_memory()[1] - taken
    finally:
        tracemalloc.stop()
    assert 0.9 * taken <= learned.nbytes <= 5 * MB
    assert choosing <= MB
    near = [first for layer, first in chosen if layer == 0 and abs(first - blocks // 2) <= 4]
    assert near, "what attention went to is known as well as the cells are fine"


def test_the_agents_index_of_them_is_50_mb_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the context stores them: chains a layer, some blocks at a time."""
    told: list[tuple[bytes, tuple[bytes, ...]]] = []
    context = filled(NothingKept(told), monkeypatch)
    page, extent = BLOCK_TOKENS * ROW_BYTES, 64 << 20
    blocks = sum(len(keys) for _, keys in told)
    assert blocks >= (TOKENS - 4096) // BLOCK_TOKENS * COUNTED
    extents = blocks * page // extent + 2
    hello = Hello(1, "t", (SpaceSpec(b"f" * 16, page, BLOCK_TOKENS),))
    tracemalloc.start()
    try:
        engine = Engine(Facts(b"e" * 16, "a", extents * extent, 0, extent, extents))
        for number in range(extents):
            engine.step(ExtentTouched(number), 0.0)
        engine.step(SessionOpened(1), 0.0)
        engine.step(Asked(1, 0, hello), 0.0)
        empty, begun = engine.stats()["index_bytes"], tracemalloc.get_traced_memory()[0]
        for parent, keys in told:
            (answer,) = engine.step(Asked(1, 1, StorePrepare(0, parent, keys)), 0.0)
            ticket = answer.reply.ticket  # type: ignore[union-attr]
            engine.step(Asked(1, 2, StoreComplete(ticket, StoreOutcome.SEALED)), 0.0)
        taken = tracemalloc.get_traced_memory()[0] - begun
    finally:
        tracemalloc.stop()
    stats = engine.stats()
    grown = stats["index_bytes"] - empty
    assert stats["host_pages"] == blocks
    assert empty + PART * taken <= 50 * MB
    assert empty + PART * grown <= 50 * MB
    assert 0.8 * taken <= grown
    context.close()


@pytest.mark.parametrize("batch", [1, 4, 16])
@pytest.mark.parametrize("device_bytes", [2 << 30, 16 << 30, 1 << 40])
def test_what_is_asked_for_ahead_is_100_mb_at_most(batch: int, device_bytes: int) -> None:
    """One piece on its way and one that the agent was told of, whatever the budget."""
    mine = share(Wanted(device_bytes, LAYERS, BLOCK_TOKENS, 512, 2048), batch, ROW_BYTES)
    piece = mine.piece * BLOCK_TOKENS * ROW_BYTES * batch
    assert 2 * piece <= 2 * PIECE_BYTES_MAX <= 100 * MB


def test_a_report_counts_what_is_asked_for_ahead(tmp_path: Path) -> None:
    with agent(disk=64 * MIB, disk_path=tmp_path) as running:
        context = TieredContext(
            running.socket, layers=2, device_bytes=64 * 1024, sinks=0, recent=0, block_tokens=16
        )
        with context:
            assert context.report().queue_bytes == 0
            for layer in range(2):
                context.append(layer, noise(1, 1, 1, 900, 16), noise(2, 1, 1, 900, 16))
                context.attend(layer, noise(3, 1, 2, 1, 16))
            report, piece = context.report(), context._held.side.share.piece * 16 * 128
            assert 0 < report.queue_bytes <= report.queue_bytes_peak <= 2 * piece
            told = context.tiers()
            assert told.host_bytes > 0
            assert told.index_bytes > 0


def test_an_agent_that_is_gone_tells_nothing() -> None:
    with agent() as running:
        context = TieredContext(running.socket, layers=1, device_bytes=MIB)
        with pytest.raises(ValueError, match="nothing was appended"):
            context.tiers()
        context.append(0, noise(1, 1, 1, 9, 16), noise(2, 1, 1, 9, 16))
    with pytest.raises(ContextLost, match="the agent does not answer"):
        context.tiers()
    context.close()
