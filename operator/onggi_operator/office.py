"""Who answers agents and hears of pools: this operator while it leads, by its present term."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from onggi_operator.heartbeat.desk import Away, Desk
from onggi_operator.kube.client import ApiClient
from onggi_operator.kube.pace import Pace
from onggi_operator.kube.reflector import Key
from onggi_operator.lead.elector import Elector
from onggi_operator.lead.lease import LEASE_S, Standing
from onggi_operator.observe.world import PoolSnapshot
from onggi_operator.round_times import RoundTimes
from onggi_operator.settings import ControllerSettings
from onggi_operator.term import Term

LISTING_S: Final = 2
"""When an agent may ask again that came while a term began."""


class Office:
    """`api` is handed to terms with a fence around it, and a pace for what they write."""

    def __init__(
        self, api: ApiClient, elector: Elector, settings: ControllerSettings, times: RoundTimes
    ) -> None:
        self._times = times
        self._pace = Pace()
        self._api = api
        self._elector = elector
        self._settings = settings
        self._term: Term | None = None

    async def term(self) -> None:
        """One term, until cancelled."""
        api = self._api.fenced(self._elector.left_s, lambda: self._pace.wait_s(time.monotonic()))
        self._term = Term(api, self._settings, self._times)
        try:
            await self._term.run()
        finally:
            self._term = None

    def desk(self) -> Desk | Away:
        """Who answers an agent at this moment."""
        standing, term = self._elector.standing(), self._term
        if standing is Standing.FOLLOWING:
            return Away("another operator leads; ask again over a new connection", None)
        if standing is Standing.VACANT or term is None:
            return Away("no operator leads now; ask again", LEASE_S)
        if (waits_for := term.missing()) is not None:
            return Away(f"this operator has not seen all {waits_for} yet; ask again", LISTING_S)
        return Desk(term.world, term.fleet, may_grant=standing is Standing.LEADING)

    def missing(self) -> str | None:
        """What readiness waits for. One that follows is ready: it will lead when it has to."""
        if not self._elector.looked.is_set():
            return "a look at the Lease"
        if self._term is not None:
            return self._term.missing()
        return "a leader" if self._elector.standing() is not Standing.FOLLOWING else None

    def pools(self, now_s: float) -> Sequence[PoolSnapshot]:
        """For metrics: only who leads has any."""
        return () if self._term is None else self._term.world.snapshot(now_s=now_s)

    def see_pool(self, body: Mapping[str, Any]) -> None:
        if self._term is not None:
            self._term.see_pool(body)

    def lose_pool(self, key: Key) -> None:
        if self._term is not None:
            self._term.lose_pool(key)

    def is_there(self, key: Key, uid: str) -> bool:
        """Whether a pod that asks for a pool is seen."""
        return self._term is not None and self._term.world.is_there(key, uid)
