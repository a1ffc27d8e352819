"""A context in tiers: attention to all that was appended, within the device's budget."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed here")

from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from tests.library.tiered_kit import MIB, agent, noise, reference  # noqa: E402

from onggi_library.attention.visible import Visibility  # noqa: E402
from onggi_library.context.context import TieredContext  # noqa: E402
from onggi_library.context.errors import ContextLost, NoRoom  # noqa: E402
from onggi_library.in_process import InProcessAgent  # noqa: E402

torch.set_num_threads(1)

KV_HEADS, GROUP, SIZE, BLOCK = 2, 2, 16, 16
ROW_BYTES = 2 * KV_HEADS * SIZE * 4
NEAR = 2e-5


@pytest.fixture(scope="module")
def tiers() -> Iterator[InProcessAgent]:
    with agent() as running:
        yield running


@dataclass
class Twin:
    """A context and plain tensors that are given the same."""

    context: TieredContext
    batch: int
    seeds: Iterator[int]
    keys: list[Any] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)

    def step(self, count: int, **rules: Any) -> float:
        """Append so many tokens to every layer and attend; the greatest distance of any element."""
        worst = 0.0
        for layer in range(self.context.layers):
            shape = (self.batch, KV_HEADS, count, SIZE)
            new_keys, new_values = noise(next(self.seeds), *shape), noise(next(self.seeds), *shape)
            queries = noise(next(self.seeds), self.batch, KV_HEADS * GROUP, count, SIZE) * 2.0
            if len(self.keys) <= layer:
                self.keys.append(new_keys)
                self.values.append(new_values)
            else:
                self.keys[layer] = torch.cat([self.keys[layer], new_keys], dim=2)
                self.values[layer] = torch.cat([self.values[layer], new_values], dim=2)
            self.context.append(layer, new_keys, new_values)
            visible = Visibility(window=rules.get("window"))
            out = self.context.attend(layer, queries, visible=visible, softcap=rules.get("softcap"))
            exact = reference(queries, self.keys[layer], self.values[layer], **rules)
            worst = max(worst, float((out.double() - exact).abs().max()))
        return worst

    def crop(self, length: int) -> None:
        self.context.crop(length)
        self.keys = [keys[:, :, :length] for keys in self.keys]
        self.values = [values[:, :, :length] for values in self.values]

    def reorder(self, order: list[int]) -> None:
        self.context.reorder(order)
        self.keys = [keys[order] for keys in self.keys]
        self.values = [values[order] for values in self.values]
        self.batch = len(order)


def twin(running: InProcessAgent, batch: int = 2, **settings: Any) -> Twin:
    given = {
        "layers": 2,
        "device_bytes": 40 * BLOCK * ROW_BYTES * batch,
        "sinks": BLOCK,
        "recent": 2 * BLOCK,
        "block_tokens": BLOCK,
    }
    context = TieredContext(running.socket, **{**given, **settings})
    return Twin(context, batch, itertools.count(1))


often = settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@often
@given(data=st.data())
def test_attention_is_exact_whatever_is_done(tiers: InProcessAgent, data: st.DataObject) -> None:
    batch = data.draw(st.integers(1, 3))
    rules = {
        "window": data.draw(st.sampled_from([None, None, 20, 100])),
        "softcap": data.draw(st.sampled_from([None, None, 5.0])),
    }
    blocks = data.draw(st.integers(10, 60))
    both = twin(
        tiers,
        batch,
        device_bytes=blocks * BLOCK * ROW_BYTES * 4,
        sinks=data.draw(st.sampled_from([0, 5, BLOCK])),
        recent=data.draw(st.sampled_from([0, 20, 100])),
    )
    with both.context as context:
        assert both.step(data.draw(st.integers(1, 300)), **rules) <= NEAR
        for _ in range(data.draw(st.integers(1, 8))):
            what = data.draw(st.sampled_from(["token", "tokens", "crop", "beams", "batch"]))
            if what == "crop":
                both.crop(data.draw(st.integers(0, context.length())))
            elif what == "beams":
                row = st.integers(0, both.batch - 1)
                both.reorder(data.draw(st.lists(row, min_size=both.batch, max_size=both.batch)))
            elif what == "batch":
                row = st.integers(0, both.batch - 1)
                both.reorder(data.draw(st.lists(row, min_size=1, max_size=4)))
            count = data.draw(st.integers(2, 90)) if what == "tokens" else 1
            assert both.step(count, **rules) <= NEAR
            report = context.report()
            assert report.device_bytes_peak <= report.device_budget_bytes


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_dtypes(tiers: InProcessAgent, dtype: Any) -> None:
    near = {torch.float16: 2**-8, torch.bfloat16: 2**-5, torch.float64: 1e-6}[dtype]
    shape = (1, KV_HEADS, 400, SIZE)
    keys, values = noise(1, *shape, dtype=dtype), noise(2, *shape, dtype=dtype)
    queries = noise(3, 1, 4, 400, SIZE, dtype=dtype)
    with TieredContext(
        tiers.socket, layers=1, device_bytes=200 * 1024, sinks=16, recent=32, block_tokens=16
    ) as context:
        context.append(0, keys, values)
        out = context.attend(0, queries)
        assert out.dtype == dtype
        assert float((out.double() - reference(queries, keys, values)).abs().max()) <= near
        assert context.report().tier_bytes > 0


def test_the_device_holds_no_more_whatever_the_length(tiers: InProcessAgent) -> None:
    peaks = []
    for length in (300, 2400):
        both = twin(tiers, 1)
        with both.context as context:
            for _ in range(length // 100):
                assert both.step(100) <= NEAR
            for _ in range(12):
                assert both.step(1) <= NEAR
            peaks.append(context.report().device_bytes_peak)
            assert context.report().device_budget_bytes == 40 * BLOCK * ROW_BYTES
            assert context.report().flow.brought_bytes > 0
    assert peaks[1] <= 40 * BLOCK * ROW_BYTES


def test_a_context_that_fits_into_the_budget_stays_there(tiers: InProcessAgent) -> None:
    both = twin(tiers, 1, device_bytes=4 * MIB)
    with both.context as context:
        both.step(2400)
        for _ in range(20):
            assert both.step(1) <= NEAR
        before = context.report().flow.brought_bytes
        for _ in range(5):
            assert both.step(1) <= NEAR
        assert context.report().hot_pieces > 0
        assert context.report().flow.brought_bytes == before


def test_a_budget_that_is_too_small_says_what_would_do(tiers: InProcessAgent) -> None:
    both = twin(tiers, 1, device_bytes=1000)
    with both.context, pytest.raises(ValueError, match=r"device_bytes is 1000.* need at least"):
        both.step(1)


def test_what_does_not_fit_is_refused(tiers: InProcessAgent) -> None:
    both = twin(tiers, 1)
    with both.context as context:
        both.step(4)
        with pytest.raises(ValueError, match="layer 0 got keys"):
            context.append(0, torch.ones(2, KV_HEADS, 1, SIZE), torch.ones(2, KV_HEADS, 1, SIZE))
        with pytest.raises(ValueError, match="alike but for the last"):
            context.append(0, torch.ones(1, KV_HEADS, 1, SIZE), torch.ones(1, KV_HEADS, 2, SIZE))
        with pytest.raises(ValueError, match="length is 5; 0 up to the 4"):
            context.crop(5)
        with pytest.raises(ValueError, match=r"order is \[1\]"):
            context.reorder([1])
        assert both.step(3) <= NEAR


@pytest.mark.parametrize(
    ("field_name", "value"),
    [("layers", 0), ("sinks", -1), ("recent", -1), ("block_tokens", 0), ("epsilon", 1.0)],
)
def test_settings_that_mean_nothing_are_refused(field_name: str, value: float) -> None:
    given = {"layers": 1, "device_bytes": MIB, field_name: value}
    with pytest.raises(ValueError, match=f"{field_name} is "):
        TieredContext("/nowhere", **given)


def test_what_is_no_layer_or_no_queries_is_refused_and_changes_nothing(
    tiers: InProcessAgent,
) -> None:
    both = twin(tiers, 1)
    rows = torch.ones(1, KV_HEADS, 1, SIZE)
    with both.context as context:
        both.step(4)
        for layer in (-1, 99):
            for call in (
                lambda at: context.append(at, rows, rows),
                lambda at: context.attend(at, rows),
                context.length,
            ):
                with pytest.raises(
                    ValueError, match=rf"layer is {layer}; this context has \d+, from"
                ):
                    call(layer)
        for queries in (
            torch.ones(1, KV_HEADS, 5, SIZE),
            torch.ones(1, KV_HEADS, 0, SIZE),
            torch.ones(2, KV_HEADS, 1, SIZE),
            torch.ones(1, KV_HEADS + 1, 1, SIZE),
            torch.ones(1, KV_HEADS, 1, SIZE + 1),
            torch.ones(KV_HEADS, 1, SIZE),
        ):
            with pytest.raises(
                ValueError, match=r"queries are .*; use \[1, heads, tokens, .*up to"
            ):
                context.attend(0, queries)
        with pytest.raises(ValueError, match=r"queries are torch\.float16; use torch\.float32"):
            context.attend(0, rows.half())
        for wrong, said in (
            (lambda: context.append(0, [1], rows), "keys is a list; use a tensor"),
            (lambda: context.crop("1"), "length is '1'; use a whole number"),
            (lambda: context.reorder([0.5]), r"order\[0\] is 0.5; use a whole number"),
            (lambda: context.find(7), "name is 7; use a str"),
            (lambda: context.attend("0", rows), "layer is '0'; use a whole number"),
        ):
            with pytest.raises(TypeError, match=said):
                wrong()
        assert both.step(3) <= NEAR


def test_an_agent_that_ends_ends_the_context() -> None:
    with agent() as running:
        both = twin(running, 1)
        both.step(600)
        both.step(1)
    with pytest.raises(ContextLost):
        both.step(300)
    with pytest.raises(ContextLost, match="this context ended"):
        both.context.attend(0, torch.ones(1, 4, 1, SIZE))
    both.context.close()


def test_tiers_that_are_full_are_an_error_before_anything_is_lost() -> None:
    with agent(memory=8 * MIB) as running, twin(running, 1).context as context:
        keys = torch.ones(1, KV_HEADS, 30_000, SIZE)
        with pytest.raises(NoRoom, match="kept, and the larger of host memory and disk holds"):
            context.append(0, keys, keys)
        with pytest.raises(ContextLost, match="this context ended"):
            context.append(0, keys, keys)


def test_what_is_closed_leaves_the_tiers_empty(tiers: InProcessAgent) -> None:
    both = twin(tiers, 2)
    both.step(500)
    both.reorder([1, 1])
    both.step(200)
    store = both.context._held.store
    assert store.stats()["blocks"] > 0
    both.context.close()
    with TieredContext(tiers.socket, layers=1, device_bytes=MIB) as other:
        other.append(0, torch.ones(1, KV_HEADS, 1, SIZE), torch.ones(1, KV_HEADS, 1, SIZE))
        assert other._held.store.stats()["blocks"] == 0


def test_skipping_is_within_its_bounds_and_reported(tiers: InProcessAgent) -> None:
    epsilon = 1e-3
    context = TieredContext(
        tiers.socket,
        layers=1,
        device_bytes=40 * BLOCK * ROW_BYTES,
        sinks=BLOCK,
        recent=BLOCK,
        block_tokens=BLOCK,
        epsilon=epsilon,
    )
    keys, values = noise(1, 1, KV_HEADS, 1600, SIZE) * 0.1 - 1.0, noise(2, 1, KV_HEADS, 1600, SIZE)
    keys[:, :, 700:710] += 2.0
    queries = torch.full((1, 4, 1, SIZE), 4.0)
    with context:
        context.append(0, keys, values)
        out = context.attend(0, queries)
        flow = context.report().flow
    off = (out.double() - reference(queries, keys, values)).abs().max()
    assert flow.skipped > 0
    assert 0.0 < flow.share_max <= epsilon
    assert float(off) <= flow.error_max + NEAR


def test_keys_of_another_dtype_are_refused_with_what_to_do(tiers: InProcessAgent) -> None:
    both = twin(tiers, 1)
    both.step(40)
    keys = torch.zeros(1, 2, 1, 16, dtype=torch.float16)
    said = "of torch.float16; this context has .*: go on with what it was begun or saved with"
    with both.context as context, pytest.raises(ValueError, match=said):
        context.append(0, keys, keys)


def test_what_was_saved_is_whole_in_another_context(tiers: InProcessAgent) -> None:
    both = twin(tiers, 2)
    both.step(333)
    tokens = [list(range(333)), list(range(333))]
    both.context.save("prompt", tokens, {"model": "m"})
    both.context.close()
    other = twin(tiers, 2)
    other.keys, other.values = both.keys, both.values
    with other.context as context:
        saved = context.find("prompt")
        assert saved is not None
        assert saved.tokens == tokens
        said = r"model: 'm' there, 'n' here\); restore it into a cache of the model it is of"
        with pytest.raises(ValueError, match=said):
            saved.check({"model": "n"}, 2)
        context.restore(saved, "cpu")
        assert context.length() == 333
        other.crop(200)
        assert other.step(40) <= NEAR
        assert other.step(1) <= NEAR
        assert context.find("nothing") is None
