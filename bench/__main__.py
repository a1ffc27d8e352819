"""Measures what is asked for, prints tables, and keeps the figures in build/bench.json."""

from __future__ import annotations

import argparse
import dataclasses
import signal
import sys
import time
from pathlib import Path
from typing import Final

from bench.entries import Entry, read_result, write_result
from bench.machine import ROOT, described, facts
from bench.parts import PARTS
from bench.peers.venvs import LISTS, CannotInstall, install_packages, python_of
from bench.report import table, write_page
from bench.sizes import FULL, QUICK, Sizes

RESULT: Final = ROOT / "build" / "bench.json"
QUICK_RESULT: Final = ROOT / "build" / "bench-quick.json"
PEERS: Final = "peers"
REPORT: Final = "report"


def main() -> int:
    options = _options()
    sizes = dataclasses.replace(QUICK if options.quick else FULL, peers=not options.no_peers)
    if options.minutes is not None:
        sizes = dataclasses.replace(sizes, scale_s=options.minutes * 60)
    if options.library_scale is not None:
        sizes = dataclasses.replace(sizes, library_scale=options.library_scale)
    result = options.result or (QUICK_RESULT if options.quick else RESULT)
    names = options.parts or [PEERS, *PARTS]
    if names == [REPORT]:
        if not result.is_file():
            sys.exit(f"bench: there is no {result} yet; measure something first")
        write_page(read_result(result))
        return 0
    print(f"{described(facts())}\n", flush=True)
    if PEERS in names and sizes.peers:
        _install()
    failed = False
    for name in names:
        if name in PARTS:
            failed = not _measure(name, sizes, result) or failed
    return 1 if failed else 0


def _measure(name: str, sizes: Sizes, result: Path) -> bool:
    """One part. A part that fails is reported and does not take the others with it."""
    begin_s, before = time.monotonic(), facts()
    try:
        entries: list[Entry] = PARTS[name](sizes)
    except Exception as error:  # noqa: BLE001 - said, and in the exit code
        print(f"{name} could not be measured: {type(error).__name__}: {error}\n", flush=True)
        return False
    took_s = time.monotonic() - begin_s
    seconds = {**read_result(result).get("seconds", {}), name: round(took_s, 1)}
    write_result(result, entries, {**before, "seconds": seconds})
    print(table([entry.as_json("") for entry in entries], judged=not sizes.quick))
    print(f"{name}: {took_s:.0f} s, in {result}\n", flush=True)
    return True


def _install() -> None:
    """Peers that cannot be had are said here and again in every row they are missing from."""
    if missing := install_packages():
        print(f"without Debian packages: {missing}")
    for peer in (*LISTS, "engine"):
        try:
            python_of(peer)
        except CannotInstall as why:
            print(f"without {peer}: {why}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    known = (*PARTS, PEERS, REPORT)
    parser.add_argument(
        "parts",
        nargs="*",
        metavar="PART",
        choices=[*known, []],
        help=f"{', '.join(PARTS)}; peers installs what they are held against; report writes "
        "docs/performance.md and README.md; everything but the report if none is named",
    )
    parser.add_argument("--quick", action="store_true", help="see that it works; no figures")
    parser.add_argument("--no-peers", action="store_true", help="leave out what is to be installed")
    parser.add_argument(
        "--minutes", type=float, help="for how long scale watches the controller; 30 for a leak"
    )
    parser.add_argument(
        "--library-scale",
        type=int,
        help="measure 1/N of the bytes of the library's contexts: 1 on a GPU, else a multiple of "
        "32, which is the default",
    )
    parser.add_argument("--result", type=Path, help="where the figures go, as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that nothing is left behind
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("bench: interrupted")
