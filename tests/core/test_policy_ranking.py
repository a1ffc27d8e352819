"""The ranking, with the plainest chooser, against a slow model that is plainly right."""

from __future__ import annotations

import sys

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from onggi_core.index.ids import NOWHERE
from onggi_core.policy.choosers import LeastRecent
from onggi_core.policy.classes import PROVEN
from onggi_core.policy.ranking import Ranking

blocks = st.integers(0, 15)
groups = st.integers(0, 1)


class AgainstAModel(RuleBasedStateMachine):
    """Blocks come with any parent and any group, in any order; numbers are used again at once."""

    def __init__(self) -> None:
        super().__init__()
        self.ranking = Ranking(LeastRecent())
        self.uses: dict[int, int] = {}
        self.parents: dict[int, int] = {}
        self.groups: dict[int, int] = {}
        self.proven: set[int] = set()
        self.held: set[int] = set()
        self.now = 0

    def use(self) -> int:
        self.now += 1
        return self.now

    def chain(self, block: int) -> list[int]:
        found = []
        while block in self.uses and block not in found:
            found.append(block)
            block = self.parents[block]
        return found

    def prove(self, block: int) -> None:
        """Up to the first that is proven: what is before it was proven when it was, or came after
        it and is told when it goes."""
        for above in self.chain(block):
            if above in self.proven:
                return
            self.proven.add(above)

    @rule(block=blocks, parent=st.integers(-1, 15), group=groups, count=st.integers(0, 300))
    def insert(self, block, parent, group, count) -> None:
        now = self.use()
        self.ranking.insert(block, parent, group, now, count)
        if block in self.uses:
            return
        if parent == block or block in [self.parents[b] for b in self.chain(parent)]:
            parent = NOWHERE
        self.uses[block] = now
        self.parents[block] = parent
        self.groups[block] = group
        if count >= PROVEN:
            self.proven.add(block)

    @rule(block=blocks)
    def touch(self, block) -> None:
        now = self.use()
        if block in self.uses:
            self.uses[block] = now
            self.ranking.touch(block, now)

    @rule(block=blocks)
    def hit(self, block) -> None:
        now = self.use()
        if block in self.uses:
            self.uses[block] = now
            self.prove(block)
            self.ranking.hit(block, now)

    @rule(block=blocks, count=st.integers(0, 300))
    def recall(self, block, count) -> None:
        if block in self.uses:
            if count >= PROVEN:
                self.prove(block)
            self.ranking.recall(block, count)

    @rule(block=blocks)
    def hold(self, block) -> None:
        if block in self.uses:
            self.held.add(block)
            self.ranking.hold(block)

    @rule(block=blocks)
    def release(self, block) -> None:
        if block in self.held:
            self.held.discard(block)
            self.ranking.release(block)

    @rule(block=blocks)
    def remove(self, block) -> None:
        if block in self.uses:
            use = self.uses.pop(block)
            parent = self.parents[block]
            if parent in self.uses:
                self.uses[parent] = max(self.uses[parent], use)
                if block in self.proven:
                    self.prove(parent)
            self.held.discard(block)
            self.proven.discard(block)
            self.ranking.remove(block)

    @rule(group=groups)
    def evict(self, group) -> None:
        found = self.ranking.coldest(group)
        if found is not None:
            self.remove(found)

    @invariant()
    def the_coldest_free_leaf_is_named(self) -> None:
        parents = {self.parents[block] for block in self.uses}
        for group in (0, 1):
            leaves = [
                (use, block)
                for block, use in self.uses.items()
                if block not in self.held and block not in parents and self.groups[block] == group
            ]
            found = self.ranking.coldest(group)
            assert found == (min(leaves)[1] if leaves else None)
            assert found is None or self.ranking.last_use(found) == self.uses[found]
        assert len(self.ranking) == len(self.uses)
        assert self.ranking.proven == len(self.proven)
        assert all((block in self.ranking) == (block in self.uses) for block in range(-1, 17))

    @invariant()
    def queues_are_bounded(self) -> None:
        assert sum(map(len, self.ranking._queues)) <= 16 * 12


AgainstAModel.TestCase.settings = settings(
    max_examples=200,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestAgainstAModel = AgainstAModel.TestCase


def test_a_parent_that_comes_after_a_proven_child_is_proven_when_that_child_goes() -> None:
    """And not when a second child goes, though it was asked for as often: it tells its parent, and
    that one was proven already. So no block is walked over twice."""
    model = AgainstAModel()
    model.insert(0, 7, 0, 0)
    model.recall(0, 1)
    model.insert(0, 0, 0, 0)
    model.insert(1, 0, 0, 1)
    model.insert(7, 0, 0, 0)
    counts = [model.ranking.proven]
    for gone in (1, 0, 7):
        assert model.ranking.coldest(0) == gone
        model.evict(0)
        model.the_coldest_free_leaf_is_named()
        counts.append(model.ranking.proven)
    assert counts == [2, 1, 1, 0]


def test_queues_stay_bounded_when_numbers_are_used_again() -> None:
    ranking = Ranking(LeastRecent())
    for use in range(20_000):
        block = use % 7
        if block in ranking:
            ranking.hit(block, use)
            ranking.remove(block)
        else:
            ranking.insert(block, NOWHERE, use % 2, use, use % 3)
        if use % 5 == 0:
            ranking.coldest(0)
    assert sum(map(len, ranking._queues)) < 1_000


def test_a_chain_in_one_piece_is_one_leaf_and_goes_from_its_end() -> None:
    ranking = Ranking(LeastRecent())
    for block in range(100):
        ranking.insert(block, block - 1, 0, 1)
    assert ranking.coldest(0) == 99
    assert sum(map(len, ranking._queues)) == 1
    gone = []
    while (block := ranking.coldest(0)) is not None:
        ranking.remove(block)
        gone.append(block)
    assert gone == list(range(99, -1, -1))


def test_the_most_recent_use_of_any_child_keeps_the_parent() -> None:
    ranking = Ranking(LeastRecent())
    ranking.insert(0, NOWHERE, 0, 1)
    ranking.insert(1, 0, 0, 2)
    ranking.insert(2, 0, 0, 3)
    ranking.insert(9, NOWHERE, 0, 4)
    ranking.touch(1, 5)
    gone = [ranking.coldest(0)]
    ranking.remove(2)
    ranking.remove(1)
    gone.append(ranking.coldest(0))
    assert gone == [2, 9]
    assert ranking.last_use(0) == 5


def test_a_ring_of_parents_has_an_end() -> None:
    ranking = Ranking(LeastRecent())
    ranking.insert(1, 0, 0, 1)
    ranking.insert(2, 1, 0, 2)
    ranking.insert(0, 2, 0, 3)
    gone = []
    while (block := ranking.coldest(0)) is not None:
        ranking.remove(block)
        gone.append(block)
    assert sorted(gone) == [0, 1, 2]


def test_memory_a_block() -> None:
    """Columns and queues of a million blocks in chains of 64: what the index may spend on each of
    its two rankings."""
    ranking = Ranking(LeastRecent())
    for block in range(1_000_000):
        ranking.insert(block, block - 1 if block % 64 else NOWHERE, 0, block)
        ranking.hold(block)
        ranking.release(block)
    columns = [v for v in vars(ranking).values() if hasattr(v, "itemsize")]
    queues = [sys.getsizeof(queue) + 44 * len(queue) for queue in ranking._queues]
    spent = sum(sys.getsizeof(column) for column in columns) + sum(queues)
    assert spent / 1_000_000 < 40
