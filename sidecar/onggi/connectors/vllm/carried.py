"""What the connector's sides tell each other (metadata.py), in the wrappers that vLLM carries."""

from __future__ import annotations

from dataclasses import dataclass

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
    KVConnectorWorkerMetadata,
)

from onggi.connectors.vllm.metadata import Report, StepPlan, Told


@dataclass
class OnggiStep(KVConnectorMetadata):  # type: ignore[misc]
    plan: StepPlan


@dataclass
class OnggiReport(KVConnectorWorkerMetadata):  # type: ignore[misc]
    report: Report

    def aggregate(self, other: OnggiReport) -> OnggiReport:
        return OnggiReport(self.report.merged(other.report))


@dataclass
class OnggiTold(KVConnectorHandshakeMetadata):  # type: ignore[misc]
    told: Told
