"""Which disk job goes next: loads before all, and nobody starves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onggi_sidecar.disk.schedule import (
    BURST_LOADS,
    LOAD_THREADS_MIN,
    LOADS_A_WRITE,
    PREFETCHES_AT_ONCE,
    QUEUE_MAX,
    THREADS,
    WRITES_BESIDE_LOADS,
    WRITES_OWED,
    Job,
    Queue,
    Schedule,
)

LOAD, PREFETCH, WRITE, UPKEEP = Queue


def job(number: int, queue: Queue, deadline_s: float = 2.0) -> Job:
    return Job(number, queue, _nothing, _nothing, deadline_s)


def _nothing() -> None:
    pass


def filled(*jobs: Job, threads: int = THREADS) -> Schedule:
    schedule = Schedule(threads)
    for one in jobs:
        assert schedule.add(one)
    return schedule


def taken(schedule: Schedule, threads: int = THREADS) -> list[int]:
    """What that many free threads would get, as job numbers."""
    jobs = [schedule.take() for _ in range(threads)]
    return [one.number for one in jobs if one is not None]


def one_after_the_other(schedule: Schedule, calls: int) -> list[Queue]:
    """What one thread gets while the others are busy with something else: each job ends before the
    next one is taken, and another one of its kind is queued."""
    queues = []
    for _ in range(calls):
        one = schedule.take()
        assert one is not None
        schedule.ended(one)
        assert schedule.add(one)
        queues.append(one.queue)
    return queues


def test_loads_go_first_in_the_order_they_came() -> None:
    schedule = filled(job(1, WRITE), job(2, PREFETCH), job(3, LOAD), job(4, LOAD))
    assert taken(schedule, 2) == [3, 4]


def test_threads_are_kept_free_for_the_next_loads() -> None:
    schedule = filled(*(job(n, WRITE) for n in range(10)))
    assert len(taken(schedule)) == THREADS - LOAD_THREADS_MIN
    schedule.add(job(100, LOAD))
    assert taken(schedule) == [100]


def test_beside_a_load_no_prefetch_begins_and_few_writes() -> None:
    schedule = filled(job(1, LOAD), job(2, PREFETCH), *(job(n, WRITE) for n in range(3, 10)))
    assert taken(schedule) == [1, *range(3, 3 + WRITES_BESIDE_LOADS)]


def test_few_prefetches_run_at_once_and_before_writes() -> None:
    schedule = filled(job(1, WRITE), *(job(n, PREFETCH) for n in range(2, 10)))
    assert taken(schedule) == [*range(2, 2 + PREFETCHES_AT_ONCE), 1]


def test_a_burst_of_loads_goes_before_writes_and_then_each_few_are_followed_by_one() -> None:
    schedule = filled(*(job(n, WRITE) for n in range(9)), *(job(n, LOAD) for n in range(9)))
    assert one_after_the_other(schedule, BURST_LOADS) == [LOAD] * BURST_LOADS
    turn = [WRITE] + [LOAD] * LOADS_A_WRITE
    assert one_after_the_other(schedule, 25 * len(turn)) == turn * 25


def test_slow_writes_are_few_though_they_are_owed() -> None:
    schedule = filled(*(job(n, WRITE) for n in range(9)), *(job(-1 - n, LOAD) for n in range(99)))
    begun = taken(schedule, 90)
    assert len([number for number in begun if number >= 0]) == WRITES_OWED


def test_writes_that_caught_up_leave_the_next_burst_alone() -> None:
    schedule = filled(*(job(n, WRITE) for n in range(20)), *(job(99, LOAD) for _ in range(40)))
    assert taken(schedule, BURST_LOADS + 1) == [99] * BURST_LOADS + [0]
    begun = [job(n, LOAD) for n in range(BURST_LOADS)]
    while (one := schedule.take()) is not None and one.queue is LOAD:
        begun.append(one)  # no load waits any more
    for load in begun:
        schedule.ended(load)
    for _ in range(BURST_LOADS // LOADS_A_WRITE + 1):
        if (write := schedule.take()) is not None:
            schedule.ended(write)
    for n in range(100, 110):
        assert schedule.add(job(n, LOAD))
    assert taken(schedule, 10) == [*range(100, 110)]


def test_no_write_is_owed_for_loads_that_went_while_none_waited() -> None:
    schedule = filled(*(job(1, LOAD) for _ in range(BURST_LOADS)))
    assert taken(schedule, BURST_LOADS) == [1] * BURST_LOADS
    for one in (job(2, WRITE), job(3, LOAD), job(4, LOAD)):
        assert schedule.add(one)
    assert taken(schedule, 2) == [3, 4]


def test_a_prefetch_somebody_waits_for_becomes_a_load_with_a_loads_time() -> None:
    schedule = filled(job(1, PREFETCH, 2.0), job(2, PREFETCH, 2.0), job(3, LOAD, 2.0))
    schedule.hurry(2, 3.0)
    assert taken(schedule, 3) == [3, 2]
    schedule.hurry(2, 3.0)  # running by now
    schedule.hurry(99, 3.0)  # never heard of
    assert schedule.waiting == 1


def test_a_hurried_prefetch_stays_one_when_the_loads_are_full() -> None:
    loads = [job(n, LOAD) for n in range(QUEUE_MAX[LOAD])]
    schedule = filled(job(-1, PREFETCH), *loads)
    schedule.hurry(-1, 3.0)
    assert schedule.waiting == QUEUE_MAX[LOAD] + 1


@pytest.mark.parametrize("queue", Queue)
def test_a_full_queue_refuses(queue: Queue) -> None:
    schedule = filled(*(job(n, queue) for n in range(QUEUE_MAX[queue])))
    assert not schedule.add(job(-1, queue))
    assert schedule.waiting == QUEUE_MAX[queue]


def test_what_waits_past_its_deadline_expires_and_the_rest_stays() -> None:
    schedule = filled(job(1, LOAD, 1.0), job(2, LOAD, 3.0), job(3, WRITE, 1.5))
    assert schedule.next_deadline_s() == 1.0
    assert [late.number for late in schedule.expired(2.0)] == [1, 3]
    assert schedule.next_deadline_s() == 3.0
    assert taken(schedule) == [2]
    assert schedule.next_deadline_s() is None


def test_one_thread_does_everything() -> None:
    schedule = filled(job(1, UPKEEP), job(2, WRITE), job(3, LOAD), threads=1)
    done = []
    while (one := schedule.take()) is not None:
        done.append(one.number)
        schedule.ended(one)
    assert done == [3, 2, 1]


@given(st.lists(st.sampled_from(Queue), max_size=60), st.integers(1, 8), st.randoms())
def test_every_job_runs_once_and_a_load_never_waits_behind_a_free_thread(
    queues: list[Queue], threads: int, dice: object
) -> None:
    schedule = Schedule(threads)
    added = {n for n, queue in enumerate(queues) if schedule.add(job(n, queue))}
    running: list[Job] = []
    seen: list[int] = []
    while schedule.waiting or running:
        while len(running) < threads and (one := schedule.take()) is not None:
            running.append(one)
            seen.append(one.number)
        assert running, "work waits and no thread takes it"
        index = dice.randrange(len(running))  # type: ignore[attr-defined]
        schedule.ended(running.pop(index))
    assert sorted(seen) == sorted(added)
