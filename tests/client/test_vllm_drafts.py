"""What speculative decoding changes: when a step's results are collected, which block of a hit is
computed, and whose bytes lie in a page."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from vllm_stand_ins import BLOCK, SPACE, Request, page_of, step_output

from onggi import Client, block_keys
from onggi.connectors.vllm.drafts import drafter, looks_ahead, saves_unasked
from onggi.connectors.vllm.hybrid.kinds import Kind
from onggi.connectors.vllm.identity import identity
from onggi.connectors.vllm.options import Options
from onggi.connectors.weights import WeightsUnknown

pytestmark = pytest.mark.usefixtures("patient")

TOKENS = [900 + i for i in range(4 * BLOCK + 3)]


def store(agent: Any, blocks: int = 4) -> None:
    client = Client(agent.socket_path, spaces=[SPACE], deadline_s=5.0)
    pages = [page_of(TOKENS[: (n + 1) * BLOCK]) for n in range(blocks)]
    assert client.store(block_keys(TOKENS, BLOCK)[:blocks], pages).stored == blocks
    client.close()


def plan_of(sides: Any, blocks: int = 4) -> Any:
    """A step that loads these blocks of a request and computes the rest."""
    one, table = Request("r", list(TOKENS)), [6, 7, 8, 9, 10]
    sides.scheduler.arrived(one)
    promised = sides.scheduler.matched(one, 0)
    assert promised[0] == blocks * BLOCK
    sides.scheduler.admitted(one, [table], blocks * BLOCK)
    one.num_computed_tokens = blocks * BLOCK
    rest = len(TOKENS) - one.num_computed_tokens
    return sides.scheduler.plan(step_output({"r": rest}, {"r": table}))


def test_a_load_that_fails_is_told_in_its_own_step(agent: Any, make_sides: Any) -> None:
    """Its results are collected before anybody says that all is written."""
    store(agent)
    sides = make_sides(agent, layerwise=True)
    plan = plan_of(sides)
    sides.worker.load(plan)
    agent.retire()
    for layer in ("l0", "l1"):
        sides.worker.wait_for_layer(layer)
    sides.worker.computed(plan)
    assert sides.worker.take_errors() == {6, 7, 8, 9}
    assert [blocks for blocks, _ in sides.worker.take_report().loaded.values()] == [0]
    sides.worker.after_forward(plan)
    assert sides.worker.take_errors() == set()
    assert not sides.worker.take_report().loaded


@pytest.mark.parametrize("unasked", [False, True])
def test_saves_wait_for_the_drafts_where_the_engine_tells_of_them(
    agent: Any, make_sides: Any, unasked: bool
) -> None:
    store(agent, 2)
    sides = make_sides(agent, unasked={0} if unasked else set())
    plan = plan_of(sides, 2)
    handed: list[Any] = []
    sides.worker._mover.submit_save = lambda save, after: handed.append(save)  # type: ignore[method-assign]
    sides.worker.load(plan)
    sides.worker.computed(plan)
    assert len(handed) == int(unasked)
    sides.worker.after_forward(plan)
    sides.worker.computed(plan)
    assert [len(save.keys) for save in handed] == [2]


def test_where_drafts_look_ahead_the_last_block_of_a_hit_is_computed(
    agent: Any, make_sides: Any
) -> None:
    """Also of what the engine has itself: it has left out a block already."""
    store(agent)
    sides = make_sides(agent, looks_ahead=True)
    for local, promised in ((0, 3), (2, 1), (3, 0), (4, 0)):
        one = Request(f"r{local}", list(TOKENS))
        sides.scheduler.arrived(one)
        assert sides.scheduler.matched(one, local * BLOCK) == (promised * BLOCK, False)


# ---- whose bytes they are


class Speculative(SimpleNamespace):
    """As much of vLLM's SpeculativeConfig as is asked."""

    def uses_draft_kv_cache(self) -> bool:
        return self.method in ("eagle", "mtp", "draft_model")

    def use_eagle_block_drop(self) -> bool:
        return self.method in ("eagle", "mtp")


def weights(path: Path, content: bytes) -> str:
    path.mkdir(exist_ok=True)
    (path / "model.safetensors").write_bytes(content)
    return str(path)


@pytest.fixture
def fields_with(tmp_path: Path) -> Any:
    """Fields of a model with these settings of speculative decoding."""
    target = weights(tmp_path / "target", b"t" * 5000)

    def fields_with(revision: str = "", **speculative: Any) -> dict[str, Any]:
        model = SimpleNamespace(model=target, dtype="bf16", hf_config=None, quantization=None)
        draft = SimpleNamespace(model=speculative.pop("draft", target), quantization=None)
        config = SimpleNamespace(
            model_config=model,
            cache_config=SimpleNamespace(cache_dtype="auto", kv_cache_layout=None),
            parallel_config=SimpleNamespace(tensor_parallel_size=1, pipeline_parallel_size=1),
            speculative_config=None,
        )
        if speculative:
            config.speculative_config = Speculative(draft_model_config=draft, **speculative)
        spec = SimpleNamespace(block_size=16)
        group = SimpleNamespace(layer_names=["l0"], kv_cache_spec=spec)
        return identity(
            config,
            SimpleNamespace(kv_cache_groups=[group], kv_cache_layout=""),
            Kind((0,), 16),
            Options(socket="", revision=revision),
            engine_version="0",
            tp_rank=0,
            pp_rank=0,
            backend="",
            isa="",
            page_bytes=4096,
        )

    return fields_with


def test_what_drafts_is_named_if_it_has_layers_of_its_own(fields_with: Any, tmp_path: Path) -> None:
    one, two = (weights(tmp_path / name, name.encode() * 5000) for name in ("a", "b"))
    none, eagle = fields_with(), fields_with(method="eagle", draft=one, num_speculative_tokens=3)
    assert fields_with(method="ngram", num_speculative_tokens=3) == none
    assert none.keys() < eagle.keys()
    assert fields_with(method="eagle", draft=two, num_speculative_tokens=3) != eagle
    assert fields_with(method="draft_model", draft=one, num_speculative_tokens=3) != eagle
    # What a head or a model of its own writes is the same for any number of drafts.
    assert fields_with(method="eagle", draft=one, num_speculative_tokens=5) == eagle
    mtp = [fields_with(method="mtp", num_speculative_tokens=number) for number in (1, 2)]
    assert mtp[0] != mtp[1]
    assert mtp[0]["drafter_weights"] == mtp[0]["weights"]


def test_of_what_drafts_its_files_say_more_than_the_users_word_on_the_model(
    fields_with: Any, tmp_path: Path
) -> None:
    one, two = (weights(tmp_path / name, name.encode() * 5000) for name in ("a", "b"))
    declared: dict[str, Any] = {"revision": "mine", "method": "eagle"}
    assert fields_with(draft=one, **declared) != fields_with(draft=two, **declared)
    assert fields_with(draft="org/head", **declared)["drafter_weights"] == "declared:mine"
    with pytest.raises(WeightsUnknown, match="org/head"):
        fields_with(draft="org/head", method="eagle")


def test_what_an_engine_does_is_read_from_its_settings() -> None:
    def config(method: str) -> Any:
        return SimpleNamespace(speculative_config=Speculative(method=method) if method else None)

    assert [bool(drafter(config(m))) for m in ("", "ngram", "eagle", "draft_model")] == [
        *(False, False),
        *(True, True),
    ]
    assert [looks_ahead(config(m)) for m in ("", "ngram", "mtp", "draft_model")] == [
        *(False, False),
        *(True, False),
    ]
    assert saves_unasked(config("ngram"), last_of_pipeline=False)
    assert not saves_unasked(config("ngram"), last_of_pipeline=True)
    assert not saves_unasked(config(""), last_of_pipeline=False)
