"""Runs everything, prints tables, writes build/bench.json."""

from __future__ import annotations

import argparse
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
from bench.sizes import FULL, QUICK
from bench.table import table

RESULT: Final = Path(__file__).parents[1] / "build" / "bench.json"


def main() -> int:
    options = _options()
    sizes = QUICK if options.quick else FULL
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
            ("Blocks to and from the agent's memory", lambda: copies(server, sizes)),
            ("Finding 128 blocks", lambda: lookups(server, sizes)),
            ("Blocks from disk after a restart", lambda: disk_loads(sizes)),
        )
        for title, measured in parts:
            some = measured()
            print(table(title, some), flush=True)
            rows += some
    write_rows(rows, options.result)
    print(f"{len(rows)} rows in {options.result}, {time.monotonic() - begin_s:.0f} s")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="see that it works; no figures")
    parser.add_argument("--result", type=Path, default=RESULT, help="where the rows go, as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("bench: interrupted")
