"""A KVCachePool as people and programs see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from waits import STATUS_S

from rig.kubectl import Kubectl, until

KIND = "kvcachepools.onggi.dev"


class Pool:
    def __init__(self, kubectl: Kubectl, name: str) -> None:
        self.kubectl = kubectl
        self.name = name

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.kubectl.get(KIND, self.name).get("status") or {}
        return found

    def until(
        self, what: str, holds: Callable[[dict[str, Any]], bool], timeout_s: float = STATUS_S
    ) -> dict[str, Any]:
        """The status once it says so; AssertionError with the last one if it does not."""
        seen: dict[str, Any] = {}

        def look() -> bool:
            seen.clear()
            seen.update(self.status())
            return holds(seen)

        try:
            until(what, look, timeout_s)
        except AssertionError as late:
            raise AssertionError(f"pool {self.name}: {late}; status: {seen}") from late
        return seen

    def row(self) -> dict[str, str]:
        """The pool's line of `kubectl get kvp`, by column."""
        head, line = self.kubectl("get", "kvp", self.name).splitlines()
        starts = [head.index(word) for word in head.split()]
        ends = [*starts[1:], None]
        return {
            head[start:end].strip(): line[start:end].strip()
            for start, end in zip(starts, ends, strict=True)
        }
