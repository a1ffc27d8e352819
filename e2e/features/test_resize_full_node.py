"""Requests that follow grants, on a node that offers more than its pods may request: what is put
off is told, and a part of it is had; and all of it once there is room."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from rig.kubectl import Kubectl, until
from rig.ledger import NodeLedger
from rig.pool import Pool
from rig.requests import allocatable_bytes, filler
from rig.resizes import CEILING, FLOOR, MOST, OVERHEAD, Watched, following
from rig.stand_in import MIB, deployment, program
from rig.workloads import LEADER
from waits import ASKED_AGAIN_S, POD_RUNNING_S, ROOM_AGAIN_S, STATUS_S

pytestmark = pytest.mark.soak
"""Each half is another ten seconds, and the next try at all of it five minutes."""

ROOM = FLOOR + 36 * MIB
"""Of the full node: for one unit more, and not for two."""
HALVED = 2 * FLOOR
"""What is left of the growth after two halves were too much."""
BLOCKS = 64


@dataclass(frozen=True, slots=True)
class Full:
    """A node that offers far more than its pods may request any more."""

    node: NodeLedger
    crowded: Watched
    """Would get all that it may have, had the node room."""
    vast: Watched
    """May have more than the node has at all."""


@pytest.fixture(scope="module")
def full(kubectl: Kubectl, pool: Pool) -> Iterator[Full]:
    node = NodeLedger(kubectl, LEADER)
    node.offer(0)
    vast_bytes = allocatable_bytes(kubectl, LEADER)
    kubectl.apply(
        program(),
        following("crowded"),
        following("vast", vast_bytes),
        *(deployment(name, name, LEADER) for name in ("crowded", "vast")),
    )
    found = Full(node, Watched(kubectl, "crowded"), Watched(kubectl, "vast"))
    kubectl.apply(filler(kubectl, LEADER, ROOM))
    kubectl("wait", "pod/filler", "--for=condition=Ready", f"--timeout={POD_RUNNING_S}s",
            timeout_s=POD_RUNNING_S)  # fmt: skip
    node.offer(2 * vast_bytes)
    yield found
    found.vast.end()
    found.crowded.end()
    kubectl.delete("pod", "filler", POD_RUNNING_S)
    node.offer(None)


def test_a_node_that_will_never_have_room_is_told_so(kubectl: Kubectl, full: Full) -> None:
    """Half of it is asked for next, which is put off; and nothing is given meanwhile."""
    vast = full.vast
    until("an answer", lambda: vast.seen("Infeasible"), STATUS_S)
    until("word of it", lambda: vast.state(full.node) in ("Infeasible", "Deferred"), STATUS_S)
    until("half of it", lambda: vast.seen("Deferred"), ASKED_AGAIN_S)
    assert {(one.reserved, one.held) for one in vast.looks} == {(FLOOR + OVERHEAD, FLOOR)}


def test_what_a_node_has_no_room_for_is_told_and_a_part_of_it_is_had(
    kubectl: Kubectl, full: Full
) -> None:
    crowded = full.crowded
    crowded.until_at("a quarter of the growth", HALVED, HALVED + OVERHEAD, ASKED_AGAIN_S)
    until("word of it", lambda: crowded.state(full.node) == "Deferred", STATUS_S)
    status = Pool(kubectl, "crowded").until("the pool's word", _says_node_full)
    assert status["pods"]["ready"] == 1
    assert {one.put_off for one in crowded.looks} == {"", "Deferred"}
    assert max(one.asked for one in crowded.looks) == MOST
    assert max(one.held for one in crowded.looks) == HALVED
    assert max(one.reserved for one in crowded.looks) == HALVED + OVERHEAD
    crowded.stand_in.keep(2, BLOCKS)
    assert crowded.stand_in.find(2, BLOCKS) == BLOCKS
    crowded.is_the_same_pod()


def test_all_of_it_is_asked_for_again_and_had_when_there_is_room(
    kubectl: Kubectl, full: Full
) -> None:
    full.vast.end()  # first: it would be given gigabytes
    kubectl.delete("pod", "filler", POD_RUNNING_S)
    full.crowded.until_at("all that it may have", CEILING, MOST, ROOM_AGAIN_S)
    until("word of it", lambda: full.crowded.state(full.node) == "InStep", STATUS_S)
    full.crowded.is_the_same_pod()


def _says_node_full(status: dict[str, Any]) -> bool:
    reasons = {one["type"]: one["reason"] for one in status["conditions"]}
    return bool(reasons["CapacityAllocated"] == "NodeFull")
