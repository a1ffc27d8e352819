"""Counters on their way to the engine's own /metrics, through vLLM's classes for that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
)

from onggi.connectors.vllm.tally import COUNTERS

PREFIX: Final = "vllm:onggi_"
"""The engine's endpoint carries the engine's prefix; prometheus adds _total."""


@dataclass
class OnggiStats(KVConnectorStats):  # type: ignore[misc]
    """data: counter -> amount since the last step. Sums of sums are sums, so that nothing but a
    plain dict has to reach the front-end process."""

    def reset(self) -> None:
        self.data: dict[str, Any] = {}

    def aggregate(self, other: Any) -> OnggiStats:
        for counter, amount in other.data.items():
            self.data[counter] = self.data.get(counter, 0) + amount
        return self

    def reduce(self) -> dict[str, int | float]:
        """For the engine's periodic log line. net_tokens: those loaded, less those of them
        that would have been cheaper to compute."""
        told = {counter: round(amount, 3) for counter, amount in sorted(self.data.items())}
        loaded = self.data.get("loaded_tokens_host", 0) + self.data.get("loaded_tokens_disk", 0)
        if loaded:
            told["net_tokens"] = loaded - self.data.get("costly_tokens", 0)
        return told

    def is_empty(self) -> bool:
        return not self.data


class OnggiPromMetrics(KVConnectorPromMetrics):  # type: ignore[misc]
    """One counter for each entry of COUNTERS, labelled as the engine labels its own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._counters: dict[tuple[str, int], Any] = {}
        for counter, meaning in COUNTERS.items():
            family = self._counter_cls(
                name=PREFIX + counter, documentation=meaning, labelnames=self._labelnames
            )
            for engine, values in self.per_engine_labelvalues.items():
                self._counters[counter, engine] = family.labels(*values)

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        for counter, amount in transfer_stats_data.items():
            series = self._counters.get((counter, engine_idx))
            if series is not None and amount > 0:
                series.inc(amount)
