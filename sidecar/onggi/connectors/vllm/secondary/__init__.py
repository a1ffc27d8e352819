"""The second way into vLLM: a tier behind its own offloading, for those who use that already.

vLLM's offloading connector decides what is kept and copies between the device and its own host
memory; from there a secondary tier takes chunks and brings them back. tier.py is that interface;
moves.py copies beside the engine's steps, lookups.py asks ahead, names.py has the keys, identity.py
says when two chunks are the same, told.py what routers hear. connector.py is vLLM's own offloading
connector, which here also tells the tier which model it serves (engine.py). vLLM is imported by
connector.py, lookups.py, start.py and tier.py.
"""

from __future__ import annotations

from typing import Any

__all__ = ["OnggiOffloadingConnector", "OnggiTier"]


def __getattr__(name: str) -> Any:
    """vLLM imports this package by name in every process; its modules where they are asked for."""
    if name == "OnggiOffloadingConnector":
        from onggi.connectors.vllm.secondary.connector import OnggiOffloadingConnector

        return OnggiOffloadingConnector
    if name == "OnggiTier":
        from onggi.connectors.vllm.secondary.tier import OnggiTier

        return OnggiTier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
