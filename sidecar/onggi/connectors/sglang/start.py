"""Putting a pool together: what its pages are, under which fingerprint, with which client."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from onggi import Client, SpaceSpec, fingerprint
from onggi.connectors.changed import say_what_changed
from onggi.connectors.sglang.guard import log
from onggi.connectors.sglang.identity import fields, replicated
from onggi.connectors.sglang.options import Options
from onggi.connectors.sglang.pages import (
    FLAT,
    PIECES,
    PoolUnsupported,
    flat_bytes,
    page_tokens,
    piece_sizes,
)
from onggi.connectors.sglang.pools import FlatPool, PiecePool, Pool
from onggi.connectors.weights import WeightsUnknown

ATTACH_WAIT_S: Final = 2.0
"""At start an engine can wait for its agent; its first prompts then need not miss because a busy
node took its time. For all pools together."""

STANDS_BACK: Final = (PoolUnsupported, WeightsUnknown, OSError)
"""Why a pool is not kept: a sentence for the log, and misses."""


@dataclass(frozen=True)
class Maker:
    """Makes pools of one rank. config: HiCacheStorageConfig."""

    config: Any
    options: Options

    def pool(self, name: str, host: Any, *, packed: bool = False) -> Pool:
        """packed: in the form of SGLang's plain interface. Raises what STANDS_BACK lists."""
        sizes = () if packed else piece_sizes(host)
        page_bytes = sum(sizes) or flat_bytes(host)
        arguments, version = engine()
        identity = fields(
            name,
            host,
            self.config,
            self.options,
            arguments=arguments,
            engine_version=version,
            form=PIECES if sizes else FLAT,
            sizes=sizes or (page_bytes,),
        )
        space = SpaceSpec(fingerprint(identity), page_bytes, page_tokens(host))
        rank = f"{name}-tp{self.config.tp_rank}-pp{self.config.pp_rank}"
        say_what_changed(os.path.dirname(self.options.socket), f"sglang-{rank}", identity)
        client = Client(
            self.options.socket,
            spaces=[space],
            engine=f"sglang-{rank}",
            deadline_s=self.options.deadline_s,
            log=log,
        )
        log.info(
            "onggi: pool %s keeps pages of %d tokens, %d bytes in %d pieces, under fingerprint %s",
            name,
            space.block_tokens,
            page_bytes,
            max(1, len(sizes)),
            space.fingerprint.hex(),
        )
        written = self.config.is_storage_writer or not replicated(host, self.config)
        kind = PiecePool if sizes else FlatPool
        return kind(host, client, self.options.disk_wait_s, written)


def attach(pools: Sequence[Pool]) -> bool:
    """Wait until all of them have their agent, for a while."""
    until_s = time.monotonic() + ATTACH_WAIT_S
    while not all(pool.client.attached for pool in pools):
        if time.monotonic() >= until_s:
            return False
        time.sleep(0.02)
    return True


def engine() -> tuple[Any, str]:
    """The arguments that SGLang was started with, None outside a running engine, and its
    version."""
    try:
        from sglang.version import __version__ as version
    except ImportError:
        version = "unknown"
    try:
        from sglang.srt.runtime_context import get_server_args

        return get_server_args(), str(version)
    except (ImportError, AttributeError, ValueError, RuntimeError):
        return None, str(version)
