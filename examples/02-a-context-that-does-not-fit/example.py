"""A context of 256 MiB over 16 MiB of device, 64 MiB of host memory and a disk: see README.md."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch

from onggi import KVCacheManager

LAYERS, HEADS, TOKENS, HEAD_SIZE = 8, 4, 64, 128
"""Of one step: 64 tokens of a small model, 1 MiB in bfloat16."""


def keys_and_values(step: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """What a model would have computed for this step, the same whenever it is asked."""
    dice = torch.Generator().manual_seed(step)
    shape = (2, LAYERS, 1, HEADS, TOKENS, HEAD_SIZE)
    keys, values = torch.randn(shape, generator=dice).to(torch.bfloat16)
    return list(zip(keys, values, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=256)
    steps = parser.parse_args().steps
    with (
        tempfile.TemporaryDirectory(prefix="onggi-example-") as folder,
        KVCacheManager("16MiB", "64MiB", Path(folder), "384MiB") as manager,
    ):
        for step in range(steps):
            manager.put(step, keys_and_values(step))
        same = 0
        for step in range(steps):
            manager.prefetch(range(step + 1, min(steps, step + 5)))
            layers = zip(manager.get(step), keys_and_values(step), strict=True)
            same += all(torch.equal(k, k2) and torch.equal(v, v2) for (k, v), (k2, v2) in layers)
        print(manager.stats().show())
        if same != steps:
            raise SystemExit(f"example: failed, {same} of {steps} steps are the same")
        print(f"example: ok identical={same}/{steps}")


if __name__ == "__main__":
    main()
