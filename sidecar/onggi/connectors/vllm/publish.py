"""Events in the words of vLLM's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from vllm.distributed.kv_events import (
    MEDIUM_CPU,
    MEDIUM_STORAGE,
    BlockRemoved,
    BlockStored,
    KVCacheEvent,
)
from vllm.v1.core.kv_cache_utils import maybe_convert_block_hash
from vllm.v1.kv_cache_interface import get_kv_cache_spec_kind, get_kv_cache_spec_sliding_window

from onggi.connectors.vllm.told import BlocksRemoved, BlocksStored, Event
from onggi_core.wire.locate import At

OWNER: Final = "onggi"
LOCAL: Final = "LOCAL"
MEDIA: Final = {At.HOST: MEDIUM_CPU, At.DISK: MEDIUM_STORAGE}


def to_vllm(events: Iterable[Event], groups: Sequence[Any]) -> Iterator[KVCacheEvent]:
    """One event for each group of layers that the blocks belong to."""
    for event in events:
        for number in event.groups:
            if isinstance(event, BlocksStored):
                yield _stored(event, number, groups[number].kv_cache_spec)
            else:
                yield _removed(event, number)


def _stored(event: BlocksStored, number: int, spec: Any) -> BlockStored:
    return BlockStored(
        block_hashes=[maybe_convert_block_hash(one) for one in event.hashes],
        parent_block_hash=(
            maybe_convert_block_hash(event.parent) if event.parent is not None else None
        ),
        token_ids=list(event.token_ids),
        block_size=event.block_tokens,
        lora_id=event.lora_id,
        lora_name=event.lora_name,
        medium=MEDIA[event.at],
        group_idx=number,
        kv_cache_spec_kind=get_kv_cache_spec_kind(spec).value,
        kv_cache_spec_sliding_window=get_kv_cache_spec_sliding_window(spec),
        locality=LOCAL,
        ownership=OWNER,
    )


def _removed(event: BlocksRemoved, number: int) -> BlockRemoved:
    return BlockRemoved(
        block_hashes=[maybe_convert_block_hash(one) for one in event.hashes],
        medium=MEDIA[event.at],
        group_idx=number,
        locality=LOCAL,
        ownership=OWNER,
    )
