"""`onggi replay`: a trace from a file, replayed in several processes, as a table and a picture."""

from __future__ import annotations

import argparse
import dataclasses
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
from onggi_core.quantity import QuantityError, parse_size
from onggi_core.replay.belady import belady
from onggi_core.replay.picture import picture
from onggi_core.replay.report import LIMIT, Report
from onggi_core.replay.simulate import replay
from onggi_core.replay.table import table
from onggi_core.replay.trace import Prompt, Trace, TraceRefused

EXIT_REFUSED: Final = 2
PARTS: Final = (100, 30, 10, 3, 1)
"""Without --sizes: a hundredth of the trace's different blocks, and so on up to all of them, which
find all that there is to find."""
POLICIES: Final = tuple(name.value for name in PolicyName)
BLOCK_TOKENS: Final = 512
"""Of the traces that Mooncake's project publishes."""
DESCRIPTION: Final = """\
Replay recorded requests over sizes of a cache, and print the share of their blocks that each policy
(what stays, what goes) would have found."""
EPILOG: Final = """\
examples:
  onggi replay trace.jsonl --out rates.svg
  onggi replay trace.jsonl --block-tokens 16 --token-bytes 128KiB --sizes 4GiB,16GiB,64GiB

A request of the trace is a line of JSON such as
  {"timestamp": 27482, "hash_ids": [46, 47, 48]}
hash_ids: ids of the prompt's blocks, in order; the same id is the same block and all before it.
timestamp: milliseconds from any beginning, never less than the line before's; only the order
counts. Other fields are ignored. docs/policies.md says how to record one from a vLLM of yours, and
where there are public ones. Without any, `onggi doctor` says the same of a running agent's own
requests."""
TOKENS_MAX: Final = 10**12
"""Of a size: a hundred times what the largest nodes hold of the smallest models."""
TOKEN_BYTES_MAX: Final = 1 << 30
"""Of one token: a thousand times what the largest models take."""
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
        metavar="SIZES",
        help="of the cache: tokens (4.7M), or bytes (16GiB) with --token-bytes; default: a 100th, a"
        " 30th, a 10th, a third and all of the trace's different blocks",
    )
    parser.add_argument(
        "--token-bytes",
        metavar="SIZE",
        help="what a token takes in the KV cache over all layers and ranks, such as 128KiB: 2 x"
        " layers x KV heads x head size x bytes of a value, for most models",
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
        help="tokens of a block, as the trace was recorded: your engine's if it is yours (vLLM:"
        f" --block-size); default: {BLOCK_TOKENS}, of the public ones",
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
        token_bytes = _token_bytes(parsed.token_bytes)
        tokens = () if parsed.sizes is None else sizes_of(parsed.sizes, block_tokens, token_bytes)
        names = names_of(parsed.policies)
        if parsed.out is not None:
            _check_out(parsed.out)
        found = report_of(parsed.trace, tokens, names, block_tokens, jobs)
        report = dataclasses.replace(found, token_bytes=token_bytes)
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


def _token_bytes(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        token_bytes = parse_size(text)
    except QuantityError as refused:
        raise ValueError(f"--token-bytes: {refused}") from None
    if not 1 <= token_bytes <= TOKEN_BYTES_MAX:
        right = "should be what one token takes, at least a byte and at most 1GiB"
        raise ValueError(f"--token-bytes is {text[:40]!r}, {right}")
    return token_bytes


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


def sizes_of(text: str, block_tokens: int, token_bytes: int | None = None) -> tuple[int, ...]:
    """`0.94M,16GiB` as tokens. Raises ValueError with a sentence."""
    found = []
    for word in map(str.strip, text.split(",")):
        tokens = _tokens(word, token_bytes)
        if not block_tokens <= tokens <= TOKENS_MAX:
            right = f"should be at least a block's {block_tokens} tokens and at most {TOKENS_MAX}"
            which = f", which is {tokens} tokens" if word.endswith("iB") else ""
            raise ValueError(f"--sizes has {word!r}{which}, {right}")
        found.append(tokens)
    return tuple(sorted(set(found)))


def _tokens(word: str, token_bytes: int | None) -> int:
    if re.fullmatch(r"[0-9]{1,18}(\.[0-9]{1,18})?[KMGT]iB", word):
        if token_bytes is None:
            right = "say --token-bytes too, what one token takes of them"
            raise ValueError(
                f"--sizes has {word!r}, which are bytes; {right}, or write tokens: 4.7M"
            )
        return parse_size(word) // token_bytes
    match = re.fullmatch(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)([KMG]?)", word.upper())
    if match is None:
        right = "should be tokens such as 4.7M: a number, and K, M or G for powers of 1000"
        raise ValueError(f"--sizes has {word[:40]!r}, {right}; or bytes such as 16GiB")
    return round(float(match[1]) * _UNITS[match[2]])


def _parts(distinct: int, block_tokens: int) -> tuple[int, ...]:
    return tuple(sorted({max(1, distinct // part) * block_tokens for part in PARTS}))


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
    """tokens: the sizes; none: parts of what the trace has. Raises TraceRefused, or OSError where
    the file cannot be read."""
    prompts, distinct = _read(trace)
    tokens = tokens or _parts(distinct, block_tokens)
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
