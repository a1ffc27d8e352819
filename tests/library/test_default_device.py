"""What torch makes tensors on when nobody says: on a GPU often "cuda". Host memory stays host
memory. "meta" stands for it here: a tensor made there by mistake has no bytes at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed here")

from tests.library.tiered_kit import agent, noise, reference  # noqa: E402

from onggi import KVCacheManager  # noqa: E402
from onggi_library.context.context import TieredContext  # noqa: E402
from onggi_library.in_process import InProcessAgent  # noqa: E402

STEPS = 24


@pytest.fixture(scope="module")
def tiers() -> Iterator[InProcessAgent]:
    with agent() as running:
        yield running


def context_of(tiers: InProcessAgent, lower: str) -> TieredContext:
    return TieredContext(
        tiers.socket,
        layers=1,
        device_bytes="256KiB",
        sinks=16,
        recent=32,
        block_tokens=16,
        lower=lower,
        label=lower,
    )


@pytest.mark.parametrize("lower", ["exact", "int8"])
def test_a_managers_rows_are_made_on_the_host(tmp_path: Path, lower: str) -> None:
    values = [noise(step, 1, 2, 64, 64) for step in range(STEPS)]
    with torch.device("meta"):
        manager = KVCacheManager("64KiB", "16MiB", tmp_path, "64MiB", lower=lower, name="here")
        with manager:
            for step, value in enumerate(values):
                manager.put(step, value)
            back = [manager.get(step) for step in range(STEPS)]
    far = 0.0 if lower == "exact" else 0.05
    for value, one in zip(values, back, strict=True):
        assert one.device.type == "cpu"
        assert float((one - value).abs().max()) <= far


@pytest.mark.parametrize("lower", ["exact", "int8"])
def test_so_are_a_contexts_pages_and_records(tiers: InProcessAgent, lower: str) -> None:
    keys, values = noise(1, 1, 2, 400, 16), noise(2, 1, 2, 400, 16)
    queries = noise(3, 1, 4, 400, 16)
    with torch.device("meta"), context_of(tiers, lower) as context:
        context.append(0, keys, values)
        context.save("prompt", [list(range(400))], {"model": "m"})
    with torch.device("meta"), context_of(tiers, lower) as context:
        saved = context.find("prompt")
        assert saved is not None
        context.restore(saved, "cpu")
        out = context.attend(0, queries)
    assert out.device.type == "cpu"
    off = (out.double() - reference(queries, keys, values)).abs().max()
    assert float(off) <= (2e-5 if lower == "exact" else 0.1)
