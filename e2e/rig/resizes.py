"""Pods whose requests follow what their agents are granted, looked at all the time."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

from waits import POD_RUNNING_S, POLL_S

from rig.kubectl import Kubectl, Object, until
from rig.ledger import NodeLedger
from rig.reach import restarts
from rig.requests import (
    AGENT,
    asked_bytes,
    limit_bytes,
    put_off,
    reserved_bytes,
    running_bytes,
)
from rig.stand_in import MIB, StandIn, holds_bytes, pool_object

FLOOR: Final = 64 * MIB
CEILING: Final = 384 * MIB
OVERHEAD: Final = 192 * MIB
MOST: Final = CEILING + OVERHEAD - MIB
"""A request stays below its limit, or the pod's class would change."""


@dataclass(frozen=True, slots=True)
class Look:
    """At one agent: what its pod asked for, what its kubelet had taken in and told its runtime, and
    what the agent held, as it said before and after."""

    asked: int
    reserved: int
    running: int
    held: int
    put_off: str


class Watched:
    """A stand-in of a pool whose requests follow, looked at all the time."""

    def __init__(self, kubectl: Kubectl, name: str) -> None:
        self.kubectl, self.name = kubectl, name
        self.stand_in = StandIn(kubectl, name)
        self.was = self.stand_in.ready()
        self.looks: list[Look] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look_on)
        self._thread.start()

    def pod(self) -> Object:
        return self.kubectl.get("pod", self.was["metadata"]["name"])

    def look(self) -> Look | None:
        """What it held all the while; None while it does not say."""
        before = holds_bytes(self.kubectl, self.was)
        pod = self.pod()
        after = holds_bytes(self.kubectl, self.was)
        if before is None or after is None:
            return None
        sizes = (asked_bytes(pod), reserved_bytes(pod), running_bytes(pod))
        return Look(*sizes, min(before, after), put_off(pod))

    def _look_on(self) -> None:
        while not self._stop.wait(POLL_S):
            if seen := self.look():
                self.looks.append(seen)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def end(self) -> None:
        """Its pod is gone, and what it requested."""
        self.stop()
        self.kubectl.delete("deployment", self.name, POD_RUNNING_S)
        self.kubectl.delete("kvp", self.name, POD_RUNNING_S)
        self.kubectl.delete("pod", self.was["metadata"]["name"], POD_RUNNING_S)

    def until_at(self, what: str, held: int, requested: int, timeout_s: float) -> None:
        wanted = Look(requested, requested, requested, held, "")

        def there() -> bool:
            return bool(self.looks) and self.looks[-1] == wanted

        try:
            until(what, there, timeout_s)
        except AssertionError as late:
            raise AssertionError(f"{late}; seen: {self.looks[-1:]}") from late

    def seen(self, word: str) -> bool:
        """Whether its kubelet said so."""
        return any(one.put_off == word for one in self.looks)

    def state(self, node: NodeLedger) -> str | None:
        """What the KVCacheNode says of its request."""
        pod = self.was["metadata"]["name"]
        grants = node.status().get("grants") or ()
        return next((one.get("resize") for one in grants if one["pod"] == pod), None)

    def is_the_same_pod(self) -> None:
        now = self.stand_in.pod()
        assert now["metadata"]["uid"] == self.was["metadata"]["uid"]
        for container in (AGENT, "vllm"):
            assert restarts(now, container) == 0
        assert limit_bytes(now) == (CEILING + OVERHEAD, CEILING + OVERHEAD)


def following(name: str, most_bytes: int = CEILING) -> Object:
    placement = {"interval": "10s", "step": f"{CEILING}", "resize": "Requests"}
    return pool_object(name, f"{FLOOR}", f"{most_bytes}", placement=placement)
