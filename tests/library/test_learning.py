"""What a manager learns of earlier gets: which step is next, what is worth a place, how surely."""

import tracemalloc
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onggi_library.manager import foresight
from onggi_library.manager.foresight import SURE, Foresight, Step
from onggi_library.manager.hot import SHADOW_MAX, WINDOW, HotSet

often = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
steps = st.one_of(st.integers(0, 40), st.sampled_from("abcdefgh"))


@often
@given(st.lists(st.tuples(steps, st.integers(0, 30)), max_size=200))
def test_guesses_are_few_and_never_the_step_itself(reads: list[tuple[Step, int]]) -> None:
    learned = Foresight()
    for step, reader in reads:
        guessed = learned.read(step, reader)
        assert len(guessed) <= 2
        assert step not in guessed
        assert 0.0 <= learned.next_right <= 1.0
        assert 0.0 <= learned.after_right <= 1.0
        assert len(learned._readers) <= foresight.READERS_MAX


@often
@given(st.lists(steps, min_size=3, max_size=30, unique=True))
def test_whatever_order_comes_again_and_again_is_foretold(order: list[Step]) -> None:
    learned = Foresight()
    for _ in range(4 + 40 // len(order)):
        for step in order:
            learned.read(step, 1)
    assert learned.next_right >= SURE
    for step, follower in zip(order, order[1:] + order[:1], strict=True):
        assert learned.read(step, 1)[0] == follower


@often
@given(st.integers(25, 200), st.sampled_from([1, -1, 3, 16]))
def test_a_sweep_is_foretold_while_it_goes_on_and_two_steps_ahead(count: int, by: int) -> None:
    learned = Foresight()
    guessed = [learned.read(number * by, 1) for number in range(count)]
    assert not any(guessed[:22]), "the first reads follow nothing that was learned"
    assert guessed[-1] == (count * by, (count + 1) * by)
    assert not learned._jumps, "a stride is no jump"


@often
@given(st.integers(0, 2**32))
def test_nothing_is_brought_up_for_reads_in_no_order(seed: int) -> None:
    dice, learned = Random(seed), Foresight()
    guessed = [learned.read(dice.randrange(1000), 1) for _ in range(500)]
    assert not any(guessed)
    assert learned.next_right < 0.3


def test_readers_at_once_do_not_confuse_each_other() -> None:
    learned = Foresight()
    for number in range(40):
        learned.read(number, 1)
        learned.read(1000 - number, 2)
    assert learned.read(40, 1) == (41, 42)
    assert learned.read(960, 2) == (959, 958)


def test_jumps_are_bounded_and_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foresight, "JUMPS_MAX", 50)
    dice, learned = Random(1), Foresight()
    for _ in range(1000):
        learned.read(f"step {dice.randrange(500)}", 1)
        assert len(learned._jumps) <= 50


def test_what_is_learned_of_reads_in_no_order_takes_2_mb_at_most() -> None:
    dice = Random(1)
    tracemalloc.start()
    learned, hot = Foresight(), HotSet()
    for serial in range(1, 12_000):
        learned.read(f"step {dice.randrange(10**6)}", 1)
        hot.asked(serial, met=False, places=SHADOW_MAX)
    now, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(learned._jumps) == foresight.JUMPS_MAX
    assert 500_000 < now < 2_000_000


def test_a_sequence_that_changes_is_learned_anew() -> None:
    learned = Foresight()
    for _ in range(20):
        for step in "abcd":
            learned.read(step, 1)
    for _ in range(20):
        for step in "dcba":
            learned.read(step, 1)
    assert learned.read("d", 1) == ("c", "b")


@often
@given(st.lists(st.integers(1, 500), max_size=1500), st.integers(0, 50))
def test_how_sure_is_a_share_and_unknown_at_first(serials: list[int], places: int) -> None:
    hot, counts = HotSet(), dict.fromkeys(range(1, 501), 0)
    for number, serial in enumerate(serials, 1):
        hot.asked(serial, met=serial <= places, places=places)
        counts[serial] += 1
        assert (hot.sureness is not None) == (places > 0 and number >= WINDOW)
        assert number >= WINDOW or not hot.by_count
        assert hot.sureness is None or 0.0 <= hot.sureness <= 1.0
    assert all(hot.counts.often(serial) >= min(255, often) for serial, often in counts.items())


def test_what_was_asked_for_more_often_before_is_worth_more() -> None:
    hot = HotSet()
    for serial, often in ((1, 8), (2, 9), (3, 10)):
        for _ in range(often):
            hot.asked(serial, met=False, places=1)
    assert hot.counts.worth_more(3, 1)
    assert not hot.counts.worth_more(2, 1), (
        "it has no more than this one, but for being asked for now"
    )
    assert not hot.counts.worth_more(1, 3)


def test_trials_are_bounded_however_many_places_there_are() -> None:
    hot, places = HotSet(), 5 * SHADOW_MAX
    for serial in range(1, 4 * places):
        hot.asked(serial, met=False, places=places)
    assert SHADOW_MAX // 2 < len(hot._by_use._here) <= SHADOW_MAX
    assert len(hot._by_count._here) + len(hot._by_count._passing) <= SHADOW_MAX


def test_a_choice_that_is_the_best_one_is_called_so() -> None:
    hot = HotSet()
    for number in range(4 * WINDOW):
        serial = number % 10
        hot.asked(serial, met=serial < 5, places=5)
    assert hot.sureness is not None
    assert hot.sureness > 0.95
    for number in range(6 * WINDOW):
        hot.asked(number % 10, met=False, places=5)
    assert hot.sureness < 0.05
