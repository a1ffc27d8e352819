"""The tiers below the device: an agent's host memory and disk, through the ordinary client.

What comes is counted here before it is sent (ledger.py); how it is sent, and all waiting, is the
carrier's. A running agent has other clients too: there a value may be lost, and that is said when
it is asked for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

import torch

from onggi import Client, SpaceSpec, fingerprint
from onggi_core.quantity import spell_bytes
from onggi_library.carrier import Carrier, Says, Source
from onggi_library.manager.errors import DoesNotFit, Unreachable
from onggi_library.manager.ledger import Ledger
from onggi_library.manager.pages import Cut, keys_of
from onggi_library.rounding import EXACT

SAYS: Final = Says("KVCacheManager", Unreachable, Unreachable)


class LowerTiers:
    """Thread-safe. One client for each size of pages, of which there are few (pages.STEPS_BITS)."""

    def __init__(
        self,
        socket: str,
        *,
        alone: bool,
        owner: int,
        lower: str,
        owner_of: Callable[[int], int] | None = None,
    ) -> None:
        """alone: nobody else stores there. lower: how values lie there, which tells them apart from
        those that lie otherwise. owner_of: of a value, by its serial, where they outlive this
        process and have several; what fits is then what the disk holds. Raises Unreachable."""
        self._owner = owner
        self._owner_of = owner_of or (lambda _: owner)
        self._marks: dict[str, str | int] = {} if lower == EXACT else {"lower": lower}
        self._counting, self._making = threading.Lock(), threading.Lock()
        self._clients: dict[int, Client] = {}
        self._carrier = Carrier(socket, SAYS, alone=alone)
        self.host_bytes, self.disk_bytes = self._carrier.host_bytes, self._carrier.disk_bytes
        host, disk = self._carrier.rooms
        self.ledger = Ledger(disk) if owner_of else Ledger(host, disk)

    # ---- values

    def reserve(self, cut: Cut) -> None:
        """Count a value in. Raises DoesNotFit, with nothing changed but the discarded gone."""
        with self._counting:
            if not self.ledger.fits(cut) and self.ledger.anything_dying:
                self.wait_until_gone()
                self.ledger.all_gone()
            if not self.ledger.fits(cut):
                raise self._does_not_fit(cut)
            self.ledger.add(cut)

    def store(self, serial: int, cut: Cut, row: torch.Tensor) -> None:
        """Bytes of a value that was reserved, in host memory. Raises Unreachable; the caller
        discards it then."""
        pages = row[: cut.nbytes].split(cut.page_bytes)
        self._carrier.store(self._client(cut.page_bytes), self._keys(serial, cut), pages)

    def load(self, serial: int, cut: Cut, row: torch.Tensor) -> Source | None:
        """Fill a row in host memory; None: the value is lost. Raises Unreachable."""
        pages = list(row.split(cut.page_bytes))
        client = self._client(cut.page_bytes)
        source, came = self._carrier.load(client, self._keys(serial, cut), pages)
        return source if came == cut.pages else None

    def hint(self, serial: int, cut: Cut) -> None:
        """The value will be asked for: it comes from disk to host memory meanwhile."""
        self._carrier.hint(self._client(cut.page_bytes), self._keys(serial, cut))

    def discard(self, serial: int, cut: Cut) -> None:
        """A value that was reserved, stored or not, is worth nothing from now on."""
        self.drop(serial, cut)
        with self._counting:
            self.ledger.discard(cut)

    def holds(self, serial: int, cut: Cut) -> bool:
        """Whether all of a value is there. Raises Unreachable while nobody knows."""
        return not self._carrier.lost(self._client(cut.page_bytes), self._keys(serial, cut))

    def drop(self, serial: int, cut: Cut) -> None:
        """A value that was not reserved here is worth nothing."""
        self._client(cut.page_bytes).discard(self._keys(serial, cut))

    def wait_until_gone(self) -> None:
        """What was dropped has left its pages. Raises Unreachable."""
        self._carrier.until_gone()

    def wait_until_written(self) -> None:
        """All that was stored is on disk. Raises Unreachable."""
        self._carrier.until_written()

    def stats(self) -> dict[str, Any]:
        """The agent's figures; empty when it is gone or late."""
        return self._carrier.stats()

    def close(self) -> None:
        """Whoever waits for the agent in another thread is told so."""
        self._carrier.close()
        for client in self._clients.values():
            client.close()

    # ---- inside

    def _keys(self, serial: int, cut: Cut) -> list[bytes]:
        return keys_of(serial, cut.pages, self._owner_of(serial))

    def _client(self, page_bytes: int) -> Client:
        with self._making:
            client = self._clients.get(page_bytes)
            if client is None:
                named = fingerprint(
                    {"library": self._owner, "page_bytes": page_bytes, **self._marks}
                )
                client = self._carrier.client(SpaceSpec(named, page_bytes, 1))
                self._clients[page_bytes] = client
            return client

    def _does_not_fit(self, cut: Cut) -> DoesNotFit:
        room, kept = self.ledger.room_bytes, self.ledger.live_bytes
        return DoesNotFit(
            f"a value of {spell_bytes(cut.nbytes)} does not fit: {spell_bytes(kept)} are kept, and "
            f"host memory and disk hold {spell_bytes(room)}; discard steps, or give the manager "
            f"more cpu_memory or nvm_memory",
            value_bytes=cut.nbytes,
            room_bytes=max(0, room - kept),
        )
