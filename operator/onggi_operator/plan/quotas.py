"""What a pool's quota leaves each of its agents, over all nodes.

A node shares out what it offers; a quota bounds, across nodes, what that may come to. Each agent of
a pool with one has a *cap*: what is left beside the agents that do not listen, in equal parts. What
an agent cannot use of its part (its node is full, or more brings it nothing) is lent to the others,
theirs to give back when it can.

Caps are where agents are to come. What keeps the quota on the way there is the *room*: what nobody
is charged for. Only out of it is anyone told to grow, so a shrink comes before what grows by it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from onggi_operator.observe.fleet import AgentSnapshot
from onggi_operator.plan.claims import claim_of
from onggi_operator.plan.ledger import Claim, charged
from onggi_operator.plan.rebalance import UNIT_BYTES, even_share
from onggi_operator.pool import Pool
from onggi_operator.tenancy import PoolQuota, PoolUse


@dataclass(frozen=True, slots=True)
class QuotaShare:
    """A pool's quota in one round: what is taken, what no more than each agent is to come to, and
    the memory that may still be given out: less than none where the quota was lowered, None where
    it bounds no memory. `reached` when agents could use more than there is; `exceeded` when more
    was promised, or is held by agents that do not listen, than shrinking can make good."""

    hard: PoolQuota
    used: PoolUse
    caps: Mapping[str, int]
    room_bytes: int | None
    reached: bool = False
    exceeded: bool = False

    def less(self, grown_bytes: int) -> "QuotaShare":
        """After so much was given out."""
        if self.room_bytes is None:
            return self
        used = self.used + PoolUse(grown_bytes)
        return replace(self, used=used, room_bytes=self.room_bytes - grown_bytes)


def plan_quota(
    agents: Sequence[AgentSnapshot],
    pool: Pool,
    before: QuotaShare | None,
    *,
    now_s: float,
    fresh_s: float,
) -> QuotaShare:
    """`agents` are all that the pool has, also those without a node yet; `before` is the last
    round's share, None for the first."""
    claims = [claim_of(one, pool, now_s, fresh_s) for one in agents]
    used = PoolUse(charged(claims), sum(one.sizes.disk_bytes for one in agents))
    hard = pool.quota
    over_disk = hard.disk_bytes is not None and used.disk_bytes > hard.disk_bytes
    if hard.memory_bytes is None:
        return QuotaShare(hard, used, {}, None, exceeded=over_disk)
    listening = [claim for claim in claims if claim.listens]
    deaf_bytes = sum(claim.surely_held_bytes for claim in claims if not claim.listens)
    budget_bytes = hard.memory_bytes - deaf_bytes
    targets = {one.uid: one.target_bytes for one in agents}
    caps, reached = _caps(listening, targets, before.caps if before else {}, budget_bytes)
    return QuotaShare(
        hard=hard,
        used=used,
        caps=caps,
        room_bytes=hard.memory_bytes - used.memory_bytes,
        reached=reached,
        exceeded=over_disk or sum(claim.floor_bytes for claim in listening) > budget_bytes,
    )


def _caps(
    claims: Sequence[Claim],
    targets: Mapping[str, int | None],
    before: Mapping[str, int],
    budget_bytes: int,
) -> tuple[dict[str, int], bool]:
    """Whoever did not come up to its cap last time keeps its equal part, and a unit above what it
    has, so that it shows when it can use more; the rest of its part is lent. Of what is left then
    those get equal parts who have more than their part already, and may be waiting for their turn
    to grow. With it, whether there is less than could be used."""
    usable = {claim.uid: _usable(claim, targets[claim.uid], before) for claim in claims}
    equal_bytes = even_share(((c.floor_bytes, c.ceiling_bytes) for c in claims), budget_bytes)
    lent_bytes = even_share(((c.floor_bytes, usable[c.uid]) for c in claims), budget_bytes)
    spare_bytes = budget_bytes - sum(usable.values())
    if spare_bytes >= 0:
        lent_bytes = max((claim.ceiling_bytes for claim in claims), default=0)
    waiting = {c.uid for c in claims if equal_bytes < usable[c.uid] < c.ceiling_bytes}
    more_bytes = max(0, spare_bytes) // max(1, len(waiting)) // UNIT_BYTES * UNIT_BYTES
    caps = {}
    for claim in claims:
        bound = lent_bytes
        if claim.uid in waiting:
            bound = min(lent_bytes, usable[claim.uid] + more_bytes)
        elif usable[claim.uid] < claim.ceiling_bytes:
            bound = min(lent_bytes, equal_bytes)
        caps[claim.uid] = max(claim.floor_bytes, min(bound, claim.ceiling_bytes))
    return caps, spare_bytes < 0


def _usable(claim: Claim, target_bytes: int | None, before: Mapping[str, int]) -> int:
    cap_bytes = min(before.get(claim.uid, claim.floor_bytes), claim.ceiling_bytes)
    if target_bytes is None or target_bytes >= cap_bytes:
        return claim.ceiling_bytes
    return min(claim.ceiling_bytes, max(claim.floor_bytes, target_bytes + UNIT_BYTES))
