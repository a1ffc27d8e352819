"""Two pools want one node's memory: it goes where it brings hits, and never more than there is,
also when the operator dies between taking and giving."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from rig import install
from rig.kubectl import Kubectl, Object, until
from rig.ledger import NodeLedger
from rig.pool import Pool
from rig.reach import kill_container, restarts
from rig.stand_in import MIB, StandIn, deployment, holds_bytes, pool_object, program
from rig.workloads import LEADER
from waits import CONTAINER_BACK_S, GRANTED_S, LOOK_S, MOVED_S, POD_RUNNING_S

FLOOR, CEILING, OFFER = 64 * MIB, 384 * MIB, 512 * MIB
LEFT = OFFER - CEILING
"""What the other has when one has all that it may."""
NAMES = ("red", "blue")


class Watched:
    """Both agents, looked at all the time: what they hold by their own word."""

    def __init__(self, kubectl: Kubectl, node: NodeLedger) -> None:
        self.kubectl = kubectl
        self.node = node
        self.stand_ins = {name: StandIn(kubectl, name) for name in NAMES}
        self.pods = {name: one.ready() for name, one in self.stand_ins.items()}
        self.most = 0
        self.looks = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look_on)
        self._thread.start()

    def holds(self, name: str) -> int | None:
        return holds_bytes(self.kubectl, self.pods[name])

    def held(self) -> dict[str, int] | None:
        """Of one moment: the first agent says the same before and after the second is asked."""
        first, second, again = (self.holds(name) for name in (*NAMES, NAMES[0]))
        if first is None or second is None or first != again:
            return None
        return {NAMES[0]: first, NAMES[1]: second}

    def until_held(self, what: str, wanted: dict[str, int], timeout_s: float) -> None:
        seen: list[dict[str, int] | None] = []

        def look() -> bool:
            seen[:] = [self.held()]
            return seen == [wanted]

        try:
            until(what, look, timeout_s)
        except AssertionError as late:
            raise AssertionError(f"{late}; held: {seen}; {self.node.status()}") from late

    def _look_on(self) -> None:
        while not self._stop.wait(LOOK_S):
            if held := self.held():
                self.looks += 1
                self.most = max(self.most, sum(held.values()))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


@pytest.fixture(scope="module")
def watched(kubectl: Kubectl, pool: Pool) -> Iterator[Watched]:
    node = NodeLedger(kubectl, LEADER)
    node.offer(OFFER)
    placement = {"interval": "10s", "step": f"{CEILING}", "threshold": 5}
    kubectl.apply(
        program(),
        *(pool_object(name, f"{FLOOR}", f"{CEILING}", placement=placement) for name in NAMES),
        *(deployment(name, name, LEADER) for name in NAMES),
    )
    found = Watched(kubectl, node)
    yield found
    found.stop()
    for name in NAMES:
        kubectl.delete("deployment", name, POD_RUNNING_S)
        kubectl.delete("kvp", name, POD_RUNNING_S)
    node.offer(None)


def test_before_anything_is_known_they_share_alike(watched: Watched) -> None:
    watched.until_held("equal shares", dict.fromkeys(NAMES, OFFER // 2), GRANTED_S)
    status = watched.node.until("the ledger", lambda s: s["granted"]["memoryBytes"] == OFFER)
    assert status["offered"]["memoryBytes"] == OFFER
    assert {grant["pool"]: grant["memoryBytes"] for grant in status["grants"]} == dict.fromkeys(
        NAMES, OFFER // 2
    )


def test_an_operator_that_dies_between_taking_and_giving(watched: Watched) -> None:
    """Red asks for the same again, and blue for what nobody asked before: blue gives back first,
    and the operator is killed before red is given any of it."""
    watched.stand_ins["red"].demand("again")
    watched.stand_ins["blue"].demand("once")

    def taken() -> bool:
        held = watched.held()
        return held is not None and sum(held.values()) < OFFER

    end = time.monotonic() + MOVED_S
    while not taken():
        assert time.monotonic() < end, watched.held()
        time.sleep(LOOK_S)
    there = watched.kubectl.elsewhere(install.NAMESPACE)
    before = operator(there)
    kill_container(there, before, "operator")
    assert taken(), "it gave before it died"

    until(
        "the operator's next life",
        lambda: restarts(operator(there), "operator") > restarts(before, "operator"),
        CONTAINER_BACK_S,
    )
    wanted = {"red": CEILING, "blue": LEFT}
    watched.until_held("all that red may have", wanted, MOVED_S)
    status = watched.node.until(
        "what became of it",
        lambda s: {grant["pool"]: grant["memoryBytes"] for grant in s["grants"]} == wanted,
    )
    assert status["granted"]["memoryBytes"] == OFFER


def test_together_they_never_had_more_than_there_is(watched: Watched) -> None:
    watched.stop()
    print(f"{watched.looks} looks, {watched.most // MIB} MiB at most")
    assert watched.looks > 50
    assert watched.most == OFFER


def operator(there: Kubectl) -> Object:
    (pod,) = there.items("pods", "app.kubernetes.io/component=operator")
    return pod
