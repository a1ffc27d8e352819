"""Which pods' warm gates are opened, and why."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Final

from onggi_operator.kube.reflector import Key
from onggi_operator.lifecycle import WarmGate, WarmUntil
from onggi_operator.observe.fleet import AgentSnapshot
from onggi_operator.observe.pods import PodView
from onggi_operator.pool import Pool

OPENED_PER_ROUND_MAX: Final = 20
"""Ten a second: a roll-out of a hundred pods is through in ten seconds."""


class Opened(str, Enum):
    """Why a gate is open: the reason of the pod's condition."""

    WARM = "Warm"
    TIMED_OUT = "TimedOut"
    GATE_OFF = "GateOff"


@dataclass(frozen=True, slots=True)
class OpenGate:
    """One pod's condition turns True."""

    namespace: str
    pod: str
    uid: str
    reason: Opened
    message: str


def plan_gates(
    pods: Iterable[PodView],
    pools: Mapping[Key, Pool],
    agent_of: Callable[[PodView], AgentSnapshot | None],
    *,
    now_s: float,
    now: str,
) -> tuple[OpenGate, ...]:
    """Those that waited longest first. `now_s` is monotonic, `now` as the API writes it."""
    waiting = sorted(
        (pod for pod in pods if pod.gated and not pod.deleting),
        key=lambda pod: (pod.created, pod.namespace, pod.name),
    )
    opened: list[OpenGate] = []
    for pod in waiting:
        found = _why(pod, pools.get((pod.namespace, pod.pool)), agent_of(pod), now_s, now)
        if found is not None and len(opened) < OPENED_PER_ROUND_MAX:
            opened.append(OpenGate(pod.namespace, pod.name, pod.uid, *found))
    return tuple(opened)


def _why(
    pod: PodView, pool: Pool | None, agent: AgentSnapshot | None, now_s: float, now: str
) -> tuple[Opened, str] | None:
    gate = pool.lifecycle.warm_gate if pool is not None else WarmGate()
    if pool is None or agent is None or gate.until is WarmUntil.OFF:
        return Opened.GATE_OFF, "Neither pool nor pod asks for a warm cache any more."
    if _is_warm(agent, pool, gate, now_s):
        return Opened.WARM, "The agent has taken over its disk and has the memory it started with."
    waited_s = _seconds(pod.started, now) if pod.started else 0.0
    if waited_s > gate.timeout_s:
        return Opened.TIMED_OUT, f"The cache was not warm within {gate.timeout_s} s."
    return None


def _is_warm(agent: AgentSnapshot, pool: Pool, gate: WarmGate, now_s: float) -> bool:
    """An agent takes over its disk before it listens, and reports once it listens."""
    if agent.heard_s is None or agent.ready_bytes < agent.sizes.memory_bytes:
        return False
    if gate.until is WarmUntil.DISK_ADOPTED:
        return True
    return now_s - agent.began_s >= pool.lifecycle.ramp_up_s


def _seconds(since: str, until: str) -> float:
    return (datetime.fromisoformat(until) - datetime.fromisoformat(since)).total_seconds()
