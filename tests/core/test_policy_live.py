"""The engine itself, step by step over a stream, does what the replay says it would."""

from __future__ import annotations

import random

from shell import Shell, spec

from onggi_core.engine.events import Tick
from onggi_core.identity import ROOT
from onggi_core.policy.names import PolicyName
from onggi_core.replay.simulate import Replay
from onggi_core.replay.trace import Prompt, Trace

A = spec("a")
BLOCKS = 512


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


def live_hit_rate(prompts: list[Prompt]) -> tuple[float, str]:
    shell = Shell(extents=1, segments=0, pages_each=BLOCKS)
    client = shell.open(A)
    hits = asked = 0
    for turn, prompt in enumerate(prompts):
        keys = list(prompt.keys)
        reply = shell.load(client, keys)
        assert reply is not None
        run = len(reply.offsets[0])
        if reply.ticket:
            shell.finish(reply.ticket)
        hits, asked = hits + run, asked + len(keys)
        if run < len(keys):
            shell.store(client, keys[run:], keys[run - 1] if run else ROOT)
        if turn % 10 == 0:
            shell.step(Tick())
    return hits / asked, str(shell.engine.stats()["policy"])


def test_the_engine_hits_what_the_replay_of_its_policy_hits() -> None:
    prompts = talks(3_000)
    live, following = live_hit_rate(prompts)
    rates = {}
    for name in (PolicyName.LRU, PolicyName.HAZARD):
        tier = Replay(BLOCKS, name)
        for prompt in prompts:
            tier.ask(prompt)
        rates[name] = tier.hit_rate
    print(f"live {live:.3f} as {following};", {n.value: round(r, 3) for n, r in rates.items()})
    assert following == "hazard"
    assert abs(live - rates[PolicyName.HAZARD]) < 0.02
