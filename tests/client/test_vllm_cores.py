"""Which cores the mover may use."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import onggi
from onggi.connectors.vllm.cores import allowed, give_way, let_go, spare

CHILD = """
import os, threading
from onggi.connectors.vllm.cores import allowed, let_go
cores = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, cores[:1])  # as an engine ties its compute threads
masks = []
def run(free):
    if free:
        let_go(allowed())
    masks.append(len(os.sched_getaffinity(0)))
for free in (False, True):
    thread = threading.Thread(target=run, args=(free,))
    thread.start()
    thread.join()
print(len(cores), *masks)
"""


def test_a_thread_of_a_tied_one_is_let_go_to_the_cores_of_the_whole_engine() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", CHILD],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(Path(onggi.__file__).parents[1])},
    )
    assert ran.returncode == 0, ran.stderr
    cores, tied, free = map(int, ran.stdout.split())
    assert (tied, free) == (1, cores)


def test_no_core_is_taken_that_this_process_was_not_given() -> None:
    assert os.sched_getaffinity(0) <= allowed()
    masks = []

    def run() -> None:
        let_go(frozenset())
        let_go(frozenset({10_000}))
        masks.append(os.sched_getaffinity(0))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert masks == [os.sched_getaffinity(0)]


def test_giving_way_is_for_one_thread() -> None:
    found = []

    def run() -> None:
        give_way(7)
        found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    before = os.getpriority(os.PRIO_PROCESS, 0)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [7]
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


@pytest.mark.parametrize(("cores", "threads", "left"), [(2, 1, True), (2, 2, False), (0, 1, False)])
def test_a_core_is_spare_if_the_compute_threads_leave_one(
    cores: int, threads: int, left: bool
) -> None:
    assert spare(frozenset(range(cores)), threads) is left
