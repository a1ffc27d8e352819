"""A node's kubelet stops: agents there go on, what was deleted meanwhile is charged for a lease and
then comes back, and when the kubelet returns nothing was given twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from node.cluster import start, stop
from rig.kubectl import EXISTING, Kubectl, until
from rig.ledger import NodeLedger
from rig.pool import Pool
from rig.stand_in import MIB, StandIn, deployment, holds_bytes, pool_object, program
from rig.workloads import NODE
from waits import (
    ENGINE_GONE_S,
    GRANTED_S,
    LEASE_S,
    LOOK_S,
    NODE_LOST_S,
    NODE_STATUS_S,
    POD_RUNNING_S,
    SETTLED_S,
    UNCHARGED_S,
)

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(EXISTING, reason="stops a kubelet of the harness's own cluster"),
]

FLOOR, CEILING, OFFER = 64 * MIB, 384 * MIB, 512 * MIB
NAMES = ("stays", "goes")
BLOCKS = 64


class Site:
    def __init__(self, kubectl: Kubectl) -> None:
        self.kubectl = kubectl
        self.node = NodeLedger(kubectl, NODE)
        self.stays, self.goes = (StandIn(kubectl, name) for name in NAMES)
        self.pods = {one.name: one.ready() for one in (self.stays, self.goes)}

    def held(self) -> dict[str, int]:
        """By agents' own word; of those that say nothing, nothing."""
        words = {name: holds_bytes(self.kubectl, pod) for name, pod in self.pods.items()}
        return {name: said for name, said in words.items() if said is not None}

    def ready(self) -> bool:
        conditions = self.kubectl.get("node", NODE)["status"]["conditions"]
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def name(self, which: str) -> str:
        found: str = self.pods[which]["metadata"]["name"]
        return found

    def while_in_budget(self, what: str, holds: Callable[[], bool], timeout_s: float) -> float:
        """Wait, and look all the time that agents and ledger stay within what the node offers."""
        began = time.monotonic()
        while not holds():
            held, granted = self.held(), self.node.granted()
            assert sum(held.values()) <= OFFER, held
            assert sum(granted.values()) <= OFFER, granted
            past_s = time.monotonic() - began
            assert past_s < timeout_s, f"{what}: not within {timeout_s:g} s: {held}, {granted}"
            time.sleep(LOOK_S)
        return time.monotonic() - began


@pytest.fixture
def site(kubectl: Kubectl, pool: Pool) -> Iterator[Site]:
    node = NodeLedger(kubectl, NODE)
    kubectl.delete("deployment", "chat", ENGINE_GONE_S)  # the engine of the tests before, if it ran
    until("nobody to be charged", lambda: not node.granted(), UNCHARGED_S)
    node.offer(OFFER)
    kubectl.apply(
        program(),
        pool_object("shared", f"{FLOOR}", f"{CEILING}"),
        *(deployment(name, "shared", NODE) for name in NAMES),
    )
    found = Site(kubectl)
    yield found
    start(NODE, ["kubelet"])
    found.while_in_budget("the node", found.ready, NODE_LOST_S)
    for name in NAMES:
        kubectl.delete("deployment", name, POD_RUNNING_S)
    kubectl.delete("kvp", "shared", POD_RUNNING_S)
    node.offer(None)


def test_grants_come_back_and_nothing_is_given_twice(kubectl: Kubectl, site: Site) -> None:
    equal = dict.fromkeys(NAMES, OFFER // 2)
    site.while_in_budget("equal shares", lambda: site.held() == equal, GRANTED_S + SETTLED_S)
    site.stays.keep(1, BLOCKS)

    stop(NODE, ["kubelet"])
    site.while_in_budget("a node that is not ready", lambda: not site.ready(), NODE_LOST_S)
    assert site.held() == equal
    assert site.node.granted() == {site.name(name): OFFER // 2 for name in NAMES}
    assert _find(site, "stays") == BLOCKS

    # Whoever believes the node dead has its pods deleted by force; their processes live on.
    kubectl("delete", "pod", site.name("goes"), "--force", "--grace-period=0")
    kubectl("scale", "deployment/goes", "--replicas=0")
    assert site.name("goes") in site.node.granted()
    waited_s = site.while_in_budget(
        "the end of its lease",
        lambda: set(site.node.granted()) == {site.name("stays")},
        LEASE_S + NODE_STATUS_S,
    )
    assert waited_s > LEASE_S / 2
    assert site.held() == equal, "it runs on, and the other was given nothing of it"

    start(NODE, ["kubelet"])
    site.while_in_budget("a node that is ready", site.ready, NODE_LOST_S)
    site.while_in_budget("the end of what was deleted", lambda: len(site.held()) == 1, SETTLED_S)
    wanted = {"stays": CEILING}
    site.while_in_budget("its memory", lambda: site.held() == wanted, SETTLED_S + GRANTED_S)
    assert _find(site, "stays") == BLOCKS
    assert site.stays.pod()["metadata"]["uid"] == site.pods["stays"]["metadata"]["uid"]


def _find(site: Site, which: str) -> int:
    asked = {"seed": 1, "blocks": BLOCKS}
    told = site.stays.call("/find", asked, site.pods[which])
    assert told["right"] == told["found"]
    return int(told["found"])
