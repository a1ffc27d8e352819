"""`POST /v1/heartbeat`: a report in, a directive out."""

import json
import logging
from collections.abc import Callable
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter

from onggi_core.heartbeat import (
    BODY_BYTES_MAX,
    Directive,
    Heartbeat,
    HeartbeatError,
    dump_directive,
    parse_heartbeat,
)
from onggi_operator.bounded import bounded
from onggi_operator.heartbeat.desk import Away, Desk
from onggi_operator.heartbeat.identity import Caller, Identities, Refusal
from onggi_operator.kube.client import ApiError, Unreachable
from onggi_operator.observe.accounts import Report
from onggi_operator.plan.grants import disk_limit_bytes

HEARTBEAT_PATH: Final = "/v1/heartbeat"
REQUEST_S: Final = 10.0
"""An agent gives up after 4; the rest is for reviews that wait in line."""

STATUSES: Final = (200, 400, 401, 403, 413, 421, 503)
"""What a report may be answered."""

_BEARER: Final = "Bearer "

log = logging.getLogger(__name__)


class HeartbeatServer:
    """`desk` says who answers at this moment; `clock` is monotonic."""

    def __init__(
        self,
        desk: Callable[[], Desk | Away],
        identities: Identities,
        clock: Callable[[], float],
        registry: CollectorRegistry,
    ) -> None:
        self._desk = desk
        self._identities = identities
        self._clock = clock
        self._answers = Counter(
            "onggi_operator_heartbeats",
            "Reports answered, by HTTP status.",
            ["status"],
            registry=registry,
        )
        # There as 0 before the first: so its absence says that this program is away.
        for status in STATUSES:
            self._answers.labels(str(status))

    def app(self) -> web.Application:
        # One byte more, so that a body of exactly the limit is told from a longer one.
        app = web.Application(
            client_max_size=BODY_BYTES_MAX + 1, middlewares=[bounded(time_s=REQUEST_S)]
        )
        app.router.add_post(HEARTBEAT_PATH, self._beat)
        return app

    async def _beat(self, request: web.Request) -> web.Response:
        answer = await self._answer(request)
        self._answers.labels(str(answer.status)).inc()
        return answer

    async def _answer(self, request: web.Request) -> web.Response:
        if isinstance(away := self._desk(), Away):
            return _elsewhere(away)
        if (request.content_length or 0) > BODY_BYTES_MAX:
            return _refused(413, f"the body is longer than {BODY_BYTES_MAX} bytes")
        header = request.headers.get("Authorization", "")
        if not header.startswith(_BEARER):
            return _refused(401, "the Authorization header carries no bearer token")
        try:
            caller = await self._identities.caller(header.removeprefix(_BEARER))
        except (ApiError, Unreachable) as fault:
            log.warning("a token could not be reviewed: %s", fault)
            return _refused(503, "the token could not be reviewed; try again", retry_s=5)
        if isinstance(caller, Refusal):
            return _refused(401, caller.why)
        try:
            beat = parse_heartbeat(await request.read())
        except web.HTTPRequestEntityTooLarge:
            return _refused(413, f"the body is longer than {BODY_BYTES_MAX} bytes")
        except HeartbeatError as problem:
            return _refused(400, str(problem))
        except ConnectionError:
            return _refused(400, "the report broke off")  # the agent gave up, and asks again
        return self._take(caller, beat)

    def _take(self, caller: Caller, beat: Heartbeat) -> web.Response:
        """No await from here on: what is checked is what is counted, and who leads now answers."""
        desk = self._desk()
        if isinstance(desk, Away):
            return _elsewhere(desk)
        if caller != Caller(beat.namespace, beat.pod, beat.pod_uid):
            return _refused(403, f"the token belongs to pod {caller.namespace}/{caller.pod}")
        asked = desk.world.pool_of_pod((beat.namespace, beat.pod), beat.pod_uid)
        if asked is not None and asked != beat.pool:
            return _refused(403, f"pod {beat.pod} asks for pool {asked}, not {beat.pool}")
        now_s = self._clock()
        report = desk.fleet.hear(beat, now_s=now_s)
        taken = report is Report.TAKEN
        if report is Report.TOO_MANY or (taken and not desk.world.hear(beat, now_s=now_s)):
            return _refused(503, "there are too many agents already", retry_s=60)
        body = dump_directive(directive(desk, beat, report))
        answer = web.Response(body=body, content_type="application/json")
        if not desk.may_grant:
            answer.force_close()  # so that the agent finds another operator, should there be one
        return answer


def directive(desk: Desk, beat: Heartbeat, report: Report) -> Directive:
    """A pool that is gone leaves its engines alone: they go on as they are, and so do all where
    nobody may say what else to do. Whoever sent a report that was overtaken has given up on its
    answer, so that says nothing of sizes; of one that is doubted that is likely, and if not it is
    there again at once."""
    world, fleet = desk.world, desk.fleet
    interval_s = world.report_interval_s()
    pool = world.pool((beat.namespace, beat.pool))
    if pool is None or not desk.may_grant:
        return Directive(beat.mode, interval_s)
    if report is Report.OVERTAKEN:
        return Directive(pool.mode, interval_s)
    if report is Report.DOUBTED:
        return Directive(pool.mode, interval_s, confirm=fleet.mark(beat.pod_uid))
    return Directive(
        pool.mode,
        interval_s,
        host_bytes=fleet.answer(beat.pod_uid),
        disk_bytes=disk_limit_bytes(pool, fleet.disk_bytes((beat.namespace, beat.pod))),
        drain=fleet.is_leaving(beat.pod_uid),
    )


def _elsewhere(away: Away) -> web.Response:
    """The connection is closed: the next one may lead to another operator."""
    if away.retry_s is None:
        answer = _refused(421, away.why)
    else:
        answer = _refused(503, away.why, retry_s=away.retry_s)
    answer.force_close()
    return answer


def _refused(status: int, why: str, *, retry_s: int | None = None) -> web.Response:
    headers = {} if retry_s is None else {"Retry-After": str(retry_s)}
    text = json.dumps({"error": why})
    return web.Response(status=status, text=text, content_type="application/json", headers=headers)
