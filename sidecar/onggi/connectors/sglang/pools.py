"""One of the engine's host pools, asked by SGLang's hashes: what is there, bring it, keep it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from onggi import ROOT, Client
from onggi.connectors.sglang import transfers
from onggi.connectors.sglang.keys import OF_THIS_PROCESS, PageKeys
from onggi.connectors.sglang.pages import nbytes_of, page_tokens, rows
from onggi_core.wire.frame import KEYS_MAX


@dataclass(frozen=True)
class Pool(ABC):
    """host: the engine's pool. client: of this pool's own space in the agent. written: whether
    this rank writes it; of what all ranks hold alike one writes for all."""

    host: Any
    client: Client
    disk_wait_s: float
    written: bool
    keys: PageKeys = OF_THIS_PROCESS

    @property
    def page_bytes(self) -> int:
        return self.client.spaces[0].page_bytes

    def leading(self, hashes: Sequence[str]) -> int:
        """How many leading pages are there or on their way; what lies on disk begins to come."""
        return self.client.prefetch(self.keys.of(hashes[:KEYS_MAX])).pending

    def has(self, one: str) -> bool:
        """Whether this page is there, whatever comes before it."""
        return self.client.lookup(self.keys.of((one,))).pending == 1

    def _parent(self, prefix: Sequence[str] | None) -> bytes:
        return self.keys.of(prefix[-1:])[0] if prefix else ROOT

    @abstractmethod
    def get(self, hashes: Sequence[str], host_indices: Any) -> list[bool]:
        """Fill the engine's pages. True: a leading run of them."""

    @abstractmethod
    def set(
        self, hashes: Sequence[str], host_indices: Any, prefix: Sequence[str] | None
    ) -> list[bool]:
        """Keep the engine's pages, which follow `prefix`. True: kept, or kept before."""


class PiecePool(Pool):
    """Copied in place."""

    def get(self, hashes: Sequence[str], host_indices: Any) -> list[bool]:
        places = rows(self.host, host_indices, len(hashes))
        done = transfers.load(self.client, self.keys.of(hashes), places, self.disk_wait_s)
        return _leading(done, len(hashes))

    def set(
        self, hashes: Sequence[str], host_indices: Any, prefix: Sequence[str] | None
    ) -> list[bool]:
        places = rows(self.host, host_indices, len(hashes))
        return transfers.store(self.client, self.keys.of(hashes), places, self._parent(prefix))


class FlatPool(Pool):
    """Packed by the pool itself, which costs a copy more: for pools that cannot say where their
    pages lie, and for SGLang's plain interface, which hands pages in that form."""

    def get(self, hashes: Sequence[str], host_indices: Any) -> list[bool]:
        tokens = page_tokens(self.host)
        _check(host_indices, len(hashes), tokens)
        packed = [self.host.get_dummy_flat_data_page() for _ in hashes]
        done = self.load(hashes, packed)
        for number, page in enumerate(packed[:done]):
            self.host.set_from_flat_data_page(int(host_indices[number * tokens]), page)
        return _leading(done, len(hashes))

    def set(
        self, hashes: Sequence[str], host_indices: Any, prefix: Sequence[str] | None
    ) -> list[bool]:
        tokens = page_tokens(self.host)
        _check(host_indices, len(hashes), tokens)
        packed = [
            self.host.get_data_page(int(host_indices[number * tokens]))
            for number in range(len(hashes))
        ]
        return _leading(self.store(hashes, packed, prefix), len(hashes))

    def load(self, hashes: Sequence[str], packed: Sequence[Any]) -> int:
        """Fill the leading run of these pages; its length."""
        _check_pages(packed, self.page_bytes)
        return self.client.load(self.keys.of(hashes), list(packed), wait_s=self.disk_wait_s)

    def store(
        self, hashes: Sequence[str], packed: Sequence[Any], prefix: Sequence[str] | None = None
    ) -> int:
        """Keep these pages; how many leading ones are kept now, or were already."""
        _check_pages(packed, self.page_bytes)
        whole = [page.contiguous() if hasattr(page, "contiguous") else page for page in packed]
        stored = self.client.store(self.keys.of(hashes), whole, parent=self._parent(prefix))
        return len(hashes) - stored.refused


def _check_pages(packed: Sequence[Any], page_bytes: int) -> None:
    for number, page in enumerate(packed):
        if (found := nbytes_of(page)) != page_bytes:
            raise ValueError(
                f"page {number} has {found} bytes; pages of this pool have {page_bytes}"
            )


def _check(host_indices: Any, count: int, tokens: int) -> None:
    found = len(host_indices) if host_indices is not None else 0
    if found != count * tokens:
        raise ValueError(f"host_indices has {found} entries for {count} pages of {tokens}")


def _leading(done: int, count: int) -> list[bool]:
    return [True] * done + [False] * (count - done)
