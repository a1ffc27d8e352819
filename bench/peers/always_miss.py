"""A connector of vLLM that never finds anything: what any connector costs an engine by being there.

Found by vLLM under its module's name; imported in the engine's interpreter alone.
"""

from __future__ import annotations

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
)


class AlwaysMiss(KVConnectorBase_V1):  # type: ignore[misc]
    """Answers no to everything, does nothing."""

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int, bool]:
        del request, num_computed_tokens
        return 0, False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Nothing was promised."""

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        del scheduler_output
        return KVConnectorMetadata()

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Nothing to load."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing to wait for."""

    def save_kv_layer(
        self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any
    ) -> None:
        """Nothing to keep."""

    def wait_for_save(self) -> None:
        """Nothing was begun."""
