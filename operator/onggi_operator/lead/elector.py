"""Rounds over the Lease, and a term of office for as long as it is held."""

import asyncio
import logging
import random
import socket
import time
import uuid
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any, Final

from onggi_operator.kube.client import ApiClient, ApiError, Conflict, NotFound, Unreachable
from onggi_operator.lead.lease import JITTER, RENEW_S, RETRY_S, Candidate, Standing, read_lease

CALL_S: Final = RENEW_S / 2 - RETRY_S / 2
"""For one call: two that hang leave time for a third before the deadline."""

RELEASE_S: Final = 3.0
"""For giving up the Lease at the end, out of the pod's grace period."""

log = logging.getLogger(__name__)


def boot_clock() -> float:
    """Seconds that go on while this machine sleeps: a lease ends meanwhile."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def new_identity() -> str:
    """The pod's name, and what tells this life of it from the one before."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class Elector:
    """`standing()` and `left_s()` are plain calls, to be asked right before acting."""

    def __init__(
        self,
        api: ApiClient,
        *,
        namespace: str,
        name: str,
        identity: str,
        clock: Callable[[], float],
        dice: random.Random,
    ) -> None:
        self._api = api
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"
        self._candidate = Candidate(identity)
        self._clock = clock
        self._dice = dice
        self.looked = asyncio.Event()
        """Set once the Lease was read."""

    def standing(self) -> Standing:
        return self._candidate.standing(self._clock())

    def left_s(self) -> float:
        """How long this one may act; 0 when it may not."""
        return self._candidate.left_s(self._clock())

    async def run(self, term: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Until cancelled: `term()` runs while the Lease is held, is cancelled when another has it,
        and a new one begins when it is held again. At the end the Lease is given up. Raises what a
        term raises."""
        office: asyncio.Task[None] | None = None
        try:
            while True:
                await self._round()
                if office is not None and not self._candidate.holds:
                    log.warning("not leading any more: the Lease is not held now")
                    await _end(office)
                    office = None
                elif office is None and self._candidate.holds:
                    log.info("leading", extra={"identity": self._candidate.me})
                    office = asyncio.create_task(term())
                pause_s = RETRY_S * (1 + JITTER * self._dice.random())
                if office is None:
                    await asyncio.sleep(pause_s)
                elif (await asyncio.wait([office], timeout=pause_s))[0]:
                    office.result()
                    raise RuntimeError("a term ended by itself")
        finally:
            await self._leave(office)

    async def _round(self) -> None:
        """One look or renewal. What fails is tried again; what one may do is a matter of time."""
        try:
            if not self._candidate.holds:
                await self._look()
            await self._bid()
        except Conflict:
            await self._look_after_conflict()
        except NotFound:
            log.error("there is no Lease at %s; the chart makes it (helm upgrade)", self._path)
        except (ApiError, Unreachable) as fault:
            log.warning("the Lease could not be kept or seen: %s", fault)

    async def _look(self) -> None:
        lease = read_lease(await self._api.get(self._path, timeout_s=CALL_S))
        self._candidate.see(lease, now_s=self._clock())
        self.looked.set()

    async def _bid(self) -> None:
        sent_s = self._clock()
        bid = self._candidate.bid(now_s=sent_s, now=micro_time())
        if bid is not None:
            lease = read_lease(await self._api.patch(self._path, bid, timeout_s=CALL_S))
            self._candidate.won(lease, sent_s=sent_s)

    async def _look_after_conflict(self) -> None:
        """Another wrote it, or this one did and never heard the answer."""
        try:
            await self._look()
        except (ApiError, Unreachable) as fault:
            log.warning("the Lease could not be seen: %s", fault)

    async def _leave(self, office: asyncio.Task[None] | None) -> None:
        """No longer leading first, then the term's end, and only then another may begin."""
        released = self._candidate.release(now=micro_time())
        if office is not None:
            await _end(office)
        if released is None:
            return
        try:
            await self._api.patch(self._path, released, timeout_s=RELEASE_S)
            log.info("the Lease is given up")
        except (ApiError, Unreachable) as fault:
            log.warning("the Lease could not be given up: %s", fault)


async def _end(office: asyncio.Task[None]) -> None:
    office.cancel()
    await asyncio.gather(office, return_exceptions=True)


def micro_time() -> str:
    """Now, as a Lease has it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
