"""Keys and values that are rounded to int8 below the device: how much, where, and never unasked."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

torch: Any = pytest.importorskip("torch", reason="torch is not installed here")

from tests.library.tiered_kit import MIB, agent, noise, reference  # noqa: E402

from onggi_library.context.context import TieredContext  # noqa: E402
from onggi_library.context.geometry import Geometry  # noqa: E402
from onggi_library.context.pages import Rounded  # noqa: E402
from onggi_library.rounding import STEPS, Rounding, give_back, round_off  # noqa: E402

torch.set_num_threads(1)
HEADS, SIZE, BLOCK = 2, 64, 64
often = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
floats = st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64])


@often
@given(
    dtype=floats,
    pages=st.integers(1, 4),
    tokens=st.integers(1, 9),
    width=st.integers(1, 33),
    scale=st.sampled_from([0.0, 1e-30, 1e-3, 1.0, 300.0]),
    seed=st.integers(0, 1000),
)
def test_no_number_is_off_by_more_than_half_a_step_of_its_channel(
    dtype: Any, pages: int, tokens: int, width: int, scale: float, seed: int
) -> None:
    rows = (noise(seed, pages * tokens, width) * scale).to(dtype)
    kept = Rounded(tokens, width)
    there = kept.of(rows, pages)
    assert there.shape == (pages, Rounded.page_bytes(tokens, width))
    back = torch.empty_like(rows)
    kept.give(there, back)
    blocks = rows.view(pages, tokens, width).double()
    step = blocks.abs().amax(dim=1, keepdim=True) / STEPS
    off = (back.view(pages, tokens, width).double() - blocks).abs()
    itself = blocks.abs().amax() * torch.finfo(dtype).eps if dtype != torch.float64 else 0.0
    assert bool((off <= step * 0.5001 + itself + 1e-37).all())
    assert kept.rounding.error_max == pytest.approx(float(off.max()), rel=1e-3, abs=1e-30)
    assert 0.0 <= kept.rounding.relative <= 1.0


def test_what_has_no_size_is_refused() -> None:
    with pytest.raises(FloatingPointError, match=r"infinite, not a number.*lower='exact'"):
        round_off(torch.tensor([[1.0, float("inf")]]), Rounding())


def test_rounding_twice_is_rounding_once() -> None:
    values = noise(1, 3, 50, 7)
    once, twice = torch.empty_like(values), torch.empty_like(values)
    give_back(*round_off(values, Rounding()), once)
    give_back(*round_off(once, Rounding()), twice)
    assert torch.allclose(once, twice, rtol=1e-6)


def test_rounded_and_exact_pages_have_nothing_to_do_with_each_other() -> None:
    shape = (HEADS, SIZE, SIZE, torch.bfloat16, BLOCK)
    exact, rounded = Geometry(*shape), Geometry(*shape, lower="int8")
    assert exact.space().fingerprint != rounded.space().fingerprint
    assert "lower" not in exact.fields()
    assert rounded.fields()["lower"] == "int8"
    assert rounded.page_bytes < 0.55 * exact.page_bytes


def context_of(socket: Any, **settings: Any) -> TieredContext:
    given = {"layers": 1, "device_bytes": 512 * 1024, "sinks": BLOCK, "recent": BLOCK}
    return TieredContext(socket, block_tokens=BLOCK, **given | settings)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_attention_over_int8_is_close_and_says_how_close(dtype: Any) -> None:
    """Keys with some channels ten times larger than the others, as those of models are."""
    channels = torch.ones(SIZE)
    channels[::16] = 10.0
    keys = (noise(1, 1, HEADS, 4000, SIZE) * channels).to(dtype)
    values, queries = noise(2, *keys.shape).to(dtype), noise(3, 1, 4, 1, SIZE).to(dtype)
    with agent(memory=32 * MIB) as running:
        outs, reports = {}, {}
        for lower in ("exact", "int8"):
            with context_of(running.socket, lower=lower) as context:
                context.append(0, keys, values)
                outs[lower] = context.attend(0, queries).double()
                reports[lower] = context.report()
    exact = reference(queries, keys, values)
    off = float((outs["int8"] - exact).norm() / exact.norm())
    itself = float((outs["exact"] - exact).norm() / exact.norm())
    rounding = reports["int8"].rounding
    assert rounding is not None
    assert reports["exact"].rounding is None
    print(
        f"{dtype}: keys and values {rounding.relative:.2%} off (root mean square), attention "
        f"{off:.2%}, exact tiers {itself:.3%}; "
        f"{reports['int8'].tier_bytes / reports['exact'].tier_bytes:.2f} of the bytes"
    )
    assert 0.0 < rounding.relative < 0.02
    assert itself < off < 0.05
    assert reports["int8"].tier_bytes < 0.55 * reports["exact"].tier_bytes
    assert reports["int8"].flow.brought_bytes < 0.55 * reports["exact"].flow.brought_bytes


def test_it_is_off_unless_asked_for_and_refused_where_it_cannot_be() -> None:
    with agent() as running:
        whole = torch.ones(1, HEADS, 4, SIZE, dtype=torch.int32)
        with (
            context_of(running.socket, lower="int8") as context,
            pytest.raises(ValueError, match="keys and values is int32, and lower is 'int8'"),
        ):
            context.append(0, whole, whole)
        with pytest.raises(ValueError, match="lower is 'fp4'; use one of exact, int8"):
            context_of(running.socket, lower="fp4")
        with pytest.raises(ValueError, match=r"lower is 'int8' and epsilon is 0\.1"):
            context_of(running.socket, lower="int8", epsilon=0.1)


def test_what_was_saved_in_one_way_is_not_taken_for_the_other() -> None:
    rows = noise(1, 1, HEADS, 500, SIZE)
    with agent() as running:
        with context_of(running.socket, lower="int8") as context:
            context.append(0, rows, rows)
            context.save("prompt", [list(range(500))], {"model": "m"})
        with context_of(running.socket) as context:
            saved = context.find("prompt")
            assert saved is not None
            with pytest.raises(ValueError, match="has blocks of 64 and is 'int8': use those"):
                context.restore(saved, "cpu")
        with context_of(running.socket, lower="int8") as context:
            context.restore(saved, "cpu")
            out = context.attend(0, noise(3, 1, 4, 1, SIZE))
    exact = reference(noise(3, 1, 4, 1, SIZE), rows, rows)
    assert float((out.double() - exact).norm() / exact.norm()) < 0.05
