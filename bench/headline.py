"""The few figures that a newcomer asks for, for the README: out of the same results as the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from bench.entries import shown


class Headline(NamedTuple):
    """figure: the entry's name. others: a peer of it, and what it is called here."""

    figure: str
    words: str
    others: Mapping[str, str]


HEADLINES: Final = (
    Headline(
        "warm_ttft",
        "first token of a prompt seen before, in vLLM",
        {"mooncake": "Mooncake", "lmcache_mp": "LMCache", "recompute": "computed again"},
    ),
    Headline(
        "load_16mib",
        "16 MiB of blocks into the engine",
        {"mooncake": "Mooncake", "lmcache_mp": "LMCache", "memcpy": "one thread's memcpy"},
    ),
    Headline(
        "store_16mib",
        "16 MiB of blocks out of it",
        {"mooncake": "Mooncake", "lmcache_mp": "LMCache", "memcpy": "one thread's memcpy"},
    ),
    Headline(
        "lookup_128_p50",
        "128 blocks looked up, four clients and a busy disk",
        {"redis": "Redis"},
    ),
    Headline("disk_read", "blocks back from disk, verified", {"fio": "fio"}),
    Headline("readopt_1m_s", "a restart that finds a million blocks on disk", {}),
)


def headlines(result: Mapping[str, Any]) -> str:
    """A Markdown table; figures that were not measured have no line."""
    entries: Mapping[str, Mapping[str, Any]] = result["entries"]
    lines = ["| | Onggi | others in the same run |", "|---|---|---|"]
    for headline in HEADLINES:
        if headline.figure in entries:
            entry = entries[headline.figure]
            mine = shown(entry["value"], entry["unit"])
            lines.append(f"| {headline.words} | {mine} | {_others(headline, entry)} |")
    return "\n".join(lines)


def _others(headline: Headline, entry: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{words} {shown(entry['peers'][peer], entry['unit'])}"
        for peer, words in headline.others.items()
        if peer in entry["peers"]
    )
