"""`onggi replay`: a trace from a file, replayed in several processes, as a table and a picture."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from onggi_core.policy.names import PolicyName
from onggi_core.replay.belady import belady
from onggi_core.replay.picture import picture
from onggi_core.replay.report import LIMIT, Report
from onggi_core.replay.simulate import replay
from onggi_core.replay.table import table
from onggi_core.replay.trace import Prompt, Trace, TraceRefused

EXIT_REFUSED: Final = 2
SIZES: Final = "0.94M,1.9M,4.7M,9.4M,18.7M"
POLICIES: Final = tuple(name.value for name in PolicyName)
BLOCK_TOKENS: Final = 512
"""Of the public traces that this reads."""
DESCRIPTION: Final = """\
Replay recorded requests over sizes of a cache, and print the share of their blocks that each policy
(what stays, what goes) would have found."""
EPILOG: Final = """\
example:
  onggi replay trace.jsonl --sizes 1M,4M,16M --out rates.svg

A request of the trace is a line of JSON such as
  {"timestamp": 27482, "hash_ids": [46, 47, 48]}
hash_ids: ids of the prompt's blocks, in order; the same id is the same block and all before it.
timestamp: milliseconds from any beginning, never less than the line before's. Other fields are
ignored."""
TOKENS_MAX: Final = 10**12
"""Of a size: a hundred times what the largest nodes hold of the smallest models."""
JOBS_MAX: Final = 1024
TELL_EVERY_S: Final = 5.0
"""How far it is. A replay that is over sooner says nothing but its table."""
_UNITS: Final = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "trace", metavar="TRACE", type=Path, help="a file of requests, one a line, as below"
    )
    parser.add_argument(
        "--sizes",
        metavar="TOKENS",
        default=SIZES,
        help=f"of the cache, in tokens; default: {SIZES}",
    )
    parser.add_argument(
        "--policies",
        metavar="NAMES",
        default=",".join((LIMIT, *POLICIES)),
        help=f"any of {LIMIT} (the best there could be), {', '.join(POLICIES)}; default: all",
    )
    parser.add_argument(
        "--block-tokens",
        metavar="N",
        default=str(BLOCK_TOKENS),
        help=f"tokens of a block; default: {BLOCK_TOKENS}",
    )
    parser.add_argument("--out", metavar="FILE.svg", type=Path, help="draw a picture there")
    parser.add_argument("--json", action="store_true", help="print JSON in place of the table")
    parser.add_argument(
        "--jobs",
        metavar="N",
        default=str(os.cpu_count() or 1),
        help="processes at once; default: one a core",
    )


def run(parsed: argparse.Namespace) -> int:
    try:
        block_tokens = _whole("--block-tokens", parsed.block_tokens, TOKENS_MAX)
        jobs = _whole("--jobs", parsed.jobs, JOBS_MAX)
        tokens = sizes_of(parsed.sizes, block_tokens)
        names = names_of(parsed.policies)
        if parsed.out is not None:
            _check_out(parsed.out)
        report = report_of(parsed.trace, tokens, names, block_tokens, jobs)
        if parsed.out is not None:
            parsed.out.write_text(picture(report, f"Hit rate by size: {parsed.trace.stem}"))
    except TraceRefused as refused:
        print(f"onggi replay: {parsed.trace}: {refused}", file=sys.stderr)
        return EXIT_REFUSED
    except OSError as fault:
        print(f"onggi replay: {fault.filename or parsed.trace}: {fault.strerror}", file=sys.stderr)
        return EXIT_REFUSED
    except ValueError as refused:
        print(f"onggi replay: {refused}", file=sys.stderr)
        return EXIT_REFUSED
    print(json.dumps(report.as_json(), indent=1) + "\n" if parsed.json else table(report), end="")
    return 0


def _whole(flag: str, text: str, most: int) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text) or not 1 <= int(text) <= most:
        raise ValueError(f"{flag} is {text[:40]!r}, should be a whole number from 1 to {most}")
    return int(text)


def _check_out(out: Path) -> None:
    """Before the work, which may take minutes."""
    if not out.parent.is_dir():
        raise ValueError(f"--out is {out}, should be in a folder that exists")
    if out.is_dir():
        raise ValueError(f"--out is {out}, a folder; should be a file, such as {out / 'rates.svg'}")
    if out.suffix.lower() != ".svg":
        right = out.with_suffix(".svg")
        raise ValueError(f"--out is {out}, should end in .svg, which is what is drawn: {right}")
    if not os.access(out if out.exists() else out.parent, os.W_OK):
        raise ValueError(f"--out is {out}, should be where uid {os.geteuid()} may write")


def sizes_of(text: str, block_tokens: int) -> tuple[int, ...]:
    """`0.94M,1.9M` as tokens. Raises ValueError with a sentence."""
    found = []
    for word in map(str.strip, text.split(",")):
        match = re.fullmatch(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)([KMG]?)", word.upper())
        if match is None:
            right = "should be tokens such as 4.7M: a number, and K, M or G for powers of 1000"
            raise ValueError(f"--sizes has {word[:40]!r}, {right}")
        tokens = round(float(match[1]) * _UNITS[match[2]])
        if not block_tokens <= tokens <= TOKENS_MAX:
            right = f"should be at least a block's {block_tokens} tokens and at most {TOKENS_MAX}"
            raise ValueError(f"--sizes has {word!r}, {right}")
        found.append(tokens)
    return tuple(sorted(set(found)))


def names_of(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    for name in names:
        if name != LIMIT and name not in POLICIES:
            raise ValueError(
                f"--policies has {name!r}, should be of {LIMIT}, {', '.join(POLICIES)}"
            )
    return names


def report_of(
    trace: Path, tokens: Sequence[int], names: Sequence[str], block_tokens: int, jobs: int
) -> Report:
    """Raises TraceRefused, or OSError where the file cannot be read."""
    prompts, distinct = _read(trace)
    work = [(name, size // block_tokens) for name in names for size in tokens]
    with ProcessPoolExecutor(
        max(1, min(jobs, len(work))), get_context("spawn"), _begin, (trace,)
    ) as pool:
        runs = [pool.submit(_hit_rate, one) for one in work]
        _tell_until_done(runs)
        rates = [run.result() for run in runs]
    by_name = {
        name: rates[at * len(tokens) : (at + 1) * len(tokens)] for at, name in enumerate(names)
    }
    asked = sum(len(prompt.blocks) for prompt in prompts)
    return Report(len(prompts), asked, distinct, block_tokens, tuple(tokens), by_name)


def _tell_until_done(runs: Sequence[Future[float]]) -> None:
    """Beside the table, which goes where it can be kept. Ends at the first run that failed."""
    began_s = time.monotonic()
    while True:
        done, left = wait(runs, TELL_EVERY_S, FIRST_EXCEPTION)
        if not left or any(run.exception() for run in done):
            for run in left:
                run.cancel()
            return
        passed = (
            f"{len(done)} of {len(runs)} runs are done after {time.monotonic() - began_s:.0f} s"
        )
        print(f"onggi replay: {passed}", file=sys.stderr, flush=True)


def _read(path: Path) -> tuple[list[Prompt], int]:
    trace = Trace()
    with path.open(encoding="utf-8", errors="replace") as lines:
        prompts = list(trace.read(lines))
    if not prompts:
        raise TraceRefused(1, "the trace", "", "at least one request")
    return prompts, trace.distinct


_PROMPTS: Final[list[Prompt]] = []
"""In a worker process: the trace, read once."""


def _begin(path: Path) -> None:
    _PROMPTS.extend(_read(path)[0])


def _hit_rate(work: tuple[str, int]) -> float:
    name, blocks = work
    if name == LIMIT:
        return belady(_PROMPTS, blocks)
    return replay(_PROMPTS, blocks, PolicyName(name)).hit_rate
