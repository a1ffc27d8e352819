"""The metrics page of an agent: nothing is recorded twice. What it has: tests/monitoring."""

from collections import deque

from onggi_core.engine.engine import Engine
from onggi_core.engine.state import Facts
from onggi_sidecar.figures import gather_figures
from onggi_sidecar.metrics import Metrics
from onggi_sidecar.tally import SAMPLE_EVERY, Tally


def make(tally: Tally, timings: deque[tuple[str, float]]) -> Metrics:
    engine = Engine(Facts(bytes(16), "arena", 0, 0, 4096, 0))
    return Metrics(lambda: gather_figures(engine, None, tally, io_deadline_s=1), tally, timings)


def test_a_sample_is_recorded_once_and_every_request_counted() -> None:
    tally = Tally(iter(range(1000)).__next__)
    for _ in range(2 * SAMPLE_EVERY):
        if (timed := tally.begin(2)) is not None:
            tally.end(timed)
    metrics = make(tally, deque())
    for _ in range(2):
        page = metrics.render().decode().splitlines()
        assert 'onggi_requests_total{op="lookup"} 32.0' in page
        assert 'onggi_request_seconds_count{op="lookup"} 2.0' in page
    metrics.close()
