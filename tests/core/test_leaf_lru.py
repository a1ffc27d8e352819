"""Leaf-first LRU against a slow model that is plainly right."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from onggi_core.policy.leaf_lru import LeafFirstLru

PARENT = {bytes([n]): bytes([n // 2]) for n in range(1, 16)}
"""A binary tree: the parent of n is n // 2, and 0 is nobody's block."""
keys = st.sampled_from(sorted(PARENT))


class AgainstAModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.lru = LeafFirstLru()
        self.uses: dict[bytes, int] = {}
        self.held: set[bytes] = set()
        self.now = 0

    def use(self) -> int:
        self.now += 1
        return self.now

    @rule(key=keys)
    def insert(self, key) -> None:
        if key not in self.uses:
            self.uses[key] = self.use()
            self.lru.insert(key, PARENT[key], self.now)

    @rule(key=keys)
    def touch(self, key) -> None:
        now = self.use()
        if key in self.uses:
            self.uses[key] = now
            self.lru.touch(key, now)

    @rule(key=keys)
    def hold(self, key) -> None:
        if key in self.uses:
            self.held.add(key)
            self.lru.hold(key)

    @rule(key=keys)
    def release(self, key) -> None:
        if key in self.held:
            self.held.discard(key)
            self.lru.release(key)

    @rule(key=keys)
    def remove(self, key) -> None:
        if key in self.uses:
            use = self.uses.pop(key)
            if PARENT[key] in self.uses:
                self.uses[PARENT[key]] = max(self.uses[PARENT[key]], use)
            self.held.discard(key)
            self.lru.remove(key)

    @rule()
    def evict(self) -> None:
        found = self.lru.coldest()
        if found is not None:
            self.remove(found[1])

    @invariant()
    def the_coldest_free_leaf_is_named(self) -> None:
        leaves = [
            (use, key)
            for key, use in self.uses.items()
            if key not in self.held and not any(PARENT[k] == key for k in self.uses)
        ]
        assert self.lru.coldest() == (min(leaves) if leaves else None)
        assert len(self.lru) == len(self.uses)


AgainstAModel.TestCase.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
TestAgainstAModel = AgainstAModel.TestCase


def test_memory_stays_bounded_when_blocks_come_and_go() -> None:
    lru = LeafFirstLru()
    for use in range(10_000):
        key = (use % 7).to_bytes(16, "little")
        if key in lru:
            lru.touch(key, use)
            lru.remove(key)
        else:
            lru.insert(key, bytes(16), use)
    assert len(lru._nodes) <= 8
    assert len(lru._queue) <= 2 * 8 + 64
