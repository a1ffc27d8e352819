"""Stock models with an OnggiCache: the same tokens and logits as with transformers' own cache."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed here")
transformers: Any = pytest.importorskip("transformers", reason="transformers is not installed here")

from tests.library.tiered_kit import MIB, agent  # noqa: E402
from tests.library.transformers_kit import (  # noqa: E402
    BLOCK,
    COMMON,
    FAMILIES,
    GROUPED,
    NEAR,
    VOCABULARY,
    cache_for,
    check_alike,
    generated,
    pair,
    prompt,
)
from transformers.masking_utils import (  # noqa: E402
    chunked_causal_mask_function,
    sliding_window_causal_mask_function,
)

from onggi_library.attention.piece import Span  # noqa: E402
from onggi_library.transformers import OnggiCache  # noqa: E402
from onggi_library.transformers.masks import onggi_mask  # noqa: E402

torch.set_num_threads(1)
# the name that all versions know; a newer one for the same calls it `cache`
pytestmark = pytest.mark.filterwarnings("ignore:.past_key_values. is deprecated:FutureWarning")


@pytest.fixture(scope="module")
def tiers() -> Iterator[Path]:
    """The socket of an agent."""
    with agent() as running:
        yield running.socket


@pytest.mark.parametrize("family", list(FAMILIES))
def test_greedy_tokens_and_logits_are_equal(family: str, tiers: Path) -> None:
    cache = check_alike(family, tiers, prompt())
    assert cache.context.flow.brought_bytes > 0


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2", "gemma3", "gpt_neox"])
def test_left_padded_batches(family: str, tiers: Path) -> None:
    ids = prompt(3)
    mask = torch.ones_like(ids)
    for row, padding in enumerate((0, 37, 120)):
        ids[row, :padding], mask[row, :padding] = 0, 0
    check_alike(family, tiers, ids, attention_mask=mask)


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2", "gemma3"])
def test_beams(family: str, tiers: Path) -> None:
    check_alike(family, tiers, prompt(2, 200), num_beams=3)


def test_sampling_with_a_seed(tiers: Path) -> None:
    check_alike("qwen3", tiers, prompt(2), do_sample=True, temperature=0.9, top_k=20)


@pytest.mark.parametrize("family", ["llama", "mistral", "cohere2"])
def test_prompts_in_chunks(family: str, tiers: Path) -> None:
    check_alike(family, tiers, prompt(), prefill_chunk_size=64)


def test_a_saved_prompt_is_used_by_the_next(tiers: Path) -> None:
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


def test_a_whole_hit_leaves_the_last_token_to_compute(tiers: Path) -> None:
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
    with agent(**disk) as running, cache_for(ours, running.socket) as cache, torch.no_grad():
        ours(ids[:, :150], past_key_values=cache)
        cache.save("system", ids)
    with agent(**disk) as running, cache_for(ours, running.socket) as cache:
        assert cache.restore("system", ids) == 150
        assert torch.equal(generated(stock, ids, None)[0], generated(ours, ids, cache)[0])


def test_an_agent_of_its_own(tmp_path: Any) -> None:
    stock, ours = pair("llama")
    ids = prompt(1, 200)
    own = {"memory": 64 * MIB, "disk": 64 * MIB, "disk_path": tmp_path}
    given = {"device_bytes": MIB, "block_tokens": BLOCK, "model": "tiny"}
    with OnggiCache(ours.config, **given, **own) as cache:
        tokens = generated(ours, ids, cache)[0]
        assert torch.equal(generated(stock, ids, None)[0], tokens)
        cache.save("said", tokens)  # is on disk when it returns, and not only at the end
        assert cache.context._held is not None
        stats = cache.context._held.store.stats()
        assert stats["pending_blocks"] == 0 < stats["disk_used_bytes"]
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


def test_another_attention_is_told_what_to_use(tiers: Path) -> None:
    stock, _ = pair("llama")
    with (
        cache_for(stock, tiers) as cache,
        pytest.raises(AttributeError, match=r'set_attn_implementation\("onggi"\)'),
    ):
        stock(prompt(), past_key_values=cache)


def test_a_prompt_fed_again_is_refused_and_not_computed_wrongly(tiers: Path) -> None:
    _, ours = pair("llama")
    ids = prompt(1, 80)
    with cache_for(ours, tiers) as cache, torch.no_grad():
        ours(ids, past_key_values=cache)
        with pytest.raises(ValueError, match="attention_mask is for 80 tokens, but the cache has"):
            ours(ids, attention_mask=torch.ones_like(ids), past_key_values=cache)


@pytest.mark.parametrize("family", ["llama", "gemma3", "gpt_neox"])
@pytest.mark.parametrize(
    ("length", "said"),
    [
        (80, "this cache already has 91 tokens, and what is fed stands at position "),
        (40, "this cache already has 91 tokens, and nothing behind them is fed"),
    ],
)
def test_generate_with_a_cache_that_has_more_is_refused_and_changes_nothing(
    family: str, length: int, said: str, tiers: Path
) -> None:
    stock, ours = pair(family)
    ids = prompt(1, 80)
    with cache_for(ours, tiers) as cache:
        tokens = generated(ours, ids, cache)[0]
        with pytest.raises(ValueError, match=f"^{said}.*: hand in what it was given followed by"):
            generated(ours, ids[:, :length], cache)
        assert cache.get_seq_length() == 91
        longer = torch.cat([tokens, ids[:, :5]], dim=1)
        assert torch.equal(generated(ours, longer, cache)[0], generated(stock, longer, None)[0])


def test_a_model_in_place_of_its_configuration_is_told() -> None:
    stock, _ = pair("llama")
    for wrong, kind in ((stock, "LlamaForCausalLM"), (None, "NoneType"), ({}, "dict")):
        with pytest.raises(TypeError, match=f"^config is a {kind}; hand in .* model.config"):
            OnggiCache(wrong, device_bytes=MIB, memory=MIB)


def test_models_that_keep_other_things_are_refused() -> None:
    config = transformers.LlamaConfig(**GROUPED)
    config.layer_types = ["full_attention", "linear_attention", "full_attention"]
    with pytest.raises(ValueError, match="has layers of linear_attention"):
        OnggiCache(config, device_bytes=MIB, memory=MIB)
    latent = transformers.DeepseekV3Config(**COMMON, kv_lora_rank=16)
    with pytest.raises(ValueError, match="keeps 16 numbers a token and makes keys of them itself"):
        OnggiCache(latent, device_bytes=MIB, memory=MIB)


def test_what_would_not_be_exact_is_refused(tiers: Path) -> None:
    _, ours = pair("llama")
    ids = prompt(1, 20)
    with (
        cache_for(ours, tiers) as cache,
        pytest.raises(
            ValueError, match=r"^output_attentions is True: .*leave output_attentions out"
        ),
    ):
        ours(ids, past_key_values=cache, output_attentions=True)
    with cache_for(ours, tiers) as cache, pytest.raises(ValueError, match="write -3 to remove"):
        cache.crop(3)


def test_masks_of_the_callers_own(tiers: Path) -> None:
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
