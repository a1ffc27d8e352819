"""A context of 256 MiB over 16 MiB of device, 64 MiB of host memory and a disk: see README.md."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import torch

from onggi import KVCacheManager

LAYERS, HEADS, TOKENS, HEAD_SIZE = 8, 4, 64, 128
"""Of one step: 64 tokens of a small model, 1 MiB in bfloat16."""
TIERS: Final = ("16MiB", "64MiB", "384MiB")
"""Device, host memory, disk."""
LINES: Final = 4
"""That each half of the example says how far it is in."""


def keys_and_values(step: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """What a model would have computed for this step, the same whenever it is asked."""
    dice = torch.Generator().manual_seed(step)
    shape = (2, LAYERS, 1, HEADS, TOKENS, HEAD_SIZE)
    keys, values = torch.randn(shape, generator=dice).to(torch.bfloat16)
    return list(zip(keys, values, strict=True))


def counted(steps: int, said: str, manager: KVCacheManager) -> Iterator[int]:
    """The steps, with a line now and then: what was done to how many, and what lies where."""
    for step in range(steps):
        yield step
        done = step + 1
        if done * LINES // steps > step * LINES // steps:
            tiers = manager.stats().tiers
            where = ", ".join(f"{tier.name} {tier.used_bytes >> 20}" for tier in tiers)
            print(f"{said} {done:4} of {steps} steps; MiB: {where}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=256)
    steps = parser.parse_args().steps
    device, host, disk = TIERS
    print(f"{steps} steps of 1 MiB; device {device}, host memory {host}, disk {disk}", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="onggi-example-") as folder,
        KVCacheManager(device, host, Path(folder), disk) as manager,
    ):
        for step in counted(steps, "put ", manager):
            manager.put(step, keys_and_values(step))
        same = 0
        for step in counted(steps, "read", manager):
            manager.prefetch(range(step + 1, min(steps, step + 5)))
            layers = zip(manager.get(step), keys_and_values(step), strict=True)
            same += all(torch.equal(k, k2) and torch.equal(v, v2) for (k, v), (k2, v2) in layers)
        print(manager.stats().show())
        if same != steps:
            raise SystemExit(f"example: failed, {same} of {steps} steps are the same")
        print(f"example: ok identical={same}/{steps}")


if __name__ == "__main__":
    main()
