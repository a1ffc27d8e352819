"""Requests that follow grants, on a real kubelet: raised before an agent grows, lowered after it
shrank, in a pod that lives through it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from rig.kubectl import Kubectl, until
from rig.ledger import NodeLedger
from rig.pool import Pool
from rig.requests import requested_bytes
from rig.resizes import CEILING, FLOOR, MOST, OVERHEAD, Watched, following
from rig.stand_in import MIB, deployment, program
from rig.workloads import NODE
from waits import GRANTED_S, MOVED_S, STATUS_S

LESS = 256 * MIB
BLOCKS = 64


@pytest.fixture(scope="module")
def grows(kubectl: Kubectl, pool: Pool) -> Iterator[Watched]:
    """On a node with room, of which nothing is offered yet."""
    node = NodeLedger(kubectl, NODE)
    node.offer(0)
    kubectl.apply(program(), following("grows"), deployment("grows", "grows", NODE))
    found = Watched(kubectl, "grows")
    yield found
    found.end()
    node.offer(None)


def test_the_request_follows_the_agent_up_and_down_and_the_pod_lives_on(
    kubectl: Kubectl, grows: Watched
) -> None:
    node = NodeLedger(kubectl, NODE)
    grows.until_at("what it was made with", FLOOR, FLOOR + OVERHEAD, GRANTED_S)
    node.offer(None)
    grows.until_at("all that it may have", CEILING, MOST, GRANTED_S)
    until("word of it", lambda: grows.state(node) == "InStep", STATUS_S)
    grown = requested_bytes(kubectl, NODE)
    grows.stand_in.keep(1, BLOCKS)

    spec = {"tiers": following("grows")["spec"]["tiers"]}
    spec["tiers"][0]["memory"]["max"] = f"{LESS}"
    kubectl("patch", "kvp", "grows", "--type=merge", "--patch", json.dumps({"spec": spec}))
    grows.until_at("a shrink", LESS, LESS + OVERHEAD, MOVED_S)
    assert requested_bytes(kubectl, NODE) == grown - (MOST - LESS - OVERHEAD)
    assert grows.stand_in.find(1, BLOCKS) == BLOCKS
    grows.is_the_same_pod()


def test_no_agent_ever_held_more_than_its_kubelet_had_taken_in(grows: Watched) -> None:
    grows.stop()
    assert {one.held for one in grows.looks} == {FLOOR, CEILING, LESS}
    for one in grows.looks:
        assert one.held + OVERHEAD <= one.reserved + MIB, one
        assert one.put_off == ""
