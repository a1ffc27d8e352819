"""What counts as a demo that worked."""

from __future__ import annotations

from dataclasses import replace

import pytest
from report import Model, Run, last_line, problems

MODEL = Model(
    prompt_tokens=600, block_tokens=256, page_bytes=1024, reusable_blocks=2, parameters=1000
)
COLD = Run("cold", 8.0, 0.0, 0, 0, 2, (1, 2, 3), "aa")
HOST = Run("host", 0.4, 0.1, 2, 0, 0, (1, 2, 3), "aa")
DISK = Run("disk", 0.8, 0.3, 2, 2, 0, (1, 2, 3), "aa")


def test_three_equal_runs_with_blocks_from_where_they_should_come_are_right() -> None:
    assert problems(COLD, HOST, DISK, MODEL) == []
    assert last_line(COLD, HOST, DISK) == (
        "demo: ok identical=3/3 host_speedup=20.0 disk_speedup=10.0"
    )


def test_a_warm_run_that_was_slower_is_no_problem() -> None:
    assert problems(COLD, replace(HOST, first_token_s=9.0), DISK, MODEL) == []


@pytest.mark.parametrize(
    ("host", "disk", "words"),
    [
        (replace(HOST, tokens=(1, 2, 4)), DISK, "host memory gave other tokens"),
        (replace(HOST, logits="bb"), DISK, "host memory gave other logits"),
        (HOST, replace(DISK, tokens=(9, 2, 3)), "disk gave other tokens"),
        (HOST, replace(DISK, logits="bb"), "disk gave other logits"),
        (replace(HOST, reused_blocks=1), DISK, "1 of 2 blocks came from host"),
        (replace(HOST, disk_blocks=2), DISK, "2 blocks of the host run came from disk"),
        (HOST, replace(DISK, disk_blocks=0), "0 of 2 blocks came from disk"),
    ],
)
def test_each_thing_that_is_wrong_is_named(host: Run, disk: Run, words: str) -> None:
    wrong = problems(COLD, host, disk, MODEL)

    assert len(wrong) == 1
    assert words in wrong[0]
