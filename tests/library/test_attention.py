"""Attention over pieces equals attention over everything, whatever pieces, shapes and dtypes."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

torch: Any = pytest.importorskip("torch", reason="torch is not installed here")

from onggi_library.attention.kernel import attend  # noqa: E402
from onggi_library.attention.partial import merge, nothing  # noqa: E402
from onggi_library.attention.piece import Piece, Span  # noqa: E402
from onggi_library.attention.skipping import attention_within, box  # noqa: E402
from onggi_library.attention.streaming import attention  # noqa: E402
from onggi_library.attention.visible import Sight, Visibility  # noqa: E402

# many small tensors: threads would wait for one another
torch.set_num_threads(1)

# What an element may be off by, over the greatest value: a few roundings of the dtype. Sums are
# kept in float32, but a kernel rounds its weights and its output to the dtype.
ROUNDING = {
    torch.float64: 1e-6,  # the CPU kernel's exponential has no more
    torch.float32: 2e-5,
    torch.float16: 2**-9,
    torch.bfloat16: 2**-6,
}


@dataclass
class Listed:
    """A source over tensors that are there; remembers what was asked of it."""

    pieces: list[Piece]
    begun: list[int] = field(default_factory=list)
    given: list[int] = field(default_factory=list)

    @property
    def spans(self) -> Sequence[Span]:
        return [piece.span for piece in self.pieces]

    def begin(self, number: int) -> Callable[[], Piece]:
        self.begun.append(number)

        def give() -> Piece:
            self.given.append(number)
            assert len(self.begun) - len(self.given) <= 1
            return self.pieces[number]

        return give


@dataclass(frozen=True)
class Case:
    queries: Any
    keys: Any
    values: Any
    at: Span
    visible: Visibility
    cuts: tuple[int, ...]
    mask: Any

    @property
    def scale(self) -> float:
        return float(self.queries.shape[-1]) ** -0.5

    def source(self) -> Listed:
        edges = [0, *self.cuts, self.keys.shape[2]]
        return Listed(
            [
                Piece(
                    Span(low, high - low),
                    self.keys[:, :, low:high],
                    self.values[:, :, low:high],
                )
                for low, high in itertools.pairwise(edges)
            ]
        )

    def run(self) -> Any:
        return attention(
            self.queries,
            self.at,
            self.source(),
            value_size=self.values.shape[-1],
            scale=self.scale,
            visible=self.visible,
            mask=self.mask,
        )

    def seen(self) -> Any:
        """bool [batch, 1, queries, keys] by the rules as they are said, one pair at a time."""
        batch, length = self.queries.shape[0], self.keys.shape[2]
        rows = [
            [self._sees(query, key) for key in range(length)]
            for query in range(self.at.start, self.at.end)
        ]
        seen = torch.tensor(rows)[None, None].expand(batch, 1, -1, -1)
        return seen if self.mask is None else seen & self.mask

    def _sees(self, query: int, key: int) -> bool:
        rule = self.visible
        if rule.causal and key > query:
            return False
        return rule.window is None or key > query - rule.window or key < rule.sinks

    def reference(self) -> tuple[Any, Any]:
        """Output and lse in float64, by the definition."""
        group = self.queries.shape[1] // self.keys.shape[1]
        keys = self.keys.double().repeat_interleave(group, dim=1)
        values = self.values.double().repeat_interleave(group, dim=1)
        scores = self.queries.double() @ keys.transpose(-1, -2) * self.scale
        scores = scores.masked_fill(~self.seen(), float("-inf"))
        weights = torch.softmax(scores, dim=-1).nan_to_num(0.0)
        return weights @ values, torch.logsumexp(scores, dim=-1)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    dtype = draw(st.sampled_from(list(ROUNDING)))
    batch, kv_heads, group = (
        draw(st.integers(1, 2)),
        draw(st.integers(1, 3)),
        draw(st.integers(1, 4)),
    )
    size = draw(st.sampled_from([8, 16, 64]))
    value_size = draw(st.sampled_from([size, size, 24]))
    length = draw(st.integers(1, 90))
    count = draw(st.integers(1, 20))
    start = draw(st.sampled_from([max(0, length - count), 0, length // 2, length + 3]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))

    def noise(*shape: int) -> Any:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    mask = None
    if draw(st.booleans()):
        mask = torch.rand(batch, 1, count, length, generator=generator) < draw(st.floats(0.0, 1.0))
    window = draw(st.one_of(st.none(), st.integers(1, 100)))
    return Case(
        noise(batch, kv_heads * group, count, size) * draw(st.sampled_from([1.0, 4.0])),
        noise(batch, kv_heads, length, size),
        noise(batch, kv_heads, length, value_size),
        Span(start, count),
        Visibility(draw(st.booleans()), window, draw(st.integers(0, 5))),
        tuple(sorted(draw(st.sets(st.integers(1, max(1, length - 1)), max_size=6)) - {length})),
        mask,
    )


often = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@often
@given(case=cases())
def test_pieces_change_nothing(case: Case) -> None:
    total = case.run()
    out, lse = case.reference()
    limit = ROUNDING[case.queries.dtype] * max(1.0, float(case.values.abs().max()))
    assert float((total.out.double() - out).abs().max()) <= limit
    some = torch.isfinite(lse)
    assert torch.equal(torch.isfinite(total.lse), some)
    near = ROUNDING[case.queries.dtype]
    assert torch.allclose(total.lse.double()[some], lse[some], rtol=near, atol=near)


@often
@given(case=cases(), epsilon=st.sampled_from([0.0, 1e-6, 1e-3, 0.05, 0.5]))
def test_what_is_skipped_moves_the_output_by_no_more_than_the_bound(
    case: Case, epsilon: float
) -> None:
    source = case.source()
    found = attention_within(
        case.queries,
        case.at,
        source,
        [box(piece) for piece in source.pieces],
        epsilon=epsilon,
        value_size=case.values.shape[-1],
        scale=case.scale,
        visible=case.visible,
        mask=case.mask,
    )
    out, lse = case.reference()
    limit = ROUNDING[case.queries.dtype] * max(1.0, float(case.values.abs().max()))
    off = (found.partial.out.double() - out).abs().amax(dim=-1)
    assert bool((off <= found.error.double() + limit).all())
    assert not set(found.skipped) & set(source.given)
    if found.skipped:
        assert float(found.share.max()) <= epsilon
        # the share that was really left out, of the definition's sums
        left = 1.0 - torch.exp(found.partial.lse.double() - lse)
        assert bool((left[torch.isfinite(lse)] <= found.share[torch.isfinite(lse)] + 1e-4).all())
    else:
        assert float(found.error.max()) == 0.0


def far_apart() -> Case:
    """One piece that all queries point at, and others that they point away from."""
    generator = torch.Generator().manual_seed(5)
    keys = torch.randn(1, 2, 96, 16, generator=generator) * 0.1 - 1.0
    keys[:, :, 32:48] += 2.0
    return Case(
        torch.full((1, 4, 1, 16), 4.0),
        keys,
        torch.randn(1, 2, 96, 16, generator=generator),
        Span(95, 1),
        Visibility(),
        (16, 32, 48, 64, 80),
        None,
    )


def test_pieces_that_cannot_matter_are_not_fetched() -> None:
    case, source = far_apart(), far_apart().source()
    found = attention_within(
        case.queries,
        case.at,
        source,
        [box(piece) for piece in source.pieces],
        epsilon=1e-4,
        value_size=16,
        scale=case.scale,
        visible=case.visible,
    )
    assert source.given == [2]
    assert sorted(found.skipped) == [0, 1, 3, 4, 5]
    assert 0.0 < float(found.error.max()) < 1e-3
    exact, _ = case.reference()
    assert (
        float((found.partial.out.double() - exact).abs().max()) <= float(found.error.max()) + 1e-6
    )


def test_without_an_epsilon_all_is_fetched_and_the_bound_is_zero() -> None:
    case, source = far_apart(), far_apart().source()
    found = attention_within(
        case.queries,
        case.at,
        source,
        [box(piece) for piece in source.pieces],
        epsilon=0.0,
        value_size=16,
        scale=case.scale,
        visible=case.visible,
    )
    assert sorted(source.given) == [0, 1, 2, 3, 4, 5]
    assert found.skipped == ()
    assert float(found.error.max()) == 0.0


@pytest.mark.parametrize("epsilon", [-0.1, 1.0, float("nan")])
def test_an_epsilon_that_is_no_share_is_refused(epsilon: float) -> None:
    case = far_apart()
    with pytest.raises(ValueError, match=r"epsilon is .*; a share of attention"):
        attention_within(
            case.queries,
            case.at,
            case.source(),
            [],
            epsilon=epsilon,
            value_size=16,
            scale=1.0,
            visible=case.visible,
        )


def test_the_next_piece_is_begun_before_one_is_computed_and_no_more() -> None:
    source = far_apart().source()
    case = far_apart()
    attention(case.queries, case.at, source, value_size=16, scale=1.0, visible=Visibility())
    assert source.begun == source.given == [0, 1, 2, 3, 4, 5]


def test_pieces_out_of_sight_are_not_fetched() -> None:
    source = far_apart().source()
    case = far_apart()
    attention(
        case.queries,
        case.at,
        source,
        value_size=16,
        scale=1.0,
        visible=Visibility(window=20, sinks=3),
    )
    assert source.given == [0, 4, 5]


def test_queries_that_see_nothing_fetch_nothing() -> None:
    case, source = far_apart(), far_apart().source()
    total = attention(
        case.queries,
        Span(200, 1),
        source,
        value_size=16,
        scale=1.0,
        visible=Visibility(window=4),
    )
    assert source.begun == []
    assert torch.equal(total.out, torch.zeros(1, 4, 1, 16))


@often
@given(
    start=st.integers(0, 40),
    count=st.integers(1, 12),
    low=st.integers(0, 50),
    length=st.integers(1, 20),
    causal=st.booleans(),
    window=st.one_of(st.none(), st.integers(1, 50)),
    sinks=st.integers(0, 6),
)
def test_the_sight_of_a_span_is_what_its_mask_says(
    start: int, count: int, low: int, length: int, causal: bool, window: int | None, sinks: int
) -> None:
    rule, queries, keys = Visibility(causal, window, sinks), Span(start, count), Span(low, length)
    mask = rule.mask(queries, keys, "cpu")
    sight = rule.sight(queries, keys)
    if sight == Sight.ALL:
        assert bool(mask.all())
    if sight == Sight.NONE:
        assert not bool(mask.any())
    if not bool(mask.any()) and sinks == 0 and count == 1:
        assert sight == Sight.NONE


@pytest.mark.parametrize(("window", "sinks"), [(0, 0), (-1, 0), (None, -1)])
def test_a_rule_that_means_nothing_is_refused(window: int | None, sinks: int) -> None:
    with pytest.raises(ValueError, match=r"(window|sinks) is -?[01]; [01] or more tokens"):
        Visibility(window=window, sinks=sinks)


@pytest.fixture
def scores_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a device without the CPU's kernel."""
    monkeypatch.setattr("onggi_library.attention.kernel._FLASH_CPU", None)


@settings(parent=often, suppress_health_check=list(HealthCheck))
@given(case=cases())
def test_a_device_without_the_kernel_comes_to_the_same(scores_only: None, case: Case) -> None:
    test_pieces_change_nothing.hypothesis.inner_test(case)  # type: ignore[attr-defined]


def test_what_saw_nothing_adds_nothing() -> None:
    queries = torch.ones(1, 1, 2, 8)
    none = nothing(queries, 8)
    mask = torch.tensor([[False, False], [True, False]])[None, None]
    one = attend(
        queries, torch.ones(1, 1, 2, 8), torch.full((1, 1, 2, 8), 3.0), scale=1.0, mask=mask
    )
    both = merge(none, one)
    assert torch.equal(both.out[0, 0, 0], torch.zeros(8))
    assert float(both.lse[0, 0, 0]) == float("-inf")
    assert torch.allclose(both.out[0, 0, 1], torch.full((8,), 3.0))
    assert torch.equal(merge(none, none).lse, none.lse)
