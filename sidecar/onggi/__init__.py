"""The client inside an engine: keeps blocks of KV cache in a local agent, and gets them back.

    from onggi import Client, SpaceSpec
    client = Client("/run/onggi/agent.sock", spaces=[SpaceSpec(fingerprint, page_bytes, 16)])

Lives here: the client (client.py over link, session, channel, arena), torch_pages.py and
cuda_pages.py for tensors, and connectors/, one an engine. May import: onggi_core and, in those two
files and in connectors/, the engine's own torch. Not here: which block is kept or evicted (the
agent decides); KVCacheManager, OnggiCache and BatchSizer, which are onggi_library's, are brought in
when asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from onggi.client import Client
from onggi.outcomes import Load, Looked, Pages, Stored, StoreTicket
from onggi.pending import PendingLoad
from onggi_core.errors import BadRequest
from onggi_core.identity import ROOT, block_keys, fingerprint
from onggi_core.wire.replies import Slot as StoreSlot
from onggi_core.wire.requests import LoadOutcome, SpaceSpec, StoreOutcome

if TYPE_CHECKING:
    from onggi_library.batch import BatchSizer as BatchSizer
    from onggi_library.manager.manager import KVCacheManager as KVCacheManager
    from onggi_library.transformers.cache import OnggiCache as OnggiCache

__all__ = [
    "ROOT",
    "BadRequest",
    "Client",
    "Load",
    "LoadOutcome",
    "Looked",
    "Pages",
    "PendingLoad",
    "SpaceSpec",
    "StoreOutcome",
    "StoreSlot",
    "StoreTicket",
    "Stored",
    "block_keys",
    "fingerprint",
]

_LIBRARY: Final = {
    "BatchSizer": "onggi_library.batch",
    "KVCacheManager": "onggi_library.manager.manager",
    "OnggiCache": "onggi_library.transformers",
}
_COMES_WITH: Final = {"torch": "pip install torch", "transformers": "pip install -U transformers"}
_EXTRA: Final = "pip install 'onggi[agent]' (from a checkout: pip install '.[agent]')"


def __getattr__(name: str) -> Any:
    """An engine's image has neither torch for us to load nor use for the library."""
    if name not in _LIBRARY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(_LIBRARY[name]), name)
    except ModuleNotFoundError as missing:
        lacks = str(missing.name)
        raise ImportError(
            f"{name} needs {lacks}, which is not installed here: "
            f"{_COMES_WITH.get(lacks.split('.')[0], _EXTRA)}"
        ) from missing
