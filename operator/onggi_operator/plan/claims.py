"""From what is known of an agent to its part in the ledger."""

from onggi_operator.observe.fleet import AgentSnapshot
from onggi_operator.plan.ledger import Claim
from onggi_operator.pool import Pool


def claim_of(one: AgentSnapshot, pool: Pool | None, now_s: float, fresh_s: float) -> Claim:
    """The floor is what the agent starts with: the scheduler reserved it, and an agent that starts
    anew takes it unasked. The ceiling follows the pool where that became less."""
    floor = one.sizes.memory_bytes
    ceiling = one.sizes.memory_max_bytes
    if pool is not None and one.held is not None:
        ceiling = max(floor, min(ceiling, pool.memory.max_bytes))
    held_bytes = None if one.held is None else one.held.host_bytes
    speaks = not one.gone and one.heard_s is not None and now_s - one.heard_s <= fresh_s
    return Claim(
        one.uid,
        floor,
        ceiling,
        one.granted_bytes,
        one.answered_bytes,
        held_bytes,
        speaks,
        one.newborn,
    )
