"""Which chunks the agent has, asked beside the engine's steps.

vLLM asks chunk by chunk, from the scheduler's thread. What the agent's board shows is answered at
once; all else is collected over a step, asked for in one request a group, and answered in the next
step, by vLLM's own class for that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from vllm.v1.kv_offload.tiering.async_lookup import AsyncLookupManager

from onggi.client import Client
from onggi.connectors.vllm.failures import Failures
from onggi.connectors.vllm.guard import Faults
from onggi.connectors.vllm.secondary.names import Names, group_of
from onggi_core.wire.frame import KEYS_MAX

LOOKS_MAX: Final = 64
"""Requests for one group's chunks in a step. A prefix takes one; windows, which may have holes, one
a hole, and what lies behind so many is not looked for."""


class Lookups(AsyncLookupManager):  # type: ignore[misc]
    """Called by the scheduler's thread, but for batch_lookup()."""

    def __init__(
        self,
        tier_type: str,
        client: Client,
        names: Names,
        faults: Faults,
        *,
        prefixes: Collection[int],
    ) -> None:
        """prefixes: groups of which a chunk is worth something only with all those before it."""
        self._client = client
        self._names = names
        self._faults = faults
        self._prefixes = frozenset(prefixes)
        self._failures = Failures()
        super().__init__(tier_type=tier_type)

    def verdict(self, name: bytes, req_context: Any) -> bool | None:
        """Whether a chunk can be had; None: ask again in the next step."""
        if not self._failures.first([name], self._client.now_s()):
            return False
        if self._shown(name):
            return True
        found: bool | None = self.lookup(name, req_context)
        return found

    def _shown(self, name: bytes) -> bool:
        session = self._client.showing()
        shown = session.shown if session is not None else None
        return shown is not None and shown.look(self._names.keys([name])) is not None

    def failed(self, names: Sequence[bytes]) -> None:
        """A load did not bring these: vLLM would look them up again at once, find them, and fail
        again, for ever."""
        for name in names:
            self._failures.note(name, self._client.now_s())
        self.mark_miss(names)

    def stored(self, names: Sequence[bytes]) -> None:
        """What is there now is not what failed."""
        self._failures.forget(names)

    # ---- on the thread of AsyncLookupManager

    def batch_lookup(self, keys: list[Any], req_context: Any) -> Iterator[bool]:  # noqa: ARG002
        found: set[bytes] = set()
        by_group: dict[int, list[bytes]] = {}
        for name in keys:
            by_group.setdefault(group_of(name), []).append(name)
        try:
            for group, names in by_group.items():
                found |= self._prefix(names) if group in self._prefixes else self._each(names)
        except Exception as error:  # noqa: BLE001 - they count as missing
            self._faults.note("lookup", error)
        return (name in found for name in keys)

    def _prefix(self, names: Sequence[bytes]) -> set[bytes]:
        """Those before the first that is missing; what lies on disk begins to come."""
        keys, count = self._names.keys(names), 0
        for begin in range(0, len(keys), KEYS_MAX):
            some = keys[begin : begin + KEYS_MAX]
            got = self._client.prefetch(some).pending
            count += got
            if got < len(some):
                break
        return set(names[:count])

    def _each(self, names: Sequence[bytes]) -> set[bytes]:
        found: set[bytes] = set()
        keys, begin = self._names.keys(names), 0
        for _ in range(LOOKS_MAX):
            if begin >= len(keys):
                break
            count = self._client.lookup(keys[begin : begin + KEYS_MAX]).pending
            found.update(names[begin : begin + count])
            begin += count + 1
        return found
