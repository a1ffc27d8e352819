"""A connector beside Onggi in one engine, for tests: it promises the beginning of each prompt that
it is told to by the environment, and fails to load it. `Shaking` has a handshake of its own, as
connectors between engines have, and takes no other."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
    SupportsHMA,
)


@dataclass
class Loads(KVConnectorMetadata):
    blocks: list[int] = field(default_factory=list)


class Neighbour(KVConnectorBase_V1, SupportsHMA):
    """Of every prompt of `FAILS` tokens it promises all full blocks, and fills none."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        extra = self._kv_transfer_config.kv_connector_extra_config
        self._fails = int(extra.get("fails_tokens", 0))
        self._block = int(vllm_config.cache_config.block_size)
        self._promised: set[str] = set()
        self._due: list[int] = []
        self._errors: set[int] = set()

    def get_num_new_matched_tokens(self, request: Any, computed: int) -> tuple[int, bool]:
        if request.num_prompt_tokens != self._fails or request.request_id in self._promised:
            return 0, False
        return (request.num_prompt_tokens - 1) // self._block * self._block - computed, False

    def update_state_after_alloc(self, request: Any, blocks: Any, external: int) -> None:
        if external:
            self._promised.add(request.request_id)
            (table,) = blocks.get_block_ids()
            self._due = table[: external // self._block]

    def build_connector_meta(self, _: Any) -> Loads:
        due, self._due = self._due, []
        return Loads(due)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        self._errors |= set(self._get_connector_metadata().blocks)

    def get_block_ids_with_load_errors(self) -> set[int]:
        errors, self._errors = self._errors, set()
        return errors

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing comes."""

    def save_kv_layer(self, *args: Any, **kwargs: Any) -> None:
        """Nothing is kept."""

    def wait_for_save(self) -> None:
        """Nothing is kept."""

    def request_finished_all_groups(self, *_: Any) -> tuple[bool, None]:
        return False, None


@dataclass
class Hand(KVConnectorHandshakeMetadata):
    pid: int


class Shaking(Neighbour):
    def get_handshake_metadata(self) -> Hand:
        return Hand(os.getpid())

    def set_xfer_handshake_metadata(self, metadata: dict[int, Any]) -> None:
        for one in metadata.values():
            if not isinstance(one, Hand):
                raise TypeError(f"{type(one).__name__} is nobody's hand here")
