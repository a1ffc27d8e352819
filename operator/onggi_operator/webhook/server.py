"""The HTTPS endpoint that the API server calls for annotated pods."""

import logging
import time
from collections.abc import Callable
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Histogram

from onggi_operator.bounded import bounded
from onggi_operator.inject.containers import Installation
from onggi_operator.inject.outcome import Injected, Outcome, Skipped, SkipReason, Untouched
from onggi_operator.inject.plan import plan_injection
from onggi_operator.inject.request import read_request
from onggi_operator.tenancy import NOTHING_USED
from onggi_operator.webhook.review import NotAReview, Review, answer, read_review
from onggi_operator.webhook.sources import Sources

MUTATE_PATH: Final = "/mutate"
BODY_BYTES_MAX: Final = 8 * 1024 * 1024
"""An AdmissionReview holds the pod once on CREATE; the API server's own limit for it is 3 MiB."""

REQUEST_S: Final = 5.0
"""The API server does not wait longer."""

log = logging.getLogger(__name__)


class AdmissionServer:
    """`install` is asked for each pod, since the CA that it hands out may change."""

    def __init__(
        self, sources: Sources, install: Callable[[], Installation], registry: CollectorRegistry
    ) -> None:
        self._sources = sources
        self._install = install
        self._answers = Counter(
            "onggi_webhook_admissions",
            "Pods answered, by outcome and skip reason.",
            ["outcome", "reason"],
            registry=registry,
        )
        # There as 0 before the first of its kind: what appears as 1 has no increase to alert on.
        for outcome in ("injected", "untouched"):
            self._answers.labels(outcome, "")
        for reason in SkipReason:
            self._answers.labels("skipped", reason.value)
        self._seconds = Histogram(
            "onggi_webhook_admission_seconds",
            "Time from request to answer.",
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5),
            registry=registry,
        )

    def app(self) -> web.Application:
        app = web.Application(
            client_max_size=BODY_BYTES_MAX, middlewares=[bounded(time_s=REQUEST_S)]
        )
        app.router.add_post(MUTATE_PATH, self._mutate)
        return app

    async def _mutate(self, request: web.Request) -> web.Response:
        started_s = time.perf_counter()
        try:
            review = read_review(await request.read())
        except NotAReview as problem:
            raise web.HTTPBadRequest(text=str(problem)) from problem
        outcome = await self._decide(review)
        self._account(review, outcome)
        self._seconds.observe(time.perf_counter() - started_s)
        return web.json_response(answer(review, outcome))

    async def _decide(self, review: Review) -> Outcome:
        asked = read_request(review.pod)
        if isinstance(asked, (Skipped, Untouched)):
            return asked
        pool = await self._sources.pool(review.namespace, asked.pool)
        if isinstance(pool, Skipped):
            return pool
        try:
            where = self._sources.namespace(review.namespace)
            key = (review.namespace, pool.name)
            promised = self._sources.promises.of(key) if pool.quota.bounds else NOTHING_USED
            outcome = plan_injection(review.pod, where, asked, pool, self._install(), promised)
            if pool.quota.bounds and isinstance(outcome, Injected) and not review.dry_run:
                self._sources.promises.promise(key, outcome.takes)
            return outcome
        except Exception as fault:
            # Told on the pod and in the log. The API server would only let the pod through, and it
            # would look like one that the webhook never saw.
            log.exception("a pod could not be planned", extra={"namespace": review.namespace})
            told = f"{type(fault).__name__}: {fault}; this is a bug of Onggi's"
            return Skipped(SkipReason.INTERNAL_ERROR, told)

    def _account(self, review: Review, outcome: Outcome) -> None:
        where = {"namespace": review.namespace, "pod": review.name}
        match outcome:
            case Injected():
                self._answers.labels("injected", "").inc()
                log.info("injected", extra={**where, "status": outcome.status})
            case Skipped():
                self._answers.labels("skipped", outcome.reason.value).inc()
                told = {**where, "reason": outcome.reason.value, "why": outcome.message}
                log.info("skipped", extra=told)
            case Untouched():
                self._answers.labels("untouched", "").inc()
