"""The metrics page: every series documented, nothing recorded twice."""

import re
from collections import deque
from pathlib import Path

from onggi_core.engine.engine import Engine
from onggi_core.engine.state import Facts
from onggi_sidecar.figures import gather_figures
from onggi_sidecar.metrics import Metrics
from onggi_sidecar.tally import SAMPLE_EVERY, Tally

DOCS = Path(__file__).parents[2] / "docs" / "agent.md"


def make(tally: Tally, timings: deque[tuple[str, float]]) -> Metrics:
    engine = Engine(Facts(bytes(16), "arena", 0, 0, 4096, 0))
    return Metrics(lambda: gather_figures(engine, None, tally, io_deadline_s=1), tally, timings)


def test_every_metric_is_explained_in_the_docs() -> None:
    tally = Tally(iter(range(1000)).__next__)
    tally.fault("bad_frame")
    for _ in range(SAMPLE_EVERY):
        if (timed := tally.begin(2)) is not None:
            tally.end(timed)
    page = make(tally, deque([("read", 0.002)])).render().decode()
    names = set(re.findall(r"^# TYPE (\S+)", page, re.MULTILINE))
    assert len(names) > 20
    documented = set(re.findall(r"`(onggi_\w+)`", DOCS.read_text()))
    assert names == documented


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
