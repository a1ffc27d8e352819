"""A disk that somebody else filled: what a store may cost then, counted and not timed.

How long a store takes is the machine's. That it takes none of the disk's time is ours: it is
answered in the step that asks, though no job of the disk ends, and costs a bounded number of tries.
"""

from __future__ import annotations

from collections import Counter

import pytest
from shell import Shell, chain, spec
from walker import check

from onggi_core.engine.actions import WriteRun
from onggi_core.engine.engine import REST_S
from onggi_core.engine.events import IoOutcome, Tick
from onggi_core.wire.requests import StoreOutcome

A = spec("a")
STORES = 100
TRIES_MAX = 2


@pytest.mark.parametrize(
    ("used", "pause_s", "tried_least"),
    [(0, 0.1, 1), (8, 0.1, 1), (0, REST_S + 1, STORES // 2), (8, REST_S + 1, STORES // 2)],
)
def test_a_store_waits_for_no_disk_and_costs_one_eviction_and_two_tries_at_most(
    used: int, pause_s: float, tried_least: int
) -> None:
    """A disk full below the tier's own budget made every write fail for ever:
    dingodb/DingoCache#83."""
    shell = Shell(extents=4, segments=8)
    client = shell.open(A)
    if used:
        assert shell.store(client, chain("before", used)) == used
        shell.end_jobs()
    tries: Counter[bytes] = Counter()
    for number in range(STORES):
        shell.now_s += pause_s
        shell.step(Tick())
        before = shell.stats()["evicted_host_blocks"], shell.stats()["evicted_disk_blocks"]
        keys = chain(f"prompt {number}", 1)
        ticket = shell.prepare(client, keys).ticket  # asserts that it was answered in this step
        assert ticket
        shell.fill(ticket)
        assert shell.complete(ticket, StoreOutcome.SEALED).sealed == 1
        after = shell.stats()["evicted_host_blocks"], shell.stats()["evicted_disk_blocks"]
        assert after[0] - before[0] <= 1
        assert after[1] - before[1] <= 1
        for job in tuple(shell.jobs):  # the disk's answers come only now, and make new tries
            action = shell.jobs[job]
            assert isinstance(action, WriteRun)
            tries.update(action.keys)
            held = {place // shell.region_bytes for place in shell.journal}
            made = action.place // shell.region_bytes in held
            shell.end_job(job, IoOutcome.DONE if made else IoOutcome.NO_SPACE)
        check(shell.engine)
    assert len(tries) >= tried_least
    assert max(tries.values()) <= TRIES_MAX
    assert shell.stats()["errors"]["no_space"] <= STORES * TRIES_MAX
