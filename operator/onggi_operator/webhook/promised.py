"""What agents of a pool were promised already, as a webhook knows it: pods that it sees, and those
that it let in a moment ago and does not see yet.

Each replica knows of its own admissions only. Of pods made within the same moment by way of another
replica a few may pass a quota together; the ledger then holds all of them at their min.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from onggi_operator import names
from onggi_operator.inject.request import annotations_of
from onggi_operator.kube.reflector import Key
from onggi_operator.observe.pods import agent_sizes
from onggi_operator.tenancy import NOTHING_USED, PoolUse

UNSEEN_S: Final = 10.0
"""A pod that was let in and is not seen by then was a dry run, or refused by somebody else."""

UNSEEN_MAX: Final = 10_000
"""Admissions of a pool within that time; far more than an API server makes."""


@dataclass(frozen=True, slots=True)
class Promise:
    """What a living pod takes of its pool's quota."""

    uid: str
    pool: Key
    use: PoolUse


def project_promise(pod: Mapping[str, Any]) -> Promise | None:
    """None for pods without an agent."""
    sizes = agent_sizes(pod["spec"])
    pool = annotations_of(pod).get(names.POOL)
    if sizes is None or not pool:
        return None
    meta = pod["metadata"]
    key = (meta["namespace"], pool)
    return Promise(meta["uid"], key, PoolUse(sizes.memory_bytes, sizes.disk_bytes))


@dataclass(slots=True)
class _Unseen:
    seen: set[str]
    uses: deque[tuple[float, PoolUse]] = field(default_factory=lambda: deque(maxlen=UNSEEN_MAX))


class Promises:
    """`seen` is kept current by others."""

    def __init__(
        self, seen: Mapping[Key, Promise], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seen = seen
        self._clock = clock
        self._unseen: dict[Key, _Unseen] = {}

    def of(self, pool: Key) -> PoolUse:
        """What is promised of a pool's quota."""
        living = {one.uid: one.use for one in self._seen.values() if one.pool == pool}
        total = sum(living.values(), NOTHING_USED)
        unseen = self._unseen.get(pool)
        if unseen is None:
            return total
        for _ in living.keys() - unseen.seen:
            if unseen.uses:
                unseen.uses.popleft()
        unseen.seen = set(living)
        now_s = self._clock()
        while unseen.uses and now_s - unseen.uses[0][0] > UNSEEN_S:
            unseen.uses.popleft()
        if not unseen.uses:
            del self._unseen[pool]
        return sum((use for _, use in unseen.uses), total)

    def promise(self, pool: Key, use: PoolUse) -> None:
        """A pod was let in. Call it right after `of`, without an await between."""
        if pool not in self._unseen:
            living = {one.uid for one in self._seen.values() if one.pool == pool}
            self._unseen[pool] = _Unseen(living)
        self._unseen[pool].uses.append((self._clock(), use))
