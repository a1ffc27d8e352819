"""Which disk job goes next: loads before all, and nobody starves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onggi_sidecar.disk.schedule import (
    LOAD_THREADS_MIN,
    PREFETCHES_AT_ONCE,
    QUEUE_MAX,
    THREADS,
    WRITE_PATIENCE_S,
    WRITES_BESIDE_LOADS,
    Job,
    Queue,
    Schedule,
)

LOAD, PREFETCH, WRITE, UPKEEP = Queue


def job(number: int, queue: Queue, deadline_s: float = 2.0) -> Job:
    return Job(number, queue, _nothing, _nothing, deadline_s)


def _nothing() -> None:
    pass


def filled(*jobs: Job, now_s: float = 0.0, threads: int = THREADS) -> Schedule:
    schedule = Schedule(threads)
    for one in jobs:
        assert schedule.add(one, now_s)
    return schedule


def taken(schedule: Schedule, now_s: float = 0.0, threads: int = THREADS) -> list[int]:
    """What that many free threads would get, as job numbers."""
    jobs = [schedule.take(now_s) for _ in range(threads)]
    return [one.number for one in jobs if one is not None]


def test_loads_go_first_in_the_order_they_came() -> None:
    schedule = filled(job(1, WRITE), job(2, PREFETCH), job(3, LOAD), job(4, LOAD))
    assert taken(schedule, threads=2) == [3, 4]


def test_threads_are_kept_free_for_the_next_loads() -> None:
    schedule = filled(*(job(n, WRITE) for n in range(10)))
    assert len(taken(schedule)) == THREADS - LOAD_THREADS_MIN
    schedule.add(job(100, LOAD), 0.0)
    assert taken(schedule) == [100]


def test_beside_a_load_no_prefetch_begins_and_few_writes() -> None:
    schedule = filled(job(1, LOAD), job(2, PREFETCH), *(job(n, WRITE) for n in range(3, 10)))
    assert taken(schedule) == [1, *range(3, 3 + WRITES_BESIDE_LOADS)]


def test_few_prefetches_run_at_once_and_before_writes() -> None:
    schedule = filled(job(1, WRITE), *(job(n, PREFETCH) for n in range(2, 10)))
    assert taken(schedule) == [*range(2, 2 + PREFETCHES_AT_ONCE), 1]


def test_a_write_that_waited_long_gets_one_thread_though_loads_wait() -> None:
    schedule = filled(job(1, WRITE), job(2, WRITE), *(job(n, LOAD) for n in range(3, 20)))
    assert taken(schedule, WRITE_PATIENCE_S * 0.9, 2) == [3, 4]
    assert taken(schedule, WRITE_PATIENCE_S * 1.1, 2) == [1, 5]


def test_a_prefetch_somebody_waits_for_becomes_a_load_with_a_loads_time() -> None:
    schedule = filled(job(1, PREFETCH, 2.0), job(2, PREFETCH, 2.0), job(3, LOAD, 2.0))
    schedule.hurry(2, 1.0, 3.0)
    assert taken(schedule, 1.0, 3) == [3, 2]
    schedule.hurry(2, 1.0, 3.0)  # running by now
    schedule.hurry(99, 1.0, 3.0)  # never heard of
    assert schedule.waiting == 1


def test_a_hurried_prefetch_stays_one_when_the_loads_are_full() -> None:
    loads = [job(n, LOAD) for n in range(QUEUE_MAX[LOAD])]
    schedule = filled(job(-1, PREFETCH), *loads)
    schedule.hurry(-1, 0.0, 3.0)
    assert schedule.waiting == QUEUE_MAX[LOAD] + 1


@pytest.mark.parametrize("queue", Queue)
def test_a_full_queue_refuses(queue: Queue) -> None:
    schedule = filled(*(job(n, queue) for n in range(QUEUE_MAX[queue])))
    assert not schedule.add(job(-1, queue), 0.0)
    assert schedule.waiting == QUEUE_MAX[queue]


def test_what_waits_past_its_deadline_expires_and_the_rest_stays() -> None:
    schedule = filled(job(1, LOAD, 1.0), job(2, LOAD, 3.0), job(3, WRITE, 1.5))
    assert schedule.next_deadline_s() == 1.0
    assert [late.number for late in schedule.expired(2.0)] == [1, 3]
    assert schedule.next_deadline_s() == 3.0
    assert taken(schedule, 2.0) == [2]
    assert schedule.next_deadline_s() is None


def test_one_thread_does_everything() -> None:
    schedule = filled(job(1, UPKEEP), job(2, WRITE), job(3, LOAD), threads=1)
    done = []
    while (one := schedule.take(0.0)) is not None:
        done.append(one.number)
        schedule.ended(one)
    assert done == [3, 2, 1]


@given(st.lists(st.sampled_from(Queue), max_size=60), st.integers(1, 8), st.randoms())
def test_every_job_runs_once_and_a_load_never_waits_behind_a_free_thread(
    queues: list[Queue], threads: int, dice: object
) -> None:
    schedule = Schedule(threads)
    added = {n for n, queue in enumerate(queues) if schedule.add(job(n, queue), 0.0)}
    running: list[Job] = []
    seen: list[int] = []
    while schedule.waiting or running:
        while len(running) < threads and (one := schedule.take(0.0)) is not None:
            running.append(one)
            seen.append(one.number)
        assert running, "work waits and no thread takes it"
        index = dice.randrange(len(running))  # type: ignore[attr-defined]
        schedule.ended(running.pop(index))
    assert sorted(seen) == sorted(added)
