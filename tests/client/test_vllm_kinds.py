"""Which blocks a kind of layers needs, and the longest prefix that all kinds can restore."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onggi.connectors.vllm.hybrid import hits
from onggi.connectors.vllm.hybrid.hits import longest_hit, span
from onggi.connectors.vllm.hybrid.kinds import Kind, StandBack, kinds_of

BLOCK = 4


def spec(name: str, **fields: Any) -> Any:
    return type(name, (SimpleNamespace,), {})(block_size=16, **fields)


FULL = spec("FullAttentionSpec")
WINDOW = spec("SlidingWindowSpec", sliding_window=64)


def groups(*specs: Any) -> Any:
    made = [
        SimpleNamespace(kv_cache_spec=one, layer_names=[f"l{n}"]) for n, one in enumerate(specs)
    ]
    return SimpleNamespace(kv_cache_groups=made)


def test_groups_that_look_back_equally_far_are_one_kind() -> None:
    assert kinds_of(groups(WINDOW, FULL, WINDOW)) == (
        Kind((1,), 16),
        Kind((0, 2), 16, reach=63),
    )


def test_a_window_in_a_layer_that_keeps_all_its_blocks_is_none() -> None:
    kept = spec("FullAttentionSpec", sliding_window=64)
    assert kinds_of(groups(kept)) == (Kind((0,), 16),)
    assert kinds_of(groups(spec("MLAAttentionSpec"))) == (Kind((0,), 16),)


def test_a_chunk_of_attention_and_what_drafts_retain() -> None:
    chunked = spec("ChunkedLocalAttentionSpec", attention_chunk_size=32)
    drafted = spec("SlidingWindowSpec", sliding_window=64, extra_retained_tokens=3)
    assert kinds_of(groups(chunked)) == (Kind((0,), 16, chunk=32),)
    assert kinds_of(groups(drafted)) == (Kind((0,), 16, reach=66),)


def test_a_groups_scratch_is_left_alone() -> None:
    scratch = spec("CircularBufferSpec", prefix_cacheable=False)
    assert kinds_of(groups(scratch, FULL)) == (Kind((1,), 16),)
    with pytest.raises(StandBack, match="no group"):
        kinds_of(groups(scratch))


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (spec("MambaSpec"), "MambaSpec are not kept yet"),
        (spec("RSWASpec", sliding_window=8), "RSWASpec are not kept yet"),
        (
            SimpleNamespace(block_size=16, kv_cache_specs={"a": FULL, "b": WINDOW}),
            "group 0 mixes layers",
        ),
    ],
)
def test_what_gives_up_blocks_in_another_way_is_not_kept(one: Any, said: str) -> None:
    with pytest.raises(StandBack, match=said):
        kinds_of(groups(one))


def test_blocks_under_the_engines_own_care_are_not_kept() -> None:
    config = groups(FULL)
    config.kv_cache_groups[0].host_resident = True
    with pytest.raises(StandBack, match="lives in host memory"):
        kinds_of(config)


KINDS = st.sampled_from(
    [
        Kind((0,), BLOCK),
        Kind((1,), BLOCK, reach=6),
        Kind((1,), 2 * BLOCK, reach=17),
        Kind((2,), BLOCK, chunk=12),
        Kind((3,), BLOCK, reach=0),
    ]
)


@given(kind=KINDS, tokens=st.integers(0, 100))
def test_a_window_begins_at_the_block_of_the_first_token_it_sees(kind: Kind, tokens: int) -> None:
    """The next token has number `tokens`; it sees those behind `tokens - reach`, itself aside."""
    seen = [
        token
        for token in range(tokens)
        if (kind.reach is None or tokens - token <= kind.reach)
        and (kind.chunk is None or token // kind.chunk == tokens // kind.chunk)
    ]
    first = kind.first_needed(tokens)
    assert all(token // kind.block_tokens >= first for token in seen)
    if seen:
        assert first == seen[0] // kind.block_tokens
        if not kind.needs_all:
            assert seen[-1] // kind.block_tokens - first < kind.most_needed()


@given(
    kinds=st.lists(KINDS, min_size=1, max_size=3),
    holes=st.lists(st.sets(st.integers(0, 14), max_size=6), min_size=3, max_size=3),
    local=st.integers(0, 7),
    most=st.integers(0, 60),
)
def test_the_longest_hit_is_the_one_found_by_trying_all(
    kinds: list[Kind], holes: list[set[int]], local: int, most: int
) -> None:
    unit, local = 2 * BLOCK, local * 2 * BLOCK

    def restores(end: int) -> bool:
        return all(
            not holes[number] & set(range(*span(kind, local, end)))
            for number, kind in enumerate(kinds)
        )

    def look(number: int, first: int, end: int) -> int:
        run = first
        while run < end and run not in holes[number]:
            run += 1
        return run - first

    ends = [end for end in range(local + unit, most + 1, unit) if restores(end)]
    assert longest_hit(kinds, unit, local, most, look) == max(ends, default=local)


def test_a_prefix_full_of_holes_is_given_up_after_some_looks() -> None:
    looks = []

    def look(number: int, first: int, end: int) -> int:
        looks.append((number, first, end))
        return 0

    window = Kind((0,), BLOCK, reach=1)
    assert longest_hit([window], BLOCK, 0, 10_000 * BLOCK, look) == 0
    assert len(looks) == hits.LOOKS_MAX
