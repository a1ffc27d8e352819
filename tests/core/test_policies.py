"""What holds for every policy, and what each one is for."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onggi_core.index.ids import NOWHERE
from onggi_core.policy.names import FIXED, PolicyName, chooser_of
from onggi_core.policy.tier_policy import TierPolicy
from onggi_core.replay.simulate import Replay
from onggi_core.replay.trace import Prompt, Trace


@pytest.fixture(params=PolicyName, ids=lambda name: name.value)
def name(request: pytest.FixtureRequest) -> PolicyName:
    return request.param


NAMED = ("lru", "arc", "s3-fifo", "second-sight", "hazard")
"""The policies by one rule each; worth and its like combine two."""

chains = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=6), min_size=1, max_size=60)


def prompts(requests: list[list[int]]) -> list[Prompt]:
    """Prompts of a tree: a block is what it says and all before it."""
    trace = Trace()
    found = []
    for request in requests:
        ids, ident = [], 1
        for word in request:
            ident = ident * 10 + word
            ids.append(ident)
        found.append(trace.prompt(ids))
    return found


@given(requests=chains, blocks=st.integers(1, 12))
@settings(max_examples=25, deadline=None)
@pytest.mark.parametrize("name", PolicyName)
def test_a_tier_never_overflows_and_holds_no_child_without_its_parent(
    name: PolicyName, requests: list[list[int]], blocks: int
) -> None:
    tier = Replay(blocks, name)
    ranking = tier.policy.ranking
    for prompt in prompts(requests):
        tier.ask(prompt)
        assert len(ranking) <= blocks
        for block, parent in enumerate(ranking._parent):
            if block in ranking and parent != NOWHERE:
                assert parent in ranking


def test_everything_that_fits_is_kept(name: PolicyName) -> None:
    tier = Replay(100, name)
    once = prompts([[n, n, n] for n in range(10)])
    assert [tier.ask(prompt) for prompt in once] == [0] * 10
    assert [tier.ask(prompt) for prompt in once] == [3] * 10


def test_the_same_stream_gives_the_same_answers(name: PolicyName) -> None:
    stream = list(zipf(400))
    first, second = Replay(64, name), Replay(64, name)
    assert [first.ask(p) for p in stream] == [second.ask(p) for p in stream]


def test_a_question_asked_again_is_answered_the_same(name: PolicyName) -> None:
    tier = Replay(50, name)
    for prompt in zipf(300):
        tier.ask(prompt)
        ranking = tier.policy.ranking
        asked = [(ranking.coldest(0), ranking.rival(0, 0), ranking.rival(0, 3)) for _ in range(2)]
        assert asked[0] == asked[1]


def test_a_block_that_is_held_is_never_named(name: PolicyName) -> None:
    policy = TierPolicy(8, name)
    ranking = policy.ranking
    for block in range(8):
        ranking.insert(block, NOWHERE, 0, block)
        ranking.hold(block)
    assert ranking.coldest(0) is None
    assert ranking.rival(0, 7) is None
    ranking.release(5)
    assert ranking.coldest(0) == 5


def test_another_policy_takes_over_without_a_rebuild(name: PolicyName) -> None:
    """Each in turn ranks what the one before it left, and loses no block."""
    tier = Replay(40, name)
    ranking = tier.policy.ranking
    for turn, prompt in enumerate(zipf(400)):
        other = FIXED[turn % len(FIXED)]
        tier.ask(prompt)
        ranking.chooser = chooser_of(other, tier.policy.ghosts.reuse)
        assert len(ranking) <= 40
    while (block := ranking.coldest(0)) is not None:
        ranking.remove(block)
    assert len(ranking) == 0


def zipf(requests: int, seed: int = 1) -> Iterator[Prompt]:
    """Prompts of which few are asked for often, each of a shared beginning and a tail."""
    dice, trace = random.Random(seed), Trace()
    ranks = range(1, 2_000)
    weights = [1 / rank for rank in ranks]
    for rank in dice.choices(ranks, weights, k=requests):
        yield trace.prompt([rank * 100 + depth for depth in range(rank % 7 + 1)])


def loop(requests: int) -> Iterator[Prompt]:
    """The same prompts over and over, more of them than fit."""
    trace = Trace()
    for turn in range(requests):
        yield trace.prompt([turn % 150 * 100 + depth for depth in range(8)])


def scan(requests: int) -> Iterator[Prompt]:
    """Conversations that come back between long prompts that never do."""
    dice, trace = random.Random(2), Trace()
    for turn in range(requests):
        if turn % 3:
            yield trace.prompt([10_000 + turn * 100 + depth for depth in range(12)])
        else:
            talk = dice.randrange(80)
            yield trace.prompt([talk * 100 + depth for depth in range(6)])


def shift(requests: int) -> Iterator[Prompt]:
    """A loop that turns into prompts of a steep popularity: what was right is wrong after."""
    yield from loop(requests // 2)
    trace = Trace()
    for prompt in zipf(requests // 2):
        yield trace.prompt([1_000_000 + int.from_bytes(key[:6], "big") for key in prompt.keys])


def rates_of(stream: Iterator[Prompt], blocks: int) -> dict[PolicyName, float]:
    tiers = [Replay(blocks, each) for each in PolicyName]
    for prompt in stream:
        for tier in tiers:
            tier.ask(prompt)
    rates = {tier.policy.name: tier.hit_rate for tier in tiers}
    print({each.value: round(rate, 3) for each, rate in rates.items()})
    return rates


@pytest.mark.parametrize(
    ("stream", "requests", "blocks"), [(zipf, 2_500, 400), (loop, 4_000, 600), (scan, 2_500, 400)]
)
def test_adaptive_stays_by_the_best_fixed_policy(stream, requests: int, blocks: int) -> None:
    """On streams unlike the trace it was made on. Two points of leave: the streams are short, and
    a fixed policy is right from the first request on."""
    rates = rates_of(stream(requests), blocks)
    assert rates[PolicyName.ADAPTIVE] >= max(rates[each] for each in FIXED) - 0.02


def test_adaptive_changes_its_mind_when_the_stream_changes() -> None:
    """The policy it begins with is not the best one here, and it ends between the two."""
    rates = rates_of(shift(4_000), 600)
    begun, best = rates[PolicyName.WORTH], rates[PolicyName.WORTH_SECOND_SIGHT]
    assert begun < rates[PolicyName.ADAPTIVE] <= best
    assert rates[PolicyName.ADAPTIVE] > max(rates[PolicyName(name)] for name in NAMED)


def test_a_doorkeeper_lets_no_scan_through() -> None:
    rates = rates_of(scan(2_000), 480)
    assert rates[PolicyName.SECOND_SIGHT] > 2 * rates[PolicyName.LRU]
    assert rates[PolicyName.WORTH] > 2 * rates[PolicyName.LRU]


def test_a_loop_larger_than_the_tier_defeats_lru_alone() -> None:
    rates = rates_of(loop(1_500), 600)
    assert rates[PolicyName.LRU] == 0
    assert rates[PolicyName.WORTH] > 0.3
