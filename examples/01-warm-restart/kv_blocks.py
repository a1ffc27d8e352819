"""The KV cache of a transformers model as blocks: what a page is, how it is kept and put back.

A page holds all layers' keys and values of one block, so that a block is one contiguous copy:

    [layers, 2 (keys, values), kv_heads, block_tokens, head_size]

transformers keeps keys after the rotary embedding, so a page belongs to its tokens *and* to their
positions; the prefix hash names both, since a chain always begins at position 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from transformers.cache_utils import DynamicCache
from transformers.models.llama import LlamaConfig

from onggi import ROOT, Client, LoadOutcome, Stored

KEYS_AND_VALUES: Final = 2

LOAD_WAIT_S: Final = 20.0
"""Longest wait for blocks on disk. Some 100 MiB take a tenth of a second from NVMe; an engine would
rather compute again than wait this long, but here the reader should see what a slow disk does."""


@dataclass(frozen=True)
class BlockLayout:
    """The shape of one page."""

    layers: int
    kv_heads: int
    head_size: int
    block_tokens: int
    dtype: torch.dtype

    @classmethod
    def of(cls, config: LlamaConfig, block_tokens: int, dtype: torch.dtype) -> BlockLayout:
        head_size = config.hidden_size // config.num_attention_heads
        return cls(
            config.num_hidden_layers, config.num_key_value_heads, head_size, block_tokens, dtype
        )

    @property
    def page_shape(self) -> tuple[int, ...]:
        return (self.layers, KEYS_AND_VALUES, self.kv_heads, self.block_tokens, self.head_size)

    @property
    def page_bytes(self) -> int:
        return int(math.prod(self.page_shape) * self.dtype.itemsize)

    def new_page(self) -> torch.Tensor:
        """Room for one page: small enough to stay in the processor's cache between two copies."""
        return torch.empty(self.page_shape, dtype=self.dtype)

    def reusable_blocks(self, prompt_tokens: int) -> int:
        """Full blocks that may be restored. The last token is never among them: a model that has
        seen its whole prompt has nothing left to compute the next token from."""
        return max(0, prompt_tokens - 1) // self.block_tokens


@dataclass(frozen=True)
class Restored:
    """A cache with the leading `blocks` of a prompt in it, `from_disk` of which came from disk."""

    cache: DynamicCache
    blocks: int
    from_disk: int


def restore(
    client: Client, keys: Sequence[bytes], layout: BlockLayout, config: LlamaConfig
) -> Restored:
    """A cache that holds the longest run of `keys` that the agent has; an empty one on a miss.

    Each block goes from the arena into one page of ours and from there to its place in every
    layer. Blocks behind a failed copy are left out: the model computes them as if never stored.
    """
    cache = DynamicCache(config=config)
    load = client.load_prepare(keys, wait_s=LOAD_WAIT_S).wait(LOAD_WAIT_S)
    if not load.blocks:
        return Restored(cache, 0, 0)
    page, step, done = layout.new_page(), layout.block_tokens, 0
    kv = torch.empty(
        (layout.layers, KEYS_AND_VALUES, 1, layout.kv_heads, load.blocks * step, layout.head_size),
        dtype=layout.dtype,
    )
    try:
        while done < load.blocks and client.copy_out(load.pages().part(done, 1), [page]):
            kv[:, :, 0, :, done * step : (done + 1) * step].copy_(page)
            done += 1
    finally:
        outcome = LoadOutcome.LOADED if done else LoadOutcome.FAILED
        client.finish_load(load, outcome, blocks=done)
    if done:
        _fill(cache, kv[..., : done * step, :])
    return Restored(cache, done, min(load.from_disk, done))


def _fill(cache: DynamicCache, kv: torch.Tensor) -> None:
    """Give each layer its keys and values, [1, kv_heads, tokens, head_size], without a copy."""
    for number, (keys, values) in enumerate(kv):
        cache.update(keys[..., :0, :], values[..., :0, :], number)  # sets the layer up
        cache.layers[number].keys = keys
        cache.layers[number].values = values


def keep(
    client: Client, keys: Sequence[bytes], cache: DynamicCache, layout: BlockLayout, first: int
) -> Stored:
    """Store blocks `first` to len(keys) of a cache of one sequence."""
    page, step = layout.new_page(), layout.block_tokens
    stored = existing = refused = 0
    for number in range(first, len(keys)):
        for layer in range(layout.layers):
            tokens = slice(number * step, (number + 1) * step)
            page[layer, 0].copy_(cache.layers[layer].keys[0, :, tokens])
            page[layer, 1].copy_(cache.layers[layer].values[0, :, tokens])
        parent = keys[number - 1] if number else ROOT
        one = client.store(keys[number : number + 1], [page], parent=parent)
        stored += one.stored
        existing += one.existing
        refused += one.refused
    return Stored(stored, existing, refused)
