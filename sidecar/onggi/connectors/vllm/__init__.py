"""vLLM: a KV connector that keeps blocks in an Onggi agent and gets them back.

Two objects that share no memory: scheduler.py decides (which blocks are there, which to load and
save), worker.py copies (pages of this rank, between the engine's KV tensors and the arena) and
reports. connector.py puts both behind vLLM's interface, plugin.py turns it on without a flag.
Beside them: keys.py and identity.py (when two blocks are the same), layout.py (where a page's bytes
lie), metadata.py (what goes from one side to the other), mover.py (the worker's two threads),
events.py with told.py and sweep.py (what routers are told), stats.py, drafts.py (speculative
decoding), siblings.py (other connectors of the same engine). hybrid/ is the scheduler side of
models whose layers do not all see all tokens; requests.py and awaited.py are what it shares with
the other. secondary/ is another way in: a tier behind vLLM's own offloading. Beside that only
carried.py, connector.py, start.py, plugin.py, publish.py, siblings.py and stats.py import vLLM; the
rest can be tested without.
"""

from __future__ import annotations

from typing import Any

__all__ = ["OnggiConnector"]


def __getattr__(name: str) -> Any:
    """vLLM imports this package by name in every process; the connector itself, and vLLM's own
    modules with it, only where it is asked for."""
    if name == "OnggiConnector":
        from onggi.connectors.vllm.connector import OnggiConnector

        return OnggiConnector
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
