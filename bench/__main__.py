"""Runs everything, prints tables, writes build/bench.json."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.machine import describe
from bench.micro.copies import copies
from bench.micro.disk import disk_loads
from bench.micro.lookup import lookups
from bench.peers.redis import RedisServer, why_absent
from bench.rows import Row, write_rows
from bench.table import table

RESULT: Final = Path(__file__).parents[1] / "build" / "bench.json"


def main() -> int:
    begin_s = time.monotonic()
    print(describe())
    print("ratio: how many times better than the peer; more is better\n", flush=True)
    rows: list[Row] = []
    with ExitStack() as stack:
        absent = why_absent()
        if absent:
            print(f"without Redis: {absent}\n")
        server = stack.enter_context(RedisServer()) if not absent else None
        parts: tuple[tuple[str, Callable[[], list[Row]]], ...] = (
            ("Blocks to and from the agent's memory", lambda: copies(server)),
            ("Finding 128 blocks", lambda: lookups(server)),
            ("Blocks from disk after a restart", disk_loads),
        )
        for title, measured in parts:
            some = measured()
            print(table(title, some), flush=True)
            rows += some
    write_rows(rows, RESULT)
    print(f"{len(rows)} rows in {RESULT}, {time.monotonic() - begin_s:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
