"""What the engine makes of the ghosts: a policy to follow, a curve, and what a pool would save."""

from __future__ import annotations

from shell import Shell, chain, spec

from onggi_core.engine.events import BudgetSet, Idle, ModeSet, Tick
from onggi_core.engine.following import WAITING_MAX
from onggi_core.policy.ghosts import Ghosts
from onggi_core.policy.names import FIXED, PolicyName
from onggi_core.wire.replies import Mode, Slot
from onggi_core.wire.requests import Lookup, Prefetch

A = spec("a")
LONG = tuple(chain("long", 4096))


def observing() -> tuple[Shell, int]:
    shell = Shell(extents=1, segments=0, pages_each=8192)
    shell.step(ModeSet(Mode.OBSERVE))
    return shell, shell.open(A)


def load(shell: Shell, client: int, keys: tuple[bytes, ...] = LONG) -> None:
    shell.load(client, list(keys))
    idle(shell)


def idle(shell: Shell) -> int:
    """Until the ghosts have seen every prompt; in how many parts they did."""
    parts = 0
    while shell.engine.curious:
        parts += 1
        assert shell.step(Idle()) == []
    return parts


def test_a_pool_that_observes_stores_nothing_and_says_what_it_would_have_saved() -> None:
    shell, client = observing()
    for _ in range(4):
        load(shell, client)
        assert shell.prepare(client, list(LONG[:1])).slots == (Slot.NO_ROOM,)
    stats = shell.engine.stats()
    assert stats["host_pages"] == 0
    seen = stats["observe"]
    assert seen["asked_blocks"] == 4 * len(LONG)
    assert seen["hit_share"] == 0.75
    assert seen["hit_blocks"] == 3 * len(LONG)
    assert seen["saved_tokens"] == 3 * len(LONG) * A.block_tokens


def test_the_curve_says_what_more_and_less_room_would_bring() -> None:
    shell, client = observing()
    for name in "abab":
        load(shell, client, tuple(chain(name, 3000)))
    curve = dict(shell.engine.stats()["curve"])
    shares = [curve[blocks] for blocks in sorted(curve)]
    assert shares == sorted(shares)
    assert shares[0] < shares[-1]


def test_the_curve_is_empty_until_an_idle_moment_after_a_prompt_that_is_sampled() -> None:
    shell, client = observing()
    assert shell.engine.stats()["curve"] == []
    unsampled = next(key for key in LONG if key[-1] & 1)  # of a sampled one the last bits are zero
    load(shell, client, (unsampled,))
    assert shell.engine.stats()["curve"] == []
    shell.load(client, list(LONG))
    assert shell.engine.stats()["curve"] == []
    idle(shell)
    assert len(shell.engine.stats()["curve"]) == 5


def test_the_curve_stays_empty_where_one_policy_is_set() -> None:
    ghosts = Ghosts(8192, (PolicyName.LRU,))
    for use in range(3):
        ghosts.access(LONG, use)
    assert ghosts.curve() == ()


def test_a_prompt_counts_where_it_is_announced_and_never_by_a_lookup() -> None:
    shell, client = observing()
    shell.ask(client, Lookup(LONG))
    shell.ask(client, Prefetch(LONG))
    shell.load(client, list(LONG))
    assert shell.engine.stats()["observe"]["asked_blocks"] == len(LONG)


def test_a_paused_pool_asks_nobody() -> None:
    shell, client = observing()
    shell.step(ModeSet(Mode.PAUSED))
    shell.load(client, list(LONG))
    assert shell.engine.stats()["observe"]["asked_blocks"] == 0


def test_both_tiers_follow_the_policy_that_is_ahead() -> None:
    shell, client = observing()
    load(shell, client)
    state, following = shell.engine._state, shell.engine._following
    assert following.ghosts is not None
    assert shell.engine.stats()["policy"] in {name.value for name in FIXED}
    assert state.host.ranking.chooser is following.ghosts.chooser()
    assert state.disk.ranking.chooser is following.ghosts.chooser()


def test_another_budget_begins_with_new_ghosts() -> None:
    shell, client = observing()
    load(shell, client)
    before = shell.engine._following.ghosts
    load(shell, client)
    assert shell.engine._following.ghosts is before
    shell.step(BudgetSet(0, 0))
    load(shell, client)
    assert shell.engine._following.ghosts is not before


def test_what_the_ghosts_have_not_seen_is_bounded_and_the_oldest_goes() -> None:
    shell, client = observing()
    for number in range(2 * WAITING_MAX // len(LONG)):
        shell.load(client, chain(f"prompt {number}", len(LONG)))
    following = shell.engine._following
    assert following._waiting_blocks == WAITING_MAX
    assert sum(len(keys) for keys, *_ in following._waiting) == WAITING_MAX
    stats = shell.engine.stats()
    assert stats["observe"]["asked_blocks"] == 2 * WAITING_MAX
    assert stats["unseen_prompts"] == WAITING_MAX // len(LONG)
    idle(shell)
    assert following._waiting_blocks == 0
    assert shell.engine.stats()["unseen_prompts"] == WAITING_MAX // len(LONG)


def test_the_ghosts_see_a_long_prompt_in_parts_and_no_part_in_a_tick() -> None:
    shell, client = observing()
    shell.load(client, list(LONG))
    shell.step(Tick())
    assert shell.engine._following.ghosts is None
    assert idle(shell) > 5
    assert shell.engine.stats()["observe"]["hit_blocks"] == 0
    shell.load(client, list(LONG[:16]))
    assert idle(shell) == 1


def test_a_figure_asked_for_between_two_parts_is_that_of_whole_prompts() -> None:
    shell, client = observing()
    for _ in range(2):
        load(shell, client)
    before = shell.engine.stats()
    shell.load(client, list(LONG))
    shell.step(Idle())
    between = shell.engine.stats()
    assert between["curve"] == before["curve"]
    assert between["observe"]["hit_share"] == before["observe"]["hit_share"] == 0.5
    idle(shell)
    assert shell.engine.stats()["observe"]["hit_share"] > 0.6


def test_a_budget_that_changes_under_way_does_not_mix_old_ghosts_with_new() -> None:
    shell, client = observing()
    shell.load(client, list(LONG))
    shell.step(Idle())
    before = shell.engine._following.ghosts
    shell.step(BudgetSet(0, 0))
    idle(shell)
    assert shell.engine._following.ghosts is before
    load(shell, client)
    state, following = shell.engine._state, shell.engine._following
    assert following.ghosts is not before
    assert state.host.ranking.chooser is following.ghosts.chooser()
