"""Totals never fall: over restarts of an agent, of the operator, and over late reports."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onggi_core.heartbeat import TierBlocks
from onggi_operator.observe.totals import (
    AGENTS_WRITTEN_MAX,
    Ledger,
    agents_field,
    ledger_of,
    totals_fields,
)

OTHER_EPOCH = "fedcba9876543210"


def reread(ledger: Ledger) -> Ledger:
    """As an operator that starts anew: through what the status can hold."""
    return ledger_of({**totals_fields(ledger.totals), "agents": agents_field(ledger.agents)})


def test_progress_within_one_life_is_added_once(status_kit: Any) -> None:
    ledger = Ledger()
    for saved in (10, 25, 25):
        ledger.absorb(status_kit.beat(tokens_saved=saved), newborn=True)
    assert ledger.totals.tokens_saved == 25


def test_a_new_life_counts_from_nothing(status_kit: Any) -> None:
    ledger = Ledger()
    ledger.absorb(status_kit.beat(tokens_saved=25), newborn=True)
    ledger.absorb(status_kit.beat(tokens_saved=7, epoch=OTHER_EPOCH), newborn=True)
    assert ledger.totals.tokens_saved == 32


def test_a_report_that_was_overtaken_adds_nothing(status_kit: Any) -> None:
    ledger = Ledger()
    for saved in (30, 20, 31):
        ledger.absorb(status_kit.beat(tokens_saved=saved), newborn=True)
    assert ledger.totals.tokens_saved == 31


def test_an_operator_that_starts_anew_goes_on_where_the_last_one_wrote(status_kit: Any) -> None:
    ledger = Ledger()
    ledger.absorb(status_kit.beat(tokens_saved=30, hits=TierBlocks(5, 2)), newborn=True)
    again = reread(ledger)
    again.absorb(status_kit.beat(tokens_saved=44, hits=TierBlocks(6, 2)), newborn=False)
    assert again.totals.tokens_saved == 44
    assert (again.totals.host_blocks, again.totals.disk_blocks) == (6, 2)


@pytest.mark.parametrize(("newborn", "total"), [(False, 0), (True, 9)])
def test_an_agent_there_was_no_room_for_is_not_counted_twice(
    status_kit: Any, newborn: bool, total: int
) -> None:
    ledger = Ledger()
    for i in range(AGENTS_WRITTEN_MAX + 1):
        ledger.absorb(status_kit.beat(f"pod-{i:03}"), newborn=True)
    again = reread(ledger)
    last = f"pod-{AGENTS_WRITTEN_MAX:03}"
    again.absorb(status_kit.beat(last, tokens_saved=9), newborn=newborn)
    assert again.totals.tokens_saved == total


def test_agents_whose_pods_are_gone_are_forgotten_and_what_they_did_is_not(
    status_kit: Any,
) -> None:
    ledger = Ledger()
    ledger.absorb(status_kit.beat(tokens_saved=30), newborn=True)
    ledger.forget_all_but(set())
    assert ledger.agents == {}
    assert ledger.totals.tokens_saved == 30


REPORTS = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from("12"), st.integers(0, 50), st.booleans()),
    max_size=30,
)


@given(reports=REPORTS)
def test_totals_never_fall_and_never_exceed_what_was_done(status_kit: Any, reports: Any) -> None:
    """Agents `a` and `b` live twice each; the operator may start anew between any two reports."""
    ledger = Ledger()
    done: dict[tuple[str, str], int] = {}
    life: dict[str, str] = {}
    for pod, epoch, saved, restart in reports:
        if life.get(pod, "1") > epoch:
            continue
        life[pod] = epoch
        done[pod, epoch] = max(saved, done.get((pod, epoch), 0))
        before = ledger.totals.tokens_saved
        ledger.absorb(status_kit.beat(pod, tokens_saved=saved, epoch=epoch * 16), newborn=False)
        assert before <= ledger.totals.tokens_saved == sum(done.values())
        if restart:
            ledger = reread(ledger)
