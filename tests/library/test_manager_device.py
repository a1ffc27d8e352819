"""The device's tier under any order of calls: within its budget, no row of two values."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

torch: Any = pytest.importorskip("torch", reason="torch is not installed here")

from onggi_core.policy.choosers import LeastRecent  # noqa: E402
from onggi_library.manager.device import DeviceTier  # noqa: E402
from onggi_library.manager.hot import HotSet  # noqa: E402

UNIT = 4096
CAPACITY = 40 * UNIT
CPU = torch.device("cpu")


def tier(capacity: int = CAPACITY, first: int = 2, last: int = 3) -> DeviceTier:
    return DeviceTier(capacity, CPU, LeastRecent(), HotSet(), first=first, last=last)


def fill(device: DeviceTier, serial: int, units: int, *, put: bool = True) -> bool:
    row = device.room_for(serial, units * UNIT)
    if row is None:
        return False
    row.fill_(serial % 251)
    if put:
        device.was_put(serial)
    return True


calls = st.lists(
    st.tuples(
        st.sampled_from(["put", "bring", "find", "remove", "pass"]),
        st.integers(0, 30),
        st.integers(1, 9),
    ),
    max_size=120,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(calls)
def test_any_order_of_calls_keeps_budget_and_bytes(calls: list[tuple[str, int, int]]) -> None:
    device, sizes = tier(), {}
    device.hot._met_by_count = 1.0
    for what, serial, units in calls:
        if what in ("put", "bring") and serial not in device:
            assert fill(device, serial, units, put=what == "put")
            sizes[serial] = units * UNIT
        elif what == "find" and (found := device.find(serial)) is not None:
            assert found[0].eq(serial % 251).all()
            assert found[0].numel() == sizes[serial]
        elif what == "remove":
            device.remove(serial)
            assert serial not in device
        elif what == "pass":
            device.hot.asked(serial, met=False, places=len(device))
            device.passes(serial)
        here = [one for one in sizes if one in device]
        assert device.used_bytes == sum(sizes[one] for one in here)
        assert device.used_bytes <= device.taken_bytes <= CAPACITY
        assert device.taken_bytes == sum(s.memory.numel() for s in device._slabs.values())
        assert device._staying_bytes == sum(sizes[one] for one in (*device._first, *device._last))
        assert device._passing_bytes == sum(sizes[one] for one in device._passing)
        assert len(device) == len(here)
    for serial in tuple(sizes):
        device.remove(serial)
    assert device.used_bytes == device._staying_bytes == device._passing_bytes == 0


def test_first_and_last_stay_while_others_come_and_go() -> None:
    device = tier()
    for serial in range(10):
        fill(device, serial, 2)
    for serial in range(100, 140):
        fill(device, serial, 2, put=False)
    assert all(serial in device for serial in (0, 1, 7, 8, 9))
    assert 5 not in device


def test_of_the_others_the_one_used_longest_ago_goes() -> None:
    device = tier(10 * UNIT, first=0, last=0)
    for serial in range(10):
        fill(device, serial, 1)
    device.find(0)
    fill(device, 10, 1)
    assert 0 in device
    assert 1 not in device


def test_a_value_larger_than_the_budget_moves_nobody() -> None:
    device = tier()
    fill(device, 1, 2)
    assert not fill(device, 2, 41)
    assert 1 in device
    assert not fill(tier(0), 1, 1)


def test_another_size_gets_the_room_of_those_that_go() -> None:
    device = tier()
    for serial in range(60):
        fill(device, serial, 1)
    assert fill(device, 100, 39)
    assert device.taken_bytes <= CAPACITY
    assert fill(device, 101, 1)
    device.clear()
    assert device.taken_bytes == 0


def share_met(asked: Iterable[int], *, learns: bool) -> float:
    """Of gets in this order, those that a device of 40 values met in the second half."""
    device, met = tier(first=0, last=0), []
    for serial in asked:
        found = device.find(serial) is not None
        met.append(found)
        if learns:
            device.hot.asked(serial, met=found, places=len(device))
        if not found:
            fill(device, serial, 1, put=False)
            device.passes(serial)
    half = met[len(met) // 2 :]
    return sum(half) / len(half)


def test_of_a_sweep_over_more_than_it_holds_the_device_keeps_a_part() -> None:
    """Least recently used, nothing would be met: each value goes just before it is asked for."""
    sweep = [*range(160)] * 20
    assert share_met(sweep, learns=False) == 0.0
    assert share_met(sweep, learns=True) > 0.8 * 40 / 160


def test_what_is_asked_for_often_stays_where_that_is_better_and_only_there() -> None:
    dice = Random(7)
    skewed = [min(int(dice.paretovariate(0.3)), 2000) for _ in range(6000)]
    drifting = [at // 20 * 3 + min(int(dice.expovariate(1 / 25)), 200) for at in range(6000)]
    moved = [*skewed, *(5000 - one for one in skewed), *(5000 - one for one in skewed)]
    swept = [one for at in range(3000) for one in (at % 200, 1000 + min(dice.randrange(80), 50))]
    for asked, gain in ((skewed, 0.05), (drifting, -0.02), (moved, -0.02), (swept, 0.05)):
        by_use, learned = share_met(asked, learns=False), share_met(asked, learns=True)
        assert learned > by_use + gain
