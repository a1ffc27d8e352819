"""A pool's conditions: always all present, each with a reason from one list. What is found of a
pool is in `findings`; here are the words, and how they are written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Type(str, Enum):
    """What can be true of a pool."""

    ACCEPTED = "Accepted"
    """The operator understands the spec."""
    INJECTED = "Injected"
    """Every pod that asks for the pool was given an agent."""
    READY = "Ready"
    """Every agent that was given reports."""
    CAPACITY_ALLOCATED = "CapacityAllocated"
    """Every agent has the memory and the disk that it was given."""
    IDENTITY_CONSISTENT = "IdentityConsistent"
    """All engines have the same fingerprint, so that they could share blocks."""
    EFFECTIVE = "Effective"
    """Engines find blocks here: the pool is worth its memory."""
    DRAINING = "Draining"
    """Agents write down what they hold because their pods are to leave. The one that is False when
    all is well."""


class Reason(str, Enum):
    """Why a condition is as it is."""

    PENDING = "Pending"
    """(any, Unknown) No operator has looked at this pool yet."""
    ACCEPTED = "Accepted"
    """(Accepted, True) The spec is understood."""
    UNREADABLE = "Unreadable"
    """(Accepted, False) The spec holds something that this version cannot read."""
    ALL_INJECTED = "AllInjected"
    """(Injected, True) Every pod that asks for the pool has an agent."""
    INJECTION_OFF = "InjectionOff"
    """(Injected, False) `spec.injection.enabled` is `false`."""
    PODS_SKIPPED = "PodsSkipped"
    """(Injected, False) Some pods were admitted without an agent; `status.skipped` says why."""
    PODS_MISSED = "PodsMissed"
    """(Injected, False) Some pods were made while the webhook was away; `status.missed` names
    them."""
    NO_PODS = "NoPods"
    """(Injected, Ready, Unknown) No pod asks for this pool."""
    ALL_READY = "AllReady"
    """(Ready, True) Every agent reports."""
    AGENTS_STARTING = "AgentsStarting"
    """(Ready, False) Some injected pods are not running yet."""
    AGENTS_SILENT = "AgentsSilent"
    """(Ready, False) Some injected pods run, but their agents have not reported for 30 seconds."""
    NOTHING_INJECTED = "NothingInjected"
    """(Ready, Unknown) Pods ask for this pool, and none of them has an agent."""
    ONE_FINGERPRINT = "OneFingerprint"
    """(IdentityConsistent, True) All engines that are attached compute the same bytes for the same
    tokens."""
    FINGERPRINTS_DIFFER = "FingerprintsDiffer"
    """(IdentityConsistent, False) Engines differ in model, version or layout; each finds only what
    its own kind stored. Usual during a roll-out."""
    NO_FINGERPRINTS = "NoFingerprints"
    """(IdentityConsistent, Unknown) No engine is attached to an agent yet."""
    NO_REPORTS = "NoReports"
    """(CapacityAllocated, Effective, Draining, Unknown) No agent has reported yet."""
    ALLOCATED = "Allocated"
    """(CapacityAllocated, True) Every agent that reports has what it was given."""
    MEMORY_GROWING = "MemoryGrowing"
    """(CapacityAllocated, False) Some agents do not have the memory yet that their pods requested;
    usual for some seconds."""
    BELOW_MIN = "BelowMin"
    """(CapacityAllocated, False) Some agents run for two minutes and still do not have the memory
    that their pods requested: the node or the container's limit has no more to give, and the
    agents' logs say so."""
    QUOTA_EXCEEDED = "QuotaExceeded"
    """(CapacityAllocated, False) The pool's pods were promised more than `spec.quota` gives, since
    it was lowered, or several pods came in one moment; or agents that fell silent hold it. Nobody
    has more than its `min` then; fewer pods or a higher quota help."""
    QUOTA_REACHED = "QuotaReached"
    """(CapacityAllocated, True) Every agent has what its pod requested, and together they have all
    that `spec.quota` gives, although they could use more."""
    NODE_FULL = "NodeFull"
    """(CapacityAllocated, True) Every agent has what its pod requested; some node's agents have all
    that it offers, although they could use more."""
    DISK_UNAVAILABLE = "DiskUnavailable"
    """(CapacityAllocated, False) Some agents cannot use their disk and serve without it; their logs
    say why."""
    BLOCKS_FOUND = "BlocksFound"
    """(Effective, True) Engines find blocks that they need not compute."""
    ENGINES_NOT_ATTACHED = "EnginesNotAttached"
    """(Effective, False) Pods run for a quarter of an hour, and their engines never spoke to the
    agent: the client is not loaded there."""
    NOTHING_FOUND = "NothingFound"
    """(Effective, False) More than 10,000 blocks were asked for and none was held."""
    TOO_EARLY = "TooEarly"
    """(Effective, Unknown) Engines have not asked for enough yet."""
    OBSERVING = "Observing"
    """(Effective, Unknown) `spec.mode` is Observe: nothing is stored."""
    PAUSED = "Paused"
    """(Effective, Unknown) `spec.mode` is Paused: every lookup misses."""
    AGENTS_DRAINING = "AgentsDraining"
    """(Draining, True) Some agents write down what they hold before their pods leave."""
    NOTHING_DRAINS = "NothingDrains"
    """(Draining, False) No agent is on its way out."""


class Status(str, Enum):
    """As the API writes them."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """A condition without its times."""

    status: Status
    reason: Reason
    message: str


def written(
    found: Mapping[Type, Finding], previous: Sequence[Mapping[str, Any]], generation: int, now: str
) -> list[dict[str, Any]]:
    """The conditions as the status has them. A transition time moves only when the status does."""
    before = {one["type"]: one for one in previous}
    conditions = []
    for kind, finding in found.items():
        status = finding.status.value
        old = before.get(kind.value)
        same = old is not None and old["status"] == status and old["reason"] != Reason.PENDING.value
        conditions.append(
            {
                "type": kind.value,
                "status": status,
                "reason": finding.reason.value,
                "message": finding.message,
                "observedGeneration": generation,
                "lastTransitionTime": old["lastTransitionTime"] if old and same else now,
            }
        )
    return conditions
