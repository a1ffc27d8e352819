"""SGLang: a storage backend of HiCache that keeps pages in an Onggi agent and gets them back.

The engine owns its host pool and decides what is backed up and prefetched; this copies pages
between that pool and the agent's arena, once and without packing. storage.py is the interface;
shown.py has the pools that the engine showed, start.py puts one together out of identity.py (when
two pages are the same), pages.py (where a page's bytes lie), pools.py (asked by key) and
transfers.py (the copies); hits.py is how far a prefix of several pools can be restored, plugin.py a
hint at the flags. SGLang is imported by storage.py and start.py, torch by pages.py.
"""

from __future__ import annotations

from typing import Any

__all__ = ["OnggiStorage"]


def __getattr__(name: str) -> Any:
    """SGLang names this package in its flags; its modules are imported where it is asked for."""
    if name == "OnggiStorage":
        from onggi.connectors.sglang.storage import OnggiStorage

        return OnggiStorage
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
