"""Putting the tier together, or saying why this engine goes on without it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import vllm
from vllm.platforms import current_platform
from vllm.v1.core.kv_cache_utils import get_none_hash_seed

from onggi.client import Client
from onggi.connectors.changed import say_what_changed
from onggi.connectors.vllm.attaching import attach
from onggi.connectors.vllm.guard import Faults, log
from onggi.connectors.vllm.hybrid.kinds import StandBack
from onggi.connectors.vllm.options import read_options
from onggi.connectors.vllm.secondary.engine import present
from onggi.connectors.vllm.secondary.identity import check_engine, prefix_groups, row_fields
from onggi.connectors.vllm.secondary.lookups import Lookups
from onggi.connectors.vllm.secondary.moves import Moves
from onggi.connectors.vllm.secondary.names import Names
from onggi.connectors.vllm.secondary.told import Lies, Told
from onggi.connectors.vllm.sweep import Sweep
from onggi.connectors.weights import WeightsUnknown
from onggi_core.identity import fingerprint
from onggi_core.wire.requests import SpaceSpec

DEADLINE_S: Final = 0.5
"""Of a call to the agent: all are made by threads of the tier's, beside the engine's steps."""

SETTINGS: Final = frozenset({"socket", "deadline_s", "disk_wait_s", "revision", "tenant"})
"""Of a tier's entry in secondary_tiers, beside vLLM's own keys."""


@dataclass(frozen=True)
class Live:
    """A tier that takes part. rows: vLLM's host memory, one piece; row_bytes: of a chunk in it."""

    client: Client
    names: Names
    lookups: Lookups
    moves: Moves
    told: Told
    sweep: Sweep[Lies]
    rows: memoryview
    row_bytes: int

    def row(self, chunk: int) -> memoryview:
        return self.rows[chunk * self.row_bytes : (chunk + 1) * self.row_bytes]


def begin(
    spec: Any, view: memoryview, tier_type: str, settings: Mapping[str, Any], faults: Faults
) -> Live | None:
    """None: the tier takes no part, and a log line says why. Raises ValueError naming a setting."""
    options = read_options(
        {"deadline_s": DEADLINE_S, **settings},
        known=SETTINGS,
        where=f"the entry {tier_type} of secondary_tiers",
    )
    hash_seed = os.environ.get("PYTHONHASHSEED")
    try:
        if not options.socket:
            raise StandBack("no socket is named; set ONGGI_SOCKET to the agent's")
        engine = check_engine(present(), hash_seed)
        prefixes = prefix_groups(engine)
        fields = row_fields(
            engine,
            spec,
            options,
            row_bytes=_row_bytes(view),
            hash_seed=get_none_hash_seed(),
            engine_version=vllm.__version__,
            device="cpu" if current_platform.is_cpu() else str(current_platform.get_device_name()),
        )
    except (StandBack, WeightsUnknown, OSError) as why:
        log.warning("onggi: this engine's offloading goes on without its tier: %s", why)
        return None
    tokens = max(spec.tokens_per_block) * int(spec.blocks_per_chunk)
    space = SpaceSpec(fingerprint(fields), _row_bytes(view), tokens)
    say_what_changed(os.path.dirname(options.socket), "tier", fields)
    client = Client(
        options.socket, spaces=[space], engine="vllm-tier", deadline_s=options.deadline_s, log=log
    )
    log.info(
        "onggi: the tier keeps chunks of %d tokens, %d bytes, under fingerprint %s; agent %s",
        tokens,
        space.page_bytes,
        space.fingerprint.hex(),
        "attached" if attach(client) else "not there yet",
    )
    names, told = Names(), Told(listened=bool(spec.kv_events_config.enable_kv_cache_events))
    return Live(
        client,
        names,
        Lookups(tier_type, client, names, faults, prefixes=prefixes),
        Moves(client, faults, disk_wait_s=options.disk_wait_s),
        told,
        Sweep(client, told.told, key=lambda _, lies: lies[0], located=told.located),
        view.cast("B"),
        space.page_bytes,
    )


def _row_bytes(view: memoryview) -> int:
    strides = view.strides
    if not strides or len(strides) != 2 or strides[1] != 1:
        raise StandBack(f"vLLM's host memory has strides {strides}; rows of bytes are needed")
    return strides[0]
