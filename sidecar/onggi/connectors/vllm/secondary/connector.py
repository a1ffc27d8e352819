"""vLLM's offloading connector as it is, whose tiers know which engine they are made for.

Importing this makes `{"type": "onggi"}` a tier in vLLM's own list.
"""

from __future__ import annotations

from typing import Any, Final

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import OffloadingConnector
from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory

from onggi.connectors.vllm.secondary.engine import Engine, makes_tiers

TIER: Final = "onggi"
MODULE: Final = "onggi.connectors.vllm.secondary.tier"

SecondaryTierFactory.register_tier(TIER, MODULE, "OnggiTier")


class OnggiOffloadingConnector(OffloadingConnector):  # type: ignore[misc]
    """Adds nothing to the calls of OffloadingConnector, and takes nothing away."""

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        with makes_tiers(Engine(vllm_config, kv_cache_config)):
            super().__init__(vllm_config, role, kv_cache_config)
