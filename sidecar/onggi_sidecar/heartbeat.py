"""Reports to the operator and takes its directive. The agent never needs an answer: without one
it keeps the directive it has."""

import asyncio
import random
import ssl
from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from typing import Final

import aiohttp

from onggi_core.heartbeat import (
    BODY_BYTES_MAX,
    Directive,
    Heartbeat,
    HeartbeatError,
    dump_heartbeat,
    parse_directive,
)
from onggi_sidecar.config import AgentConfig
from onggi_sidecar.log import error, event, warn

INTERVAL_S: Final = 5.0
TIMEOUT_S: Final = 4.0
"""Less than the interval, so that reports never overlap."""
BACKOFF_S_MAX: Final = 60.0
"""An operator that comes back is heard within a minute; a thousand agents ask it 17 times a
second meanwhile."""
DOUBLINGS_MAX: Final = 6
KEPT_IDLE_S: Final = 75.0
"""The connection is held from one report to the next: a handshake costs the operator three times
what a report does, and with ten thousand agents they are 20 seconds apart. Less than the operator
holds it, or a report would go out on one that is just being closed."""
LAST_S: Final = 1.0
"""What an agent that ends waits for its last report. It comes out of the pod's grace period, which
the disk tier needs too."""
ELSEWHERE_MAX: Final = 3
"""Connections tried for one report while an operator answers that another one leads (421). Behind
a Service with two of them one in eight reports finds the wrong one each time, and waits."""
ELSEWHERE_LAST_MAX: Final = 8
"""The same for the last report, which cannot wait: of an agent that lives for seconds it may be the
only one, and one in 256 is missed."""

SAID_BYTES_MAX: Final = 200
JITTER: Final = 0.2
"""Agents that started together spread out by a fifth of the interval."""


class NoDirective(Exception):
    """A report that brought no directive back; the message says why."""


class Elsewhere(NoDirective):
    """The operator that answered does not lead; another one does, behind the same name."""


class HeartbeatPoster:
    """Posts what `report` says every few seconds and hands the answer to `obey`. What was done
    since the last report of a life would be lost to the totals of its pool, all of it where a pod
    lives for less than an interval: so there is one more at the end."""

    def __init__(
        self,
        config: AgentConfig,
        *,
        report: Callable[[], Heartbeat],
        obey: Callable[[Directive], None],
        dice: random.Random,
    ) -> None:
        self._config = config
        self._report = report
        self._obey = obey
        self._dice = dice
        self._failures = 0
        self._confirms = ""
        self._ending = asyncio.Event()

    def end(self) -> None:
        """One last report, whatever became of the one before, and run() is over."""
        self._ending.set()

    async def run(self) -> None:
        """Until end(), or at once if whom to trust cannot be read: that is logged, and the
        agent serves on. One client session for the whole life, one connection in it."""
        try:
            trust = _trust(self._config)
        except OSError as fault:  # ssl's own errors among them
            error("operator_untrusted", f"cannot read the operator's certificates: {fault}")
            return
        connector = aiohttp.TCPConnector(limit=1, ssl=trust, keepalive_timeout=KEPT_IDLE_S)
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            interval_s, pause_s = INTERVAL_S, 0.0
            while not await self._ends_within(pause_s):
                answer = await self._report_and_confirm(session)
                if answer is not None:
                    interval_s = answer.interval_s
                    self._obey(answer)
                pause_s = self._pause_s(interval_s)
            await self._report_and_confirm(session, tries=ELSEWHERE_LAST_MAX)

    async def _ends_within(self, pause_s: float) -> bool:
        try:
            return await asyncio.wait_for(self._ending.wait(), pause_s)
        except TimeoutError:
            return False

    def _pause_s(self, interval_s: float) -> float:
        doubled_s = interval_s * float(2 ** min(self._failures, DOUBLINGS_MAX))
        pause_s = min(doubled_s, max(BACKOFF_S_MAX, interval_s))
        return pause_s * self._dice.uniform(1 - JITTER, 1 + JITTER)

    async def _report_and_confirm(
        self, session: aiohttp.ClientSession, *, tries: int = ELSEWHERE_MAX
    ) -> Directive | None:
        """A report, and another one at once where the operator cannot tell whether it is of now:
        the first one after a restart is such."""
        answer = await self._report_once(session, tries)
        if answer is None or not answer.confirm:
            return answer
        self._confirms = answer.confirm
        return await self._report_once(session, tries)

    async def _report_once(self, session: aiohttp.ClientSession, tries: int) -> Directive | None:
        """One report; the directive, or None with the failure noted."""
        try:
            directive = await self._find_leader(session, tries)
        except NoDirective as why:
            self._failures += 1
            if self._failures == 1:  # said once, then quiet until the operator is back
                warn("operator_unreachable", f"{why}; the present mode stays in force")
            return None
        if self._failures:
            event("operator_reached", "the operator answers again", failures=self._failures)
        self._failures = 0
        return directive

    async def _find_leader(self, session: aiohttp.ClientSession, tries: int) -> Directive:
        """Who answers 421 closes the connection, and the next one may lead elsewhere."""
        for _ in range(tries - 1):
            try:
                return await self._post(session)
            except Elsewhere:
                continue
        return await self._post(session)

    async def _post(self, session: aiohttp.ClientSession) -> Directive:
        url = f"{self._config.operator_url.rstrip('/')}/v1/heartbeat"
        try:
            headers = {"Content-Type": "application/json", **self._authorization()}
            body = dump_heartbeat(replace(self._report(), confirms=self._confirms))
            async with session.post(url, data=body, headers=headers) as response:
                answer = await response.content.read(BODY_BYTES_MAX)
                status = response.status
        except UnicodeDecodeError as wrong:
            raise NoDirective(
                f"the token in {self._config.token_file} is not ASCII: {wrong.reason}"
            ) from wrong
        except (aiohttp.ClientError, TimeoutError, OSError) as fault:
            raise NoDirective(
                f"cannot reach the operator at {url}: {str(fault) or 'timed out'}"
            ) from fault
        if status != HTTPStatus.OK:
            said = answer[:SAID_BYTES_MAX].decode(errors="replace")
            kind = Elsewhere if status == HTTPStatus.MISDIRECTED_REQUEST else NoDirective
            raise kind(f"the operator answered {status}: {said}")
        try:
            return parse_directive(answer)
        except HeartbeatError as wrong:
            raise NoDirective(f"cannot read the operator's answer: {wrong}") from wrong

    def _authorization(self) -> dict[str, str]:
        """The projected token, read each time: the kubelet replaces it well before it ends."""
        if self._config.token_file is None:
            return {}
        token = self._config.token_file.read_text(encoding="ascii").strip()
        return {"Authorization": f"Bearer {token}"}


def _trust(config: AgentConfig) -> ssl.SSLContext:
    """Who may be the operator: the authority handed in, else the system's."""
    context = ssl.create_default_context(
        cafile=None if config.operator_ca_file is None else str(config.operator_ca_file)
    )
    if config.operator_ca:
        context.load_verify_locations(cadata=config.operator_ca)
    return context
