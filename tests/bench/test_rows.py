"""What comes out of a bench."""

from __future__ import annotations

import json
from pathlib import Path

from bench.rows import Row, Unit, write_rows
from bench.table import shown, table

RATE = Row("load/host/1MiB", 12.0, Unit.GIB_PER_S, "memcpy, 1 thread", 15.0)
TIME = Row("lookup/p50", 50e-6, Unit.SECONDS, "redis", 100e-6)
ALONE = Row("lookup/p99", 0.0012, Unit.SECONDS, "no redis here", None)


def test_more_is_better_in_a_ratio_whatever_the_unit() -> None:
    assert RATE.ratio == 0.8
    assert TIME.ratio == 2.0
    assert ALONE.ratio is None


def test_the_file_is_a_list_of_plain_objects(tmp_path: Path) -> None:
    path = tmp_path / "build" / "bench.json"

    write_rows([RATE, ALONE], path)

    assert json.loads(path.read_text()) == [
        {
            "name": "load/host/1MiB",
            "value": 12.0,
            "unit": "GiB/s",
            "peer": "memcpy, 1 thread",
            "peer_value": 15.0,
            "ratio": 0.8,
        },
        {
            "name": "lookup/p99",
            "value": 0.0012,
            "unit": "s",
            "peer": "no redis here",
            "peer_value": None,
            "ratio": None,
        },
    ]


def test_values_are_shown_in_units_a_person_reads() -> None:
    assert shown(14.123, Unit.GIB_PER_S) == "14.12 GiB/s"
    assert shown(83.14e-6, Unit.SECONDS) == "83.1 us"
    assert shown(0.00124, Unit.SECONDS) == "1.24 ms"
    assert shown(2.5, Unit.SECONDS) == "2.50 s"


def test_a_table_has_a_line_a_row_and_none_without_rows() -> None:
    lines = table("Title", [RATE, ALONE]).splitlines()

    assert lines[:2] == ["Title", "-----"]
    assert lines[3].split() == (
        ["load/host/1MiB", "12.00", "GiB/s", "15.00", "GiB/s", "memcpy,", "1", "thread", "0.80"]
    )
    assert lines[4].split() == ["lookup/p99", "1.20", "ms", "-", "no", "redis", "here", "-"]
    assert table("Title", []) == ""
