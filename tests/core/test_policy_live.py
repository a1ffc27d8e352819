"""The engine itself, step by step over a stream, does what the replay says it would."""

from __future__ import annotations

import random

import pytest
from policy_streams import Live, talks, trace_lines

from onggi_core.engine import watermark
from onggi_core.engine.following import Following
from onggi_core.page import READABLE, PageState
from onggi_core.policy.names import FIXED, PolicyName
from onggi_core.replay.simulate import replay
from onggi_core.replay.trace import Prompt, Trace

BLOCKS = 3_710
"""1.9 M tokens of the trace."""
ROOM = BLOCKS - BLOCKS // 32
"""What the watermark leaves of an arena for what is kept."""
TOLERANCE = 0.01
"""Of the hit rate. The engine counts uses where the replay counts prompts, and the ghosts see a
prompt after it was answered."""
BEHIND = 0.02
"""The same of a disk tier behind an arena, whose ranking is told of a block when it is written."""
WINDOW = 0.03
"""What an arena in front of the disk may add: it takes what the disk turns away."""

GUARDED = (PolicyName.SECOND_SIGHT, PolicyName.WORTH, PolicyName.WORTH_SECOND_SIGHT)
"""Those that turn new blocks away."""
BY_AGE = (PolicyName.HAZARD, PolicyName.WORTH, PolicyName.ADAPTIVE)


def conversations(requests: int) -> list[Prompt]:
    return list(Trace().read(trace_lines()[:requests]))


def candidates(name: PolicyName) -> tuple[PolicyName, ...]:
    return FIXED if name is PolicyName.ADAPTIVE else (name,)


def live_of(live: Live, prompts: list[Prompt]) -> float:
    for prompt in prompts:
        live.ask(prompt)
    return live.hit_rate


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", PolicyName, ids=lambda name: name.value)
def test_the_engine_hits_what_the_replay_of_its_policy_hits(name: PolicyName) -> None:
    prompts = conversations(2_000)
    live = live_of(Live(BLOCKS, candidates(name)), prompts)
    replayed = replay(prompts, ROOM, name).hit_rate
    print(f"{name.value}: live {live:.4f}, replay {replayed:.4f}")
    assert abs(live - replayed) < TOLERANCE


@pytest.mark.soak
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("name", PolicyName, ids=lambda name: name.value)
def test_on_the_whole_trace_too(name: PolicyName) -> None:
    prompts = conversations(1 << 20)
    live = live_of(Live(BLOCKS, candidates(name)), prompts)
    replayed = replay(prompts, ROOM, name).hit_rate
    print(f"{name.value}: live {live:.4f}, replay {replayed:.4f}")
    assert abs(live - replayed) < TOLERANCE


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_room_kept_ready_is_not_open_to_what_the_policy_refuses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Prints what second sight hits, and what it hits where that room takes all that comes."""
    prompts, doorkeeper = conversations(2_000), (PolicyName.SECOND_SIGHT,)
    right = live_of(Live(BLOCKS, doorkeeper), prompts)
    monkeypatch.setattr(watermark, "reserve_bytes", lambda *_: 0)
    wrong = live_of(Live(BLOCKS, doorkeeper), prompts)
    print(f"second-sight: live {right:.4f}, with the reserve open to all {wrong:.4f}")
    assert right > wrong + 0.02


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_an_age_in_uses_is_not_an_age_in_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prints what `hazard` hits, and what it hits where nobody divides by the pace."""
    prompts, by_age = conversations(2_000), (PolicyName.HAZARD,)
    right = live_of(Live(BLOCKS, by_age), prompts)
    monkeypatch.setattr(Following, "_pace", lambda *_: None)
    wrong = live_of(Live(BLOCKS, by_age), prompts)
    print(f"hazard: live {right:.4f}, with ages in uses {wrong:.4f}")
    assert right > wrong


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [PolicyName.LRU, *GUARDED], ids=lambda name: name.value)
def test_a_disk_behind_a_small_arena_hits_what_the_replay_of_its_size_hits(
    name: PolicyName,
) -> None:
    prompts = conversations(1_200)
    engine = Live(BLOCKS, candidates(name), parts=10)
    live, replayed = live_of(engine, prompts), replay(prompts, BLOCKS, name).hit_rate
    stats = engine.shell.stats()
    print(f"{name.value}: live {live:.4f}, replay {replayed:.4f}")
    assert -BEHIND < live - replayed < WINDOW
    assert (stats["unadmitted_disk_blocks"] > 0) == (name in GUARDED)
    assert stats["unadmitted_host_blocks"] == 0


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_behind_a_small_arena_worth_comes_to_what_its_replay_hits() -> None:
    """Prints both along the stream: it begins below the replay and ends above."""
    prompts, worth = conversations(3_600), PolicyName.WORTH
    engine = Live(BLOCKS, (worth,), parts=10)
    behind = []
    for until in range(600, 3_601, 600):
        live = live_of(engine, prompts[until - 600 : until])
        replayed = replay(prompts[:until], BLOCKS, worth).hit_rate
        print(f"{until} prompts: live {live:.4f}, replay {replayed:.4f}")
        behind.append(replayed - live)
    assert behind[0] > behind[-1]
    assert abs(behind[-1]) < TOLERANCE


def test_without_a_trace_the_engine_does_as_the_replay_does() -> None:
    prompts = talks(2_500)
    engine = Live(512)
    live = live_of(engine, prompts)
    replayed = replay(prompts, 512 - 512 // 32, PolicyName.ADAPTIVE).hit_rate
    print(f"live {live:.4f} as {engine.shell.stats()['policy']}, replay {replayed:.4f}")
    assert abs(live - replayed) < 2 * TOLERANCE


@pytest.mark.parametrize("parts", [1, 8], ids=["arena", "disk"])
@pytest.mark.parametrize("name", PolicyName, ids=lambda name: name.value)
def test_a_scan_of_keys_that_never_come_again_leaves_the_working_set(
    name: PolicyName, parts: int
) -> None:
    """LRU does not promise it, and what goes by the age at which blocks came back keeps most. The
    scan is as long as the tier."""
    dice, trace = random.Random(3), Trace()
    work = [trace.prompt([talk * 100 + depth for depth in range(10)]) for talk in range(30)]
    scan = [trace.prompt([9_000 + n * 100 + depth for depth in range(12)]) for n in range(45)]
    live = Live(512, candidates(name), parts=parts)
    for _ in range(600):
        live.ask(dice.choice(work))
    for prompt in scan:
        assert live.ask(prompt) == 0
    kept = sum(live.ask(prompt) for prompt in work)
    print(f"{name.value}: {kept} of {len(work) * 10}")
    part = kept / (len(work) * 10)
    if name is PolicyName.LRU:
        assert part < 0.2
    else:
        assert part > (0.5 if name in BY_AGE else 0.9)


@pytest.mark.parametrize("name", GUARDED, ids=lambda name: name.value)
def test_what_the_disk_turns_away_breaks_no_chain_and_is_offered_again(name: PolicyName) -> None:
    live = Live(256, (name,), parts=8)
    for prompt in talks(600):
        live.ask(prompt)
    state = live.shell.engine._state
    index, on_disk = state.blocks, state.disk.pages.states
    held = [block for block in range(len(on_disk)) if on_disk[block] in READABLE]
    assert len(held) > 200
    for block in held:
        above = index.parent[block]
        assert above == -1 or on_disk[above] in READABLE
    assert live.shell.stats()["unadmitted_disk_blocks"] > 0
    away = [
        block
        for block in range(len(on_disk))
        if state.host.pages.states[block] == PageState.SEALED and on_disk[block] == PageState.FREE
    ]
    assert away, "the arena still has what the disk turned away"
    chains = {block: keys_to(live, block) for block in away}
    block, keys = max(chains.items(), key=lambda each: len(each[1]))
    for _ in range(8):
        reply = live.shell.load(live.client, keys)
        assert reply is not None
        assert len(reply.offsets[0]) == len(keys)
        live.shell.finish(reply.ticket)
        live.settle()
    assert on_disk[block] in READABLE


def keys_to(live: Live, block: int) -> list[bytes]:
    index = live.shell.engine._state.blocks
    keys: list[bytes] = []
    while block != -1:
        keys[:0] = index.keys_of((block,))
        block = index.parent[block]
    return keys
