"""Stock models with an OnggiCache: the same tokens and logits as with transformers' own cache."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed here")
transformers: Any = pytest.importorskip("transformers", reason="transformers is not installed here")

from tests.library.tiered_kit import MIB, agent  # noqa: E402
from transformers.masking_utils import (  # noqa: E402
    chunked_causal_mask_function,
    sliding_window_causal_mask_function,
)

from onggi_library.attention.piece import Span  # noqa: E402
from onggi_library.in_process import InProcessAgent  # noqa: E402
from onggi_library.transformers import OnggiCache  # noqa: E402
from onggi_library.transformers.masks import onggi_mask  # noqa: E402

torch.set_num_threads(1)
# the name that all versions know; a newer one for the same calls it `cache`
pytestmark = pytest.mark.filterwarnings("ignore:.past_key_values. is deprecated:FutureWarning")

VOCABULARY = 97
COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 4096,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED = {**COMMON, "num_key_value_heads": 2}
FAMILIES: dict[str, Callable[[], Any]] = {
    "llama": lambda: transformers.LlamaConfig(**GROUPED),
    "qwen2": lambda: transformers.Qwen2Config(**GROUPED),
    "qwen3": lambda: transformers.Qwen3Config(**GROUPED, head_dim=16),
    "mistral": lambda: transformers.MistralConfig(**GROUPED, sliding_window=40),
    "gemma2": lambda: transformers.Gemma2Config(
        **GROUPED, head_dim=8, sliding_window=40, attn_logit_softcapping=3.0
    ),
    "gemma3": lambda: transformers.Gemma3TextConfig(
        **GROUPED,
        head_dim=8,
        sliding_window=40,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
    ),
    "gpt_neox": lambda: transformers.GPTNeoXConfig(**COMMON),
    "phi": lambda: transformers.PhiConfig(**COMMON),
}
BLOCK = 16
NEAR = 2e-5


@pytest.fixture(scope="module")
def tiers() -> Iterator[InProcessAgent]:
    with agent() as running:
        yield running


def pair(family: str) -> tuple[Any, Any]:
    """The same weights twice: with the eager attention and cache of transformers, and with ours."""
    torch.manual_seed(7)
    config = FAMILIES[family]()
    stock = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    stock.eval()
    for parameter in stock.parameters():  # so that attention is not all but uniform
        parameter.data.mul_(3.0 if parameter.dim() > 1 else 1.0)
    ours = transformers.AutoModelForCausalLM.from_config(
        FAMILIES[family](), attn_implementation="onggi"
    )
    ours.load_state_dict(stock.state_dict())
    return stock, ours.eval()


def row_bytes(model: Any) -> int:
    config = model.config
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return 2 * heads * size * 4


def cache_for(of: Any, tiers: InProcessAgent, batch: int = 1, **settings: Any) -> OnggiCache:
    """One whose device budget is 14 blocks a sequence: 75 tokens a layer."""
    given = {"device_bytes": 14 * BLOCK * row_bytes(of) * batch, "sinks": BLOCK, "recent": BLOCK}
    given |= {"block_tokens": BLOCK, "socket": tiers.socket, "model": "tiny", **settings}
    return OnggiCache(of.config, **given)


def prompt(batch: int = 1, length: int = 300) -> Any:
    generator = torch.Generator().manual_seed(11)
    return torch.randint(3, VOCABULARY, (batch, length), generator=generator)


def generated(model: Any, ids: Any, cache: Any, **how: Any) -> tuple[Any, Any]:
    """Tokens and, of each step, logits."""
    torch.manual_seed(3)
    mask = how.pop("attention_mask", torch.ones_like(ids))
    found = model.generate(
        ids,
        attention_mask=mask,
        past_key_values=cache,
        max_new_tokens=12,
        min_new_tokens=12,
        return_dict_in_generate=True,
        output_logits=True,
        **{"do_sample": False, **how},
    )
    return found.sequences, torch.stack(found.logits)


def check_alike(family: str, tiers: InProcessAgent, ids: Any, **how: Any) -> OnggiCache:
    stock, ours = pair(family)
    beams = how.get("num_beams", 1)
    tokens, logits = generated(stock, ids, None, **how)
    with cache_for(ours, tiers, ids.shape[0] * beams) as cache:
        our_tokens, our_logits = generated(ours, ids, cache, **how)
        report = cache.report()
    assert torch.equal(tokens, our_tokens)
    near = NEAR * max(1.0, float(logits.abs().max()))
    assert float((logits - our_logits).abs().max()) <= near
    assert report.device_bytes_peak <= report.device_budget_bytes
    return cache


@pytest.mark.parametrize("family", list(FAMILIES))
def test_greedy_tokens_and_logits_are_equal(family: str, tiers: InProcessAgent) -> None:
    cache = check_alike(family, tiers, prompt())
    assert cache.context.flow.brought_bytes > 0


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2", "gemma3", "gpt_neox"])
def test_left_padded_batches(family: str, tiers: InProcessAgent) -> None:
    ids = prompt(3)
    mask = torch.ones_like(ids)
    for row, padding in enumerate((0, 37, 120)):
        ids[row, :padding], mask[row, :padding] = 0, 0
    check_alike(family, tiers, ids, attention_mask=mask)


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3"])
def test_beams(family: str, tiers: InProcessAgent) -> None:
    check_alike(family, tiers, prompt(2, 200), num_beams=3)


def test_sampling_with_a_seed(tiers: InProcessAgent) -> None:
    check_alike("qwen3", tiers, prompt(2), do_sample=True, temperature=0.9, top_k=20)


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_prompts_in_chunks(family: str, tiers: InProcessAgent) -> None:
    check_alike(family, tiers, prompt(), prefill_chunk_size=64)


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_assisted_decoding_takes_back_what_it_guessed(family: str, tiers: InProcessAgent) -> None:
    ids = prompt(1, 60).repeat(1, 4)  # so that there is something to look up
    stock, ours = pair(family)
    how = {"max_new_tokens": 40, "do_sample": False, "attention_mask": torch.ones_like(ids)}
    tokens = stock.generate(ids, **how)
    with cache_for(ours, tiers) as cache:
        ours_tokens = ours.generate(ids, past_key_values=cache, prompt_lookup_num_tokens=6, **how)
    assert torch.equal(tokens, ours_tokens)


def test_batches_are_repeated_selected_from_and_cropped(tiers: InProcessAgent) -> None:
    stock, ours = pair("gemma3")
    ids, next_ids = prompt(2, 150), prompt(2, 9)
    logits = []
    for model, cache in (
        (stock, transformers.DynamicCache()),
        (ours, cache_for(ours, tiers, 4)),
    ):
        with torch.no_grad():
            model(ids, past_key_values=cache)
            cache.batch_repeat_interleave(2)
            model(next_ids.repeat_interleave(2, dim=0), past_key_values=cache)
            cache.crop(-5)
            cache.batch_select_indices(torch.tensor([3, 0]))
            logits.append(model(next_ids, past_key_values=cache).logits)
    cache.close()
    exact, found = logits
    assert float((exact - found).abs().max()) <= NEAR * float(exact.abs().max())


def test_a_saved_prompt_is_used_by_the_next(tiers: InProcessAgent) -> None:
    stock, ours = pair("llama")
    ids = prompt(1, 200)
    with cache_for(ours, tiers) as cache, torch.no_grad():
        ours(ids[:, :150], past_key_values=cache)
        cache.save("system", ids)
    tokens, logits = generated(stock, ids, None)
    with cache_for(ours, tiers) as cache:
        assert cache.restore("system", ids) == 150
        our_tokens, our_logits = generated(ours, ids, cache)
    assert torch.equal(tokens, our_tokens)
    assert float((logits - our_logits).abs().max()) <= NEAR * float(logits.abs().max())
    with cache_for(ours, tiers, 3) as cache:  # for a batch, as far as all rows begin with it
        rows = ids.repeat(3, 1)
        rows[2, 90] = (rows[2, 90] + 1) % VOCABULARY
        assert cache.restore("system", rows) == 90
        assert torch.equal(generated(stock, rows, None)[0], generated(ours, rows, cache)[0])


def test_a_whole_hit_leaves_the_last_token_to_compute(tiers: InProcessAgent) -> None:
    stock, ours = pair("llama")
    ids = prompt(1, 100)
    with cache_for(ours, tiers) as cache, torch.no_grad():
        ours(ids, past_key_values=cache)
        cache.save("whole", ids)
    with cache_for(ours, tiers) as cache:
        assert cache.restore("whole", ids) == 99
        assert torch.equal(generated(stock, ids, None)[0], generated(ours, ids, cache)[0])
    with cache_for(ours, tiers) as cache:
        assert cache.restore("unknown", ids) == 0
        assert cache.restore("whole", ids + 1) == 0
    with (
        cache_for(ours, tiers, model="other") as cache,
        pytest.raises(ValueError, match=r"not of this model \(model: 'tiny' there, 'other' here"),
    ):
        cache.restore("whole", ids)


def test_what_is_on_disk_is_used_by_the_next_agent(tmp_path: Any) -> None:
    stock, ours = pair("qwen2")
    ids = prompt(1, 200)
    disk = {"disk": 64 * MIB, "disk_path": tmp_path}
    with agent(**disk) as running, cache_for(ours, running) as cache, torch.no_grad():
        ours(ids[:, :150], past_key_values=cache)
        cache.save("system", ids)
    with agent(**disk) as running, cache_for(ours, running) as cache:
        assert cache.restore("system", ids) == 150
        assert torch.equal(generated(stock, ids, None)[0], generated(ours, ids, cache)[0])


def test_an_agent_of_its_own(tmp_path: Any) -> None:
    stock, ours = pair("llama")
    ids = prompt(1, 200)
    own = {"memory": 64 * MIB, "disk": 64 * MIB, "disk_path": tmp_path}
    with OnggiCache(ours.config, device_bytes=MIB, block_tokens=BLOCK, **own) as cache:
        assert torch.equal(generated(stock, ids, None)[0], generated(ours, ids, cache)[0])
    with pytest.raises(ValueError, match="memory is 0; give the bytes"):
        OnggiCache(ours.config, device_bytes=MIB)


def test_without_a_cache_and_with_the_caches_of_transformers() -> None:
    for family in ("mistral", "gemma2"):
        stock, ours = pair(family)
        ids = prompt(2, 90)
        mask = torch.ones_like(ids)
        ids[0, :20], mask[0, :20] = 0, 0
        with torch.no_grad():
            exact = stock(ids, attention_mask=mask, use_cache=False).logits[:, -1]
            found = ours(ids, attention_mask=mask, use_cache=False).logits[:, -1]
        assert float((exact - found).abs().max()) <= NEAR * float(exact.abs().max())
        how = {"attention_mask": mask}
        assert torch.equal(
            generated(stock, ids, None, **how)[0], generated(ours, ids, None, **how)[0]
        )


def test_another_attention_is_told_what_to_use(tiers: InProcessAgent) -> None:
    stock, _ = pair("llama")
    with (
        cache_for(stock, tiers) as cache,
        pytest.raises(AttributeError, match=r'set_attn_implementation\("onggi"\)'),
    ):
        stock(prompt(), past_key_values=cache)


def test_a_prompt_fed_again_is_refused_and_not_computed_wrongly(tiers: InProcessAgent) -> None:
    _, ours = pair("llama")
    ids = prompt(1, 80)
    with cache_for(ours, tiers) as cache, torch.no_grad():
        ours(ids, past_key_values=cache)
        with pytest.raises(ValueError, match="attention_mask is for 80 tokens, but the cache has"):
            ours(ids, attention_mask=torch.ones_like(ids), past_key_values=cache)


def test_models_that_keep_other_things_are_refused() -> None:
    config = transformers.LlamaConfig(**GROUPED)
    config.layer_types = ["full_attention", "linear_attention", "full_attention"]
    with pytest.raises(ValueError, match="has layers of linear_attention"):
        OnggiCache(config, device_bytes=MIB, memory=MIB)


def test_what_would_not_be_exact_is_refused(tiers: InProcessAgent) -> None:
    _, ours = pair("llama")
    ids = prompt(1, 20)
    with (
        cache_for(ours, tiers) as cache,
        pytest.raises(ValueError, match="leave output_attentions out"),
    ):
        ours(ids, past_key_values=cache, output_attentions=True)
    with cache_for(ours, tiers) as cache, pytest.raises(ValueError, match="write -3 to remove"):
        cache.crop(3)


def test_masks_of_the_callers_own(tiers: InProcessAgent) -> None:
    """[batch, 1, queries, keys], as bool or as what is added to scores: taken if it hides keys."""
    stock, ours = pair("llama")
    ids = prompt(1, 60)
    seen = torch.ones(60, 60, dtype=torch.bool).tril()
    seen[30:, 5:20] = False
    hidden = torch.where(seen, 0.0, torch.finfo(torch.float32).min)[None, None]
    with torch.no_grad():
        exact = stock(ids, attention_mask=hidden, use_cache=False).logits
        for mask in (seen[None, None], hidden):
            with cache_for(ours, tiers) as cache:
                found = ours(ids, attention_mask=mask, past_key_values=cache).logits
            assert float((exact - found).abs().max()) <= NEAR * float(exact.abs().max())
        with (
            cache_for(ours, tiers) as cache,
            pytest.raises(ValueError, match="attention_mask adds to scores"),
        ):
            ours(ids, attention_mask=hidden / 1e38, past_key_values=cache)


def test_masks_by_another_rule_are_asked_tile_by_tile() -> None:
    function = chunked_causal_mask_function(16, torch.zeros(1, dtype=torch.int))
    rule = onggi_mask(1, 8, 48, q_offset=40, mask_function=function)
    assert rule.visible.causal is False
    assert rule.seen is not None
    assert rule.seen(Span(40, 8), Span(30, 18))[0, 0].tolist() == [
        [key <= query and key // 16 == query // 16 for key in range(30, 48)]
        for query in range(40, 48)
    ]
    window = sliding_window_causal_mask_function(7)
    assert onggi_mask(1, 8, 48, mask_function=window).visible.window == 7


def test_the_program_of_the_page_runs() -> None:
    page = Path(__file__).parents[2] / "docs" / "transformers.md"
    (program,) = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    exec(compile(program, str(page), "exec"), {})
