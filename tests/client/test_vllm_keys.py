"""When two blocks are the same: keys of a request, versions of an adapter, weights, fields."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from vllm_stand_ins import BLOCK, Request

from onggi import block_keys
from onggi.connectors import environment as variables
from onggi.connectors import weights
from onggi.connectors.changed import say_what_changed
from onggi.connectors.vllm.adapters import Adapters
from onggi.connectors.vllm.hybrid.kinds import Kind, StandBack
from onggi.connectors.vllm.identity import check_supported, identity
from onggi.connectors.vllm.keys import RequestKeys
from onggi.connectors.vllm.options import Options, read_options
from onggi.connectors.weights import WeightsUnknown, revision
from onggi_core.identity import fingerprint
from onggi_core.variables import OF_ENGINES

TOKENS = list(range(5 * BLOCK))


def keys(blocks: int = 5, *, life: str = "", adapter: Any = (), **kwargs: Any) -> list[bytes]:
    request = Request("r", list(TOKENS), **kwargs)
    return RequestKeys(request, BLOCK, adapter=adapter, life=life).upto(blocks)


def picture(identifier: str, offset: int, length: int) -> Any:
    place = SimpleNamespace(offset=offset, length=length)
    return SimpleNamespace(identifier=identifier, mm_position=place)


def test_plain_prompts_have_the_cores_keys() -> None:
    assert keys() == block_keys(TOKENS, BLOCK)


def test_keys_made_step_by_step_are_those_made_at_once() -> None:
    request = Request("r", [], cache_salt="s", mm_features=[picture("cat", 20, 30)])
    grown = RequestKeys(request, BLOCK)
    for length in range(0, len(TOKENS) + 1, 7):
        request.all_token_ids = TOKENS[:length]
        grown.upto(length // BLOCK)
    request.all_token_ids = TOKENS
    assert grown.upto(5) == keys(cache_salt="s", mm_features=[picture("cat", 20, 30)])


def test_keys_stop_at_what_is_known() -> None:
    request = Request("r", TOKENS[: 2 * BLOCK - 1])
    assert len(RequestKeys(request, BLOCK).upto(5)) == 1


def test_a_session_that_takes_tokens_back_gets_new_keys() -> None:
    request = Request("r", list(TOKENS))
    made = RequestKeys(request, BLOCK)
    made.upto(5)
    request.all_token_ids = [9] * (3 * BLOCK)
    assert made.upto(5) == block_keys([9] * (3 * BLOCK), BLOCK)


def test_a_salt_changes_every_block() -> None:
    assert not set(keys()) & set(keys(cache_salt="a"))
    assert not set(keys(cache_salt="a")) & set(keys(cache_salt="b"))
    assert not set(keys()) & set(keys(life="after a reset"))


def test_a_picture_changes_its_blocks_and_those_after_it() -> None:
    cat, dog = (keys(mm_features=[picture(n, 20, 30)]) for n in ("cat", "dog"))
    assert cat[0] == dog[0] == keys()[0]
    assert not set(cat[1:]) & set(dog[1:])
    moved = keys(mm_features=[picture("cat", 21, 30)])
    assert moved[1] != cat[1]


def test_an_adapter_changes_every_block(tmp_path: Path) -> None:
    (tmp_path / "adapter_model.safetensors").write_bytes(b"A" * 100)
    lora = SimpleNamespace(
        lora_int_id=1, lora_name="tone", lora_path=str(tmp_path), load_inplace=False
    )
    adapters = Adapters()
    first = adapters.extras(lora)
    assert first is not None
    assert not set(keys()) & set(keys(adapter=first))
    (tmp_path / "adapter_model.safetensors").write_bytes(b"B" * 101)
    assert adapters.extras(lora) == first  # the engine still has the old weights
    lora.load_inplace = True
    second = adapters.extras(lora)
    assert second is not None
    assert not set(keys(adapter=first)) & set(keys(adapter=second))
    assert adapters.extras(None) == ()


def test_an_adapter_of_unknown_version_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    lora = SimpleNamespace(lora_int_id=1, lora_name="t", lora_path="org/t", load_inplace=False)
    adapters = Adapters()
    assert [adapters.extras(lora) for _ in range(3)] == [None] * 3
    assert caplog.text.count("not cached") == 1


# ---- weights


def folder(path: Path, weights: bytes, config: str = "{}") -> str:
    path.mkdir(exist_ok=True)
    (path / "model.safetensors").write_bytes(weights)
    (path / "config.json").write_text(config)
    return str(path)


def test_other_weights_under_the_same_name_differ(tmp_path: Path) -> None:
    before = revision(folder(tmp_path / "m", b"1" * 5000), None, "")
    (tmp_path / "m" / "generation_config.json").write_text('{"temperature": 0.6}')
    assert revision(folder(tmp_path / "copy", b"1" * 5000), None, "") == before
    assert revision(str(tmp_path / "m"), None, "") == before  # sampling defaults shape no block
    assert revision(folder(tmp_path / "m", b"1" * 4999 + b"2"), None, "") != before
    assert revision(folder(tmp_path / "m", b"1" * 5000, '{"a": 1}'), None, "") != before


def test_large_weights_are_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "WHOLE_MAX_BYTES", 1000)
    before = revision(folder(tmp_path / "m", b"1" * 5_000_000), None, "")
    assert revision(str(tmp_path / "m"), None, "") == before
    other = folder(tmp_path / "n", b"2" * 5_000_000)
    os.utime(tmp_path / "n" / "model.safetensors", (0, 0))
    os.utime(tmp_path / "m" / "model.safetensors", (0, 0))
    assert revision(other, None, "") != revision(str(tmp_path / "m"), None, "")


def test_a_commit_or_the_users_word_stand_for_files() -> None:
    assert revision("org/name", "abc", "") == "commit:abc"
    assert revision("org/name", "abc", "mine") == "declared:mine"
    with pytest.raises(WeightsUnknown, match="set ONGGI_MODEL_REVISION"):
        revision("org/name", None, "")


# ---- fields


class FullAttentionSpec:
    block_size, num_kv_heads, head_size, dtype = 32, 8, 128, "bfloat16"
    sliding_window = None


class SlidingWindowSpec(FullAttentionSpec):
    pass


PLAIN = Kind((0,), 16)


class Hf:
    _commit_hash = "c0ffee"

    def __init__(self, **fields: Any) -> None:
        self.fields = {"rope_theta": 10_000.0, "hidden_size": 64, "_name_or_path": "x"} | fields

    def to_dict(self) -> dict[str, Any]:
        return self.fields

    def __repr__(self) -> str:
        return f"Hf({self.fields})"


def config(**changes: Any) -> tuple[Any, Any]:
    model = {"model": "org/name", "dtype": "torch.bfloat16", "hf_config": Hf(), "seed": 0}
    model |= {"quantization": None}
    cache = {"cache_dtype": "auto", "kv_cache_layout": None, "calculate_kv_scales": False}
    cache["enable_prefix_caching"] = True
    scheduler = {"enable_chunked_prefill": True}
    parallel = {
        "tensor_parallel_size": 1,
        "pipeline_parallel_size": 1,
        "decode_context_parallel_size": 1,
        "prefill_context_parallel_size": 1,
    }
    spec: Any = FullAttentionSpec()
    kv: dict[str, Any] = {"kv_cache_layout": "LBHNC"}
    for name, value in changes.items():
        if name in model:
            model[name] = value
        elif name in cache and name != "kv_cache_layout":
            cache[name] = value
        elif name in parallel:
            parallel[name] = value
        elif name in scheduler:
            scheduler[name] = value
        elif name == "block_size":
            spec.block_size = value
        elif name == "spec":
            spec = value
        else:
            kv[name] = value
    group = SimpleNamespace(layer_names=["l0", "l1"], kv_cache_spec=spec)
    groups = [group] * kv.pop("groups", 1)
    vllm_config = SimpleNamespace(
        model_config=SimpleNamespace(**model),
        cache_config=SimpleNamespace(**cache),
        parallel_config=SimpleNamespace(**parallel),
        scheduler_config=SimpleNamespace(**scheduler),
        load_config=SimpleNamespace(load_format="auto"),
    )
    return vllm_config, SimpleNamespace(kv_cache_groups=groups, **kv)


def print_of(
    options: Options | None = None, *, isa: str = "vec", kind: Kind = PLAIN, **changes: Any
) -> bytes:
    vllm_config, kv_cache_config = config(**changes)
    fields = identity(
        vllm_config,
        kv_cache_config,
        kind,
        options or Options(socket=""),
        engine_version="0.32.0",
        tp_rank=0,
        pp_rank=0,
        backend="CPU_ATTN",
        isa=isa,
        page_bytes=4096,
    )
    return fingerprint(fields)


@pytest.mark.parametrize(
    "change",
    [
        {"cache_dtype": "fp8"},
        {"dtype": "torch.float16"},
        {"hf_config": Hf(rope_scaling={"factor": 4.0})},
        {"hf_config": Hf(rope_theta=5e5)},
        {"quantization": "awq"},
        {"block_size": 16},
        {"tensor_parallel_size": 2},
        {"kv_cache_layout": "BLHNC"},
        {"model": "org/other"},
        {"isa": "amx"},
        {"kind": Kind((0,), 16, reach=63)},
        {"kind": Kind((0, 1), 16), "groups": 2},
        {"options": Options(socket="", revision="two")},
        {"options": Options(socket="", tenant="b")},
    ],
    ids=str,
)
def test_what_shapes_the_bytes_changes_the_fingerprint(change: dict[str, Any]) -> None:
    assert print_of(**change) != print_of()


@pytest.mark.parametrize(
    "change",
    [
        {"hf_config": Hf(_name_or_path="y")},
        {"hf_config": Hf(transformers_version="9")},
        {"options": Options(socket="/elsewhere", deadline_s=1.0)},
    ],
    ids=str,
)
def test_what_does_not_leaves_it(change: dict[str, Any]) -> None:
    assert print_of(**change) == print_of()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"decode_context_parallel_size": 2}, "decode_context_parallel_size is 2"),
        ({"calculate_kv_scales": True}, "calculate_kv_scales is on"),
        (
            {"enable_chunked_prefill": False, "enable_prefix_caching": False},
            "computes prompts whole",
        ),
    ],
)
def test_what_is_not_kept_yet_is_said(change: dict[str, Any], said: str) -> None:
    with pytest.raises(StandBack, match=said):
        check_supported(config(**change)[0])
    check_supported(config()[0])
    check_supported(config(enable_chunked_prefill=False)[0])
    check_supported(config(enable_prefix_caching=False)[0])


def test_the_field_that_changed_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    say_what_changed(str(tmp_path), "tp0", {"dtype": "bf16", "layers": 2})
    say_what_changed(str(tmp_path), "tp0", {"dtype": "bf16", "layers": 2})
    assert not caplog.records
    say_what_changed(str(tmp_path), "tp0", {"dtype": "fp16", "layers": 2})
    assert "dtype (bf16 -> fp16). What was kept is found again with the old value" in caplog.text
    say_what_changed(str(tmp_path / "absent"), "tp0", {"dtype": "fp16"})


# ---- options


def test_options_come_from_the_config_then_the_environment() -> None:
    environment = {"ONGGI_SOCKET": "/env", "ONGGI_TENANT": "t"}
    found = read_options({"socket": "/config", "deadline_s": 0.1}, environment)
    assert (found.socket, found.tenant, found.deadline_s) == ("/config", "t", 0.1)
    assert read_options({}, {}).socket == ""
    assert (read_options({}, {}).layerwise, read_options({}, {}).load) == ("auto", "worth")
    assert read_options({"layerwise": "off", "load": "always"}, {}).load == "always"


def test_every_variable_that_is_read_is_known_as_ours() -> None:
    read = {value for name, value in vars(variables).items() if name.endswith("_VARIABLE")}
    assert read == set(OF_ENGINES)


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({"sokcet": "/x"}, "has sokcet; did you mean socket"),
        ({"deadline_s": "soon"}, "deadline_s is 'soon'"),
        ({"disk_wait_s": 0}, "disk_wait_s is 0"),
        ({"layerwise": True}, "layerwise is True; use one of auto, on, off"),
        ({"load": "never"}, "load is 'never'; use one of worth, always"),
    ],
)
def test_a_wrong_option_is_named(extra: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_options(extra, {})


def test_prompts_of_embeddings_never_meet_those_of_tokens() -> None:
    """vLLM gives such a prompt zeros for tokens."""
    torch = pytest.importorskip("torch")
    zeros = [0] * (2 * BLOCK)

    def made(embeds: Any) -> list[bytes]:
        request = Request("r", list(zeros), prompt_embeds=embeds)
        return RequestKeys(request, BLOCK).upto(2)

    ones, others = torch.ones(2 * BLOCK, 4), torch.ones(2 * BLOCK, 4)
    others[BLOCK + 1, 0] = 2.0
    assert not set(made(None)) & set(made(ones))
    assert made(ones) == made(torch.ones(2 * BLOCK, 4))
    assert made(ones)[0] == made(others)[0]
    assert made(ones)[1] != made(others)[1]
    assert not set(made(ones)) & set(made(ones.double()))
