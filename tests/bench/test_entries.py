"""What comes out of a bench, and what is kept of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench.entries import (
    Against,
    AtLeastPeerLess,
    AtMost,
    Entry,
    Row,
    Unit,
    read_result,
    write_result,
)

FACTS = {"date": "2026-01-02 03:04 UTC", "commit": "abc1234", "load_average": [0.5, 0.4, 0.3]}
RATE = Row("load_4mib", 12.0, Unit.GIB_PER_S, {"memcpy": 15.0, "other": 6.0}, {"gone": "no disk"})
TIME = Row("lookup", 50e-6, Unit.SECONDS, {"redis": 100e-6})


def entry(row: Row, *targets: Against | AtMost | AtLeastPeerLess) -> Entry:
    return Entry(row, targets, "python -m bench load", "As said.")


def test_more_is_better_in_a_ratio_whatever_the_unit() -> None:
    assert RATE.ratio("memcpy") == 0.8
    assert TIME.ratio("redis") == 2.0


def test_a_target_is_met_at_its_bound_and_not_below_it() -> None:
    assert entry(RATE, Against("memcpy", 0.8)).meets
    assert not entry(RATE, Against("memcpy", 0.81)).meets
    assert entry(TIME, AtMost(50e-6)).meets
    assert not entry(TIME, AtMost(49e-6)).meets
    share = Row("replay", 0.25, Unit.SHARE, {"best_fixed": 0.255})
    assert entry(share, AtLeastPeerLess("best_fixed", 0.01)).meets
    assert not entry(share, AtLeastPeerLess("best_fixed", 0.001)).meets


def test_all_targets_have_to_be_met() -> None:
    assert not entry(RATE, Against("memcpy", 0.5), Against("other", 3.0)).meets


def test_a_peer_that_was_not_measured_is_not_beaten() -> None:
    assert not entry(RATE, Against("gone", 0.1)).meets


def test_results_of_parts_gather_in_one_file(tmp_path: Path) -> None:
    path = tmp_path / "build" / "bench.json"
    write_result(path, [entry(RATE, Against("memcpy", 0.9))], FACTS)
    write_result(path, [entry(TIME)], {**FACTS, "date": "2026-01-03 00:00 UTC"})

    result = json.loads(path.read_text())

    assert result["date"] == "2026-01-03 00:00 UTC"
    assert result["entries"].keys() == {"load_4mib", "lookup"}
    assert result["entries"]["load_4mib"] == {
        "name": "load_4mib",
        "value": 12.0,
        "unit": "GiB/s",
        "peers": {"memcpy": 15.0, "other": 6.0},
        "ratios": {"memcpy": 0.8, "other": 2.0},
        "not_measured": {"gone": "no disk"},
        "target": ">= 0.9 of memcpy",
        "meets": False,
        "command": "python -m bench load",
        "date": "2026-01-02 03:04 UTC",
        "commit": "abc1234",
        "load_average": [0.5, 0.4, 0.3],
        "how": "As said.",
        "rows": [],
    }


def test_another_file_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    path.write_text("[]")

    with pytest.raises(ValueError, match="not a result of this bench"):
        write_result(path, [entry(TIME)], FACTS)

    assert path.read_text() == "[]"
    assert read_result(tmp_path / "none.json") == {"entries": {}}
