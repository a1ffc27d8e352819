"""Files of other caches, handed over as the agent's own configuration.

Each of their settings would be refused by itself, with all the agent's names beside it; what helps
is the page that says what takes its place.
"""

from collections.abc import Iterable, Mapping
from typing import Final

LMCACHE: Final = frozenset(
    {
        "blocking_timeout_secs", "cache_policy", "chunk_size", "enable_async_loading",
        "enable_blending", "enable_controller", "enable_kv_events",
        "enable_lazy_memory_allocator", "enable_p2p", "enable_pd", "extra_config", "gds_path",
        "lmcache_instance_id", "local_cpu", "local_disk", "lookup_timeout_ms",
        "max_local_cpu_size", "max_local_disk_size", "min_retrieve_tokens", "nixl_role",
        "numa_mode", "pre_caching_hash_algorithm", "remote_serde", "remote_url",
        "reserve_local_cpu_size", "save_decode_cache", "save_unfull_chunk", "storage_plugins",
        "store_location", "transfer_channel", "use_gds", "use_layerwise",
    }
)  # fmt: skip
MOONCAKE: Final = frozenset(
    {
        "device_name", "enable_offload", "etcd_endpoints", "global_segment_size",
        "local_buffer_size", "master_server_address", "metadata_server",
        "preferred_segment", "protocol", "ssd_offload_path", "tenant_id",
    }
)  # fmt: skip
"""As docs/migration.md names them; a test looks them up there."""
_THEIRS: Final[Mapping[str, frozenset[str]]] = {"LMCache": LMCACHE, "Mooncake": MOONCAKE}
SHOWN: Final = 3


def whose(names: Iterable[str], ours: Iterable[str]) -> str:
    """A sentence where a file has more settings of another cache than of the agent; empty: not."""
    there = set(names)
    for theirs, known in _THEIRS.items():
        found = sorted(there & known)
        if len(found) > len(there & set(ours)):
            shown = ", ".join([*found[:SHOWN], *(["..."] if len(found) > SHOWN else [])])
            return (
                f"looks like a configuration of {theirs} ({shown}); what takes the place of each "
                "setting stands in docs/migration.md"
            )
    return ""
