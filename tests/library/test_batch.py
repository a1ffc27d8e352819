"""How many sequences fit a target of memory: never too many, and no swinging."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onggi import BatchSizer
from onggi_library.batch import MARGIN_SHARE
from onggi_library.manager.errors import DoesNotFit

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "03-as-many-as-fit" / "example.py"
MIB = 1 << 20
often = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def sizer_of(target_bytes: int, most: int = 4096) -> BatchSizer:
    return BatchSizer(f"{target_bytes}B", most=most)


@often
@given(
    least=st.integers(MARGIN_SHARE, 10**9),
    room=st.integers(2, 200),
    fixed=st.integers(0, 10**9),
    most=st.integers(1, 100),
    seed=st.data(),
)
def test_costs_that_vary_within_the_margin_are_never_too_much_and_never_swing(
    least: int, room: int, fixed: int, most: int, seed: st.DataObject
) -> None:
    target = fixed + least * room
    sizer, sizes = sizer_of(target, most), []
    sizer.observe(0, fixed)
    for _ in range(60):
        sizes.append(sizer.size)
        each = least + seed.draw(st.integers(0, least // MARGIN_SHARE))
        used = fixed + sizer.size * each
        assert used <= target
        sizer.observe(sizer.size, used)
    assert all(0 <= after - before <= 1 for before, after in pairwise(sizes)), "one more at most"


@often
@given(each=st.integers(1, 10**9), target=st.integers(1, 10**11), most=st.integers(1, 60))
def test_a_steady_cost_comes_to_rest_close_to_the_target(each: int, target: int, most: int) -> None:
    sizer = sizer_of(target, most)
    if each > target:
        with pytest.raises(DoesNotFit, match="use a larger target, or shorter sequences"):
            sizer.observe(1, each)
        return
    sizes = [sizer.observe(sizer.size, sizer.size * each) for _ in range(most + 20)]
    rest = sizes[most]
    assert set(sizes[most:]) == {rest}
    assert rest * each <= target
    assert rest == most or (rest + 1) * each * (MARGIN_SHARE + 1) > target * MARGIN_SHARE


@often
@given(st.lists(st.integers(1, 1000), max_size=200))
def test_whatever_it_costs_the_next_batch_fits_if_it_costs_no_more_than_lately(
    costs: list[int],
) -> None:
    sizer = sizer_of(1000)
    for each in costs:
        asked = sizer.size
        after = sizer.observe(asked, asked * each)
        assert sizer.sequence_bytes is not None
        assert sizer.sequence_bytes >= each
        assert after * sizer.sequence_bytes <= 1000, "at once, however many that are fewer"
        assert after <= asked + 1


def test_it_shrinks_at_once_and_grows_one_by_one() -> None:
    sizer = sizer_of(1_000_000)
    while sizer.observe(sizer.size, sizer.size * 50_000) < 17:
        pass
    assert sizer.observe(17, 17 * 200_000) == 4
    assert sizer.observe(4, 4 * 50_000) == 4, "a dear one is remembered for some time"
    sizes = [sizer.observe(sizer.size, sizer.size * 50_000) for _ in range(300)]
    assert sizes[-1] > 10
    assert all(after - before in (0, 1) for before, after in pairwise(sizes))


def test_now_and_then_a_dear_batch_does_not_make_it_swing() -> None:
    sizer, sizes = sizer_of(1_000_000), []
    for number in range(400):
        each = 20_000 if number % 4 else 40_000
        assert sizer.size * each <= 1_000_000
        sizes.append(sizer.observe(sizer.size, sizer.size * each))
    changes = [(a, b) for a, b in pairwise(sizes[100:]) if a != b]
    assert not changes


def test_a_batch_smaller_than_asked_for_is_no_reason_for_more() -> None:
    sizer = sizer_of(1000)
    assert [sizer.observe(sizer.size, sizer.size * 10) for _ in range(3)] == [2, 3, 4]
    assert sizer.observe(2, 20) == 4


def test_what_is_there_without_any_is_not_the_sequences() -> None:
    sizer = BatchSizer("100MiB", most=8)
    assert sizer.observe(0, 90 * MIB) == 1
    for _ in range(10):
        sizer.observe(sizer.size, 90 * MIB + sizer.size * MIB)
    assert sizer.size == 8
    with pytest.raises(DoesNotFit, match="of which 100 bytes are taken without any") as no:
        BatchSizer("100B").observe(0, 100)
    assert no.value.room_bytes == 0


@pytest.mark.parametrize(
    ("target", "most", "said"),
    [
        (0, 1, "target is 0; use a number of GiB"),
        ("1GB", 1, "target is '1GB', which has the unit 'GB', .*; write 1GiB or 1G"),
        (1, 0, "most is 0; use a whole number from 1 on"),
    ],
)
def test_what_cannot_be_is_refused(target: float | str, most: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        BatchSizer(target, most=most)


def test_measures_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match=r"used_bytes is -1; use a whole number from 0 on"):
        BatchSizer(1).observe(1, -1)
    with pytest.raises(ValueError, match=r"sequences is 1\.5; use a whole number"):
        BatchSizer(1).observe(1.5, 1)  # type: ignore[arg-type]


def test_the_example_serves_all_and_stays_within_its_target() -> None:
    pytest.importorskip("torch", reason="torch is not installed here")
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("example: ok served=60 ")
