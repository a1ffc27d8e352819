"""Streams of prompts for policies, and an engine that is asked them one after the other."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from shell import Shell, spec

from onggi_core.engine.engine import Engine
from onggi_core.engine.events import Idle, Tick
from onggi_core.identity import ROOT
from onggi_core.policy.names import FIXED, PolicyName
from onggi_core.replay.trace import Prompt, Trace
from onggi_core.wire.replies import LoadPrepared

WAIT_MS = 1_000


def trace_lines() -> list[str]:
    """Of the conversation trace, in ../shared/traces beside the repository, or in ONGGI_TRACES."""
    name = "mooncake_conversation.jsonl"
    places = [folder.parent / "shared/traces" for folder in Path(__file__).resolve().parents]
    for folder in (Path(os.environ.get("ONGGI_TRACES", "/nowhere")), *places):
        if (folder / name).exists():
            return (folder / name).read_text().splitlines()
    pytest.skip(f"{name} is not in ../shared/traces beside the repository, nor in ONGGI_TRACES")


def talks(requests: int) -> list[Prompt]:
    """Conversations that grow turn by turn, each a few times and then never again, among prompts
    that come once."""
    dice, trace = random.Random(5), Trace()
    open_talks: list[list[int]] = []
    found, fresh = [], 1
    for _ in range(requests):
        if len(open_talks) < 30 or dice.random() < 0.02:
            open_talks.append([0])
        talk = dice.choice(open_talks)
        once = dice.random() < 0.6
        ids = [0] if once else talk
        fresh += 6
        prompt = [*ids, *range(fresh, fresh + 6)]
        if not once:
            talk[:] = prompt
            if len(talk) > 40:
                open_talks.remove(talk)
        found.append(trace.prompt(prompt))
    return found


class Live:
    """An engine with `blocks` blocks of room in its larger tier, under one policy or several; a
    hit is a block that it had for a load. parts: with more than one the larger tier is the disk,
    of as many parts as the arena is one of."""

    def __init__(
        self, blocks: int, policies: Sequence[PolicyName] = FIXED, *, parts: int = 1
    ) -> None:
        segments = parts if parts > 1 else 0
        self.shell = Shell(extents=1, segments=segments, pages_each=-(-blocks // parts), touched=0)
        engine = Engine(self.shell.engine._state.facts, candidates=policies)
        self.shell.engine = engine
        self.shell.touching[0] = None
        self.shell.touch(0)
        self.client = self.shell.open(spec("a"))
        self.asked = self.hits = 0

    @property
    def hit_rate(self) -> float:
        return self.hits / self.asked

    def ask(self, prompt: Prompt) -> int:
        """One request: how many of its blocks were hits. The others are stored."""
        shell, keys = self.shell, list(prompt.keys)
        reply = shell.load(self.client, keys, WAIT_MS)
        if reply is None:
            shell.end_jobs()
            reply = shell.replies[shell.last_request]
        assert isinstance(reply, LoadPrepared)
        run = len(reply.offsets[0])
        if reply.ticket:
            shell.finish(reply.ticket)
        if run < len(keys):
            shell.store(self.client, keys[run:], keys[run - 1] if run else ROOT)
        self.settle()
        self.asked += len(keys)
        self.hits += run
        return run

    def settle(self) -> None:
        self.shell.step(Tick())
        self.shell.end_jobs()
        while self.shell.engine.curious:
            self.shell.step(Idle())
