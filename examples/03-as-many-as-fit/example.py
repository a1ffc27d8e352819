"""Sixty sequences through 48 MiB of memory, as many at a time as fit: see README.md."""

from __future__ import annotations

from random import Random
from typing import Final

import torch

from onggi import BatchSizer, KVCacheManager

SEQUENCES, TARGET_BYTES = 60, 48 << 20
STEPS: Final = 16
"""That a sequence decodes; its keys and values of each step are one value."""


def keys_and_values(dice: Random) -> torch.Tensor:
    """Of 64 tokens of one sequence, a model with 4 layers: some tokens more or less."""
    tokens = dice.randint(61, 64)
    return torch.zeros(2, 4, 4, tokens, 64, dtype=torch.bfloat16)


def decode(manager: KVCacheManager, batch: list[int], dice: Random) -> int:
    """Answers what the batch took at its peak, measured."""
    for step in range(STEPS):
        for sequence in batch:
            manager.put(f"{sequence}/{step}", keys_and_values(dice))
    peak = manager.stats().kept_bytes
    for sequence in batch:
        for step in range(STEPS):
            manager.discard(f"{sequence}/{step}")
    return peak


def main() -> None:
    dice, waiting, highest, sizes = Random(1), list(range(SEQUENCES)), 0, []
    sizer = BatchSizer(f"{TARGET_BYTES}B")
    with KVCacheManager(gpu_memory=0, cpu_memory="80MiB") as manager:
        while waiting:
            batch, waiting = waiting[: sizer.size], waiting[sizer.size :]
            used = decode(manager, batch, dice)
            sizes.append(len(batch))
            highest = max(highest, used)
            print(f"{len(batch):2} sequences took {used / 2**20:4.1f} MiB")
            sizer.observe(len(batch), used)
    if highest > TARGET_BYTES:
        raise SystemExit(f"example: failed, {highest} bytes are more than {TARGET_BYTES}")
    mib = 2**20
    print(
        f"example: ok served={sum(sizes)} peak={highest // mib}MiB target={TARGET_BYTES // mib}MiB"
    )


if __name__ == "__main__":
    main()
