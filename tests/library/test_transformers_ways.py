"""Ways to generate over an OnggiCache: with guesses, in changing batches, within a budget that is
measured, in other processes."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed here")
transformers: Any = pytest.importorskip("transformers", reason="transformers is not installed here")

from tests.library.tiered_kit import MIB, Counting, agent  # noqa: E402
from tests.library.transformers_kit import (  # noqa: E402
    NEAR,
    cache_for,
    check_alike,
    generated,
    pair,
    prompt,
    row_bytes,
)

torch.set_num_threads(1)
# the name that all versions know; a newer one for the same calls it `cache`
pytestmark = pytest.mark.filterwarnings("ignore:.past_key_values. is deprecated:FutureWarning")

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "transformers.md"


@pytest.fixture(scope="module")
def tiers() -> Iterator[Path]:
    """The socket of an agent."""
    with agent() as running:
        yield running.socket


# ---- guesses, batches


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3"])
def test_prompt_lookup_takes_back_what_it_guessed(family: str, tiers: Path) -> None:
    ids = prompt(1, 60).repeat(1, 4)  # so that there is something to look up
    stock, ours = pair(family)
    how = {"max_new_tokens": 40, "do_sample": False, "attention_mask": torch.ones_like(ids)}
    tokens = stock.generate(ids, **how)
    with cache_for(ours, tiers) as cache:
        ours_tokens = ours.generate(ids, past_key_values=cache, prompt_lookup_num_tokens=6, **how)
    assert torch.equal(tokens, ours_tokens)


@pytest.mark.parametrize("family", ["llama", "qwen3", "mistral", "gemma2", "gemma3"])
def test_a_model_that_guesses_assists(family: str, tiers: Path) -> None:
    """One with nearly the same weights, so that some guesses hold and some are taken back."""
    ids = prompt(1, 200)
    stock, ours = pair(family)
    assistant, _ = pair(family)
    torch.manual_seed(5)
    for parameter in assistant.parameters():
        parameter.data += 0.1 * parameter.data.std(correction=0) * torch.randn_like(parameter)
    how = {"max_new_tokens": 30, "do_sample": False, "attention_mask": torch.ones_like(ids)}
    tokens = stock.generate(ids, **how)
    lengths: list[int] = []
    with cache_for(ours, tiers) as cache:
        cropped, crop = lengths.append, cache.context.crop

        def counted(length: int) -> None:
            cropped(cache.context.length() - length)
            crop(length)

        cache.context.crop = counted
        found = ours.generate(ids, past_key_values=cache, assistant_model=assistant, **how)
    assert torch.equal(tokens, found)
    assert any(lengths), "no guess was taken back, so nothing was shown"


@pytest.mark.parametrize("family", ["llama", "qwen3", "mistral", "gemma2", "gemma3"])
def test_batches_are_repeated_selected_from_and_cropped(family: str, tiers: Path) -> None:
    stock, ours = pair(family)
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


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3", "gpt_neox"])
def test_sequences_change_places(family: str, tiers: Path) -> None:
    stock, ours = pair(family)
    ids, next_ids = prompt(3, 150), prompt(3, 9)
    order = torch.tensor([2, 0, 0])
    logits = []
    for model, cache in (
        (stock, transformers.DynamicCache()),
        (ours, cache_for(ours, tiers, 3)),
    ):
        with torch.no_grad():
            model(ids, past_key_values=cache)
            cache.reorder_cache(order)
            logits.append(model(next_ids, past_key_values=cache).logits)
    cache.close()
    exact, found = logits
    assert float((exact - found).abs().max()) <= NEAR * float(exact.abs().max())


def test_inference_mode_and_what_comes_after_it(tiers: Path) -> None:
    """Tensors that are made in it may not be written to outside, and other threads are outside."""
    stock, ours = pair("llama")
    ids, more = prompt(1, 200), prompt(1, 9)
    with torch.no_grad():
        exact = stock(torch.cat([ids, more], dim=1), use_cache=False).logits[:, -9:]
    with cache_for(ours, tiers) as cache:
        with torch.inference_mode():
            ours(ids, past_key_values=cache)
        with torch.no_grad():
            found = ours(more, past_key_values=cache).logits
    assert float((exact - found).abs().max()) <= NEAR * float(exact.abs().max())
    with torch.inference_mode():
        check_alike("qwen3", tiers, prompt())


# ---- the device


def made(model: Any, ids: Any, cache: Any) -> int:
    """Most bytes of tensors at once that generating took beside what there was before, as torch
    itself counts them."""
    counting = Counting()
    with counting:
        model.generate(
            ids,
            past_key_values=cache,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=3,
            do_sample=False,
            prefill_chunk_size=100,
        )
    return counting.peak


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_a_longer_prompt_takes_no_more_of_the_device(family: str, tiers: Path) -> None:
    _, ours = pair(family)
    short, long = prompt(1, 300), prompt(1, 900)
    peaks, stock_peaks = [], []
    for ids in (short, long):
        with cache_for(ours, tiers) as cache:
            peaks.append(made(ours, ids, cache))
        stock_peaks.append(made(ours, ids, transformers.DynamicCache(config=ours.config)))
    more = long.shape[1] - short.shape[1]
    ids_masks_positions = 4 * ids.itemsize * more
    assert peaks[1] - peaks[0] <= ids_masks_positions < more * row_bytes(ours)
    assert stock_peaks[1] - stock_peaks[0] >= more * row_bytes(ours)


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt_neox"])
def test_each_layers_first_piece_is_on_its_way_before_the_layer_begins(
    family: str, tiers: Path
) -> None:
    _, ours = pair(family)
    ids = prompt(1, 400)
    coming: list[bool] = []
    with cache_for(ours, tiers) as cache, torch.no_grad():

        def before(_module: Any, _args: Any) -> None:
            coming.append(cache.report().queue_bytes > 0)

        layers = getattr(ours.base_model, "layers", None)
        hooks = [layer.register_forward_pre_hook(before) for layer in layers]
        ours(ids, past_key_values=cache)
        ours(ids[:, :1], past_key_values=cache)
        coming.clear()
        for _ in range(3):
            ours(ids[:, :1], past_key_values=cache)
        for hook in hooks:
            hook.remove()
    assert coming == [True] * (3 * len(layers))


# ---- other processes

THERE = """
import sys
import torch
from tests.library.tiered_kit import MIB, agent
from tests.library.transformers_kit import cache_for, generated, pair, prompt

torch.set_num_threads(1)
where, into, *families = sys.argv[1:]


def use(socket):
    found = {}
    for family in families:
        _, ours = pair(family)
        ids = prompt(1, 200)
        with cache_for(ours, socket) as cache:
            restored = cache.restore(family, ids)
            found[family] = (restored, *generated(ours, ids, cache))
    torch.save(found, into)


if where.endswith(".sock"):
    use(where)
else:
    with agent(disk=64 * MIB, disk_path=where) as running:
        use(running.socket)
"""


def there(program: str, *arguments: object, cwd: Path = ROOT) -> None:
    """Run in a process of its own."""
    paths = [str(ROOT), str(ROOT / "sidecar"), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def keep(socket: Path, families: tuple[str, ...]) -> dict[str, tuple[Any, Any]]:
    """Save three quarters of a prompt; tokens and logits of all of it, by the stock model."""
    exact = {}
    ids = prompt(1, 200)
    for family in families:
        stock, ours = pair(family)
        with cache_for(ours, socket) as cache, torch.no_grad():
            ours(ids[:, :150], past_key_values=cache)
            cache.save(family, ids)
        exact[family] = generated(stock, ids, None)
    return exact


def check_same(exact: dict[str, tuple[Any, Any]], path: Path) -> None:
    for family, (restored, tokens, logits) in torch.load(path).items():
        assert restored == 150
        assert torch.equal(tokens, exact[family][0])
        worst = float((logits - exact[family][1]).abs().max())
        assert worst <= NEAR * max(1.0, float(logits.abs().max()))


def test_a_saved_prompt_is_used_by_another_process(tiers: Path, tmp_path: Path) -> None:
    families = ("llama", "gemma3", "gpt_neox")
    exact = keep(tiers, families)
    there(THERE, tiers, tmp_path / "found", *families)
    check_same(exact, tmp_path / "found")


def test_what_is_on_disk_is_used_by_a_process_that_comes_later(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with agent(disk=64 * MIB, disk_path=disk) as running:
        exact = keep(running.socket, ("qwen2", "mistral"))
    there(THERE, disk, tmp_path / "found", *exact)
    check_same(exact, tmp_path / "found")


def test_the_programs_of_the_page_run_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As printed; the second one in a process of its own, as the page says."""
    programs = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    first, second = programs
    monkeypatch.chdir(tmp_path)
    exec(compile(first, str(PAGE), "exec"), {})
    there(second, cwd=tmp_path)
