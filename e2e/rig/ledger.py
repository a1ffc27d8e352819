"""A node's KVCacheNode: what it offers, and who was granted what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from waits import NODE_STATUS_S

from rig.kubectl import Kubectl, until

KIND: Final = "kvcachenodes.onggi.dev"


class NodeLedger:
    def __init__(self, kubectl: Kubectl, node: str) -> None:
        self.kubectl = kubectl
        self.node = node

    def offer(self, memory_bytes: int | None) -> None:
        """What whoever runs the cluster sets; None to leave it to the operator."""
        spec = {} if memory_bytes is None else {"offer": {"memory": str(memory_bytes)}}
        self.kubectl.apply(
            {
                "apiVersion": "onggi.dev/v1alpha1",
                "kind": "KVCacheNode",
                "metadata": {"name": self.node},
                "spec": spec,
            }
        )

    def status(self) -> dict[str, Any]:
        found = self.kubectl.find(KIND, self.node) or {}
        status: dict[str, Any] = found.get("status") or {}
        return status

    def until(
        self, what: str, holds: Callable[[dict[str, Any]], bool], timeout_s: float = NODE_STATUS_S
    ) -> dict[str, Any]:
        """The status once it says so; AssertionError with the last one if it does not."""
        seen: dict[str, Any] = {}

        def look() -> bool:
            seen.clear()
            seen.update(self.status())
            return bool(seen) and holds(seen)

        try:
            until(what, look, timeout_s)
        except AssertionError as late:
            raise AssertionError(f"node {self.node}: {late}; status: {seen}") from late
        return seen

    def granted(self) -> dict[str, int]:
        """By pod."""
        return {one["pod"]: one["memoryBytes"] for one in self.status().get("grants") or ()}
