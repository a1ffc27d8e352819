"""Who should have how much of a node's memory: by what it brings, a step at a time.

Three parts, in this order. What is over the budget is taken where it brings least. What is free
goes evenly to those of whom nothing is known yet, then where it brings most. Then memory changes
hands, at most a step for each agent, and only where that promises more than a threshold.

The threshold is held against the whole way to the best sharing-out, not against one step of it: a
step of a gigabyte in a node of a terabyte is always little. So it also bounds what noise can do:
where curves are off by a part `a` and `a < t / (2 + t)`, the best sharing-out stays as it is.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter
from typing import Final, NamedTuple

from onggi_operator.plan.worth import Worth

UNIT_BYTES: Final = 64 * 1024**2
"""An extent of the arena: memory comes and goes in these."""

PARTS_MAX: Final = 64
"""Into how many parts the memory of a node that may change hands is cut for looking: a plan for ten
agents takes some milliseconds, and is off the best by a hundredth at most."""


class Why(str, Enum):
    """Why an agent's share changes."""

    BUDGET_SHRANK = "BudgetShrank"
    """The node gives less than before, or the pool does: its max or its quota fell, or another pod
    was promised it."""
    ROOM = "Room"
    """There was memory that nobody had."""
    WORTH_MORE = "WorthMore"
    """It brings more hits here than where it was."""
    WORTH_LESS = "WorthLess"
    """It brings more hits elsewhere."""


@dataclass(slots=True)
class Taker:
    """An agent that hears directives. `worth` None: nothing is known of it, or it is not to be
    moved for what it is worth; it gets free memory up to an even share. `step_bytes` is the most
    that one of known worth may win or lose now; 0 when it is not its turn. Nobody changes one."""

    uid: str
    floor_bytes: int
    ceiling_bytes: int
    now_bytes: int
    step_bytes: int
    threshold: float
    worth: Worth | None

    def gain(self, size_bytes: int, more_bytes: int) -> float:
        """Tokens a second that so much more (or less) brings."""
        if self.worth is None:
            return 0.0
        return self.worth.at(size_bytes + more_bytes) - self.worth.at(size_bytes)


@dataclass(frozen=True, slots=True)
class Move:
    """An agent's share, before and after."""

    uid: str
    from_bytes: int
    to_bytes: int
    why: Why
    gain_tokens_per_s: float


@dataclass(frozen=True, slots=True)
class Sharing:
    """What everybody should have, and what of it is new. `promised` is by what part hits of those
    it touches would rise in the end, were everything moved that could be; `wanted` what it takes
    for anything to be moved."""

    sizes: Mapping[str, int]
    moves: tuple[Move, ...]
    promised: float
    wanted: float


def share_out(takers: Sequence[Taker], budget_bytes: int) -> Sharing:
    """The same takers and budget give the same answer, whatever their order."""
    ranked = sorted(takers, key=attrgetter("uid"))
    sizes = {one.uid: max(one.floor_bytes, one.now_bytes) for one in ranked}
    _cut(ranked, sizes, budget_bytes)
    after_cut = dict(sizes)
    _fill(ranked, sizes, budget_bytes)
    after_fill = dict(sizes)
    movable = [one for one in ranked if one.step_bytes and one.worth is not None]
    promised = wanted = 0.0
    if movable:
        promised, wanted = _promise(movable, after_fill)
    if promised > 0 and promised >= wanted:
        stepped = {one.uid: _reach(one, sizes[one.uid], after_cut[one.uid]) for one in movable}
        _exchange(movable, sizes, stepped)
    moves = tuple(_moves(ranked, after_cut, after_fill, sizes))
    return Sharing(sizes, moves, promised, wanted)


def _cut(takers: Sequence[Taker], sizes: dict[str, int], budget_bytes: int) -> None:
    """Down to the ceilings, then to the budget; nobody below what the node promised it."""
    for one in takers:
        if sizes[one.uid] > one.ceiling_bytes:
            sizes[one.uid] = max(one.floor_bytes, one.ceiling_bytes)
    if sum(sizes.values()) <= budget_bytes:
        return
    even_bytes = even_share(map(_bounds, takers), budget_bytes)
    while (over := sum(sizes.values()) - budget_bytes) > 0:
        givers = [one for one in takers if sizes[one.uid] > one.floor_bytes]
        if not givers:
            return
        unit = max(UNIT_BYTES, _whole(over // PARTS_MAX))
        cuts = {one.uid: min(unit, sizes[one.uid] - one.floor_bytes) for one in givers}
        least = min(givers, key=lambda one: _missed(one, sizes[one.uid], cuts[one.uid], even_bytes))
        sizes[least.uid] -= cuts[least.uid]


def _missed(one: Taker, size: int, less: int, even_bytes: int) -> tuple[float, int]:
    """How much is lost by taking so much from it: what nobody knows the worth of is its own up to
    an even share and nobody's beyond."""
    if one.worth is None:
        return (0.0 if size > even_bytes else float("inf")), -size
    return -one.gain(size, -less) / less, -size


def _fill(takers: Sequence[Taker], sizes: dict[str, int], budget_bytes: int) -> None:
    """Free memory goes to those of whom nothing is known, up to an even share; then to those whom
    it brings something. The rest stays free: held memory that brings nothing serves nobody."""
    room_bytes = budget_bytes - sum(sizes.values())
    if room_bytes <= 0:
        return
    may = [one for one in takers if one.worth is None or one.step_bytes]
    unknown = any(one.worth is None for one in may)
    even_bytes = even_share(map(_bounds, takers), budget_bytes) if unknown else 0
    lacks = {one.uid: _lacks(one, sizes[one.uid], even_bytes) for one in may}
    lacking = {one.uid: one for one in may if lacks[one.uid] > 0}
    unit = max(UNIT_BYTES, _whole(room_bytes // PARTS_MAX))
    part, ranks = 0, dict[str, _Rank]()
    while room_bytes > 0 and lacking:
        if part != min(unit, room_bytes):
            part = min(unit, room_bytes)
            ranks = {uid: _rank(one, sizes[uid], lacks[uid], part) for uid, one in lacking.items()}
        uid = max(ranks, key=ranks.__getitem__)
        if ranks[uid][0] <= 0:
            return
        given = min(part, lacks[uid])
        sizes[uid] += given
        lacks[uid] -= given
        room_bytes -= given
        if lacks[uid] > 0:
            ranks[uid] = _rank(lacking[uid], sizes[uid], lacks[uid], part)
        else:
            del lacking[uid], ranks[uid]


_Rank = tuple[float, int]


def _rank(one: Taker, size: int, lacks: int, part: int) -> _Rank:
    """What a byte of the next part brings; of equals the smallest comes first."""
    more = min(part, lacks)
    return (float("inf") if one.worth is None else one.gain(size, more) / more), -size


def _lacks(one: Taker, size: int, even_bytes: int) -> int:
    """How much more it may have, if there is room, than its size so far."""
    bound = even_bytes if one.worth is None else size + one.step_bytes
    return min(one.ceiling_bytes, bound) - size


def even_share(bounds: Iterable[tuple[int, int]], budget_bytes: int) -> int:
    """The level up to which everybody can be filled, between floors and ceilings (`bounds`): whole
    units, since an agent has no use for a part of an extent. Most agents of a pool have the same
    bounds, so those are counted and not looked at one by one."""
    counted = Counter(bounds)
    low, high = 0, max((ceiling for _, ceiling in counted), default=0) // UNIT_BYTES + 1
    while high - low > 1:
        level = (low + high) // 2
        taken = sum(
            count * max(floor, min(level * UNIT_BYTES, ceiling))
            for (floor, ceiling), count in counted.items()
        )
        low, high = (level, high) if taken <= budget_bytes else (low, level)
    return low * UNIT_BYTES


def _bounds(one: Taker) -> tuple[int, int]:
    return one.floor_bytes, one.ceiling_bytes


def _reach(one: Taker, size: int, begun: int) -> tuple[int, int]:
    """How small and how large it may become in this step."""
    lowest = max(one.floor_bytes, begun - one.step_bytes)
    return min(size, lowest), max(size, min(one.ceiling_bytes, begun + one.step_bytes))


def _promise(movable: Sequence[Taker], sizes: Mapping[str, int]) -> tuple[float, float]:
    """By what part hits would rise, without steps, and by what part they would have to."""
    free = {one.uid: (one.floor_bytes, max(sizes[one.uid], one.ceiling_bytes)) for one in movable}
    ideal = {one.uid: sizes[one.uid] for one in movable}
    _exchange(movable, ideal, free)
    touched = [one for one in movable if ideal[one.uid] != sizes[one.uid]]
    before = sum(one.worth.at(sizes[one.uid]) for one in touched if one.worth)
    after = sum(one.worth.at(ideal[one.uid]) for one in touched if one.worth)
    wanted = max((one.threshold for one in touched), default=0.0)
    if after <= before:
        return 0.0, wanted
    return ((after - before) / before if before else float("inf")), wanted


def _exchange(
    movable: Sequence[Taker], sizes: dict[str, int], reach: Mapping[str, tuple[int, int]]
) -> None:
    """Move a part at a time from where it is missed least to where it brings most, while it brings
    more than it is missed. Each part goes uphill, so this ends."""
    play = sum(most - least for least, most in reach.values())
    unit = max(UNIT_BYTES, _whole(play // PARTS_MAX))
    offers = {one.uid: _offer(one, sizes[one.uid], reach[one.uid], unit) for one in movable}
    for _ in range(PARTS_MAX * 2):
        pair = _best_pair(movable, offers)
        if pair is None:
            return
        giver, taker = pair
        spare = sizes[giver.uid] - reach[giver.uid][0]
        part = min(unit, spare, reach[taker.uid][1] - sizes[taker.uid])
        sizes[giver.uid] -= part
        sizes[taker.uid] += part
        for one in pair:
            offers[one.uid] = _offer(one, sizes[one.uid], reach[one.uid], unit)


class _Offer(NamedTuple):
    """What a byte of the next part costs one to give, and what it brings it, less than nothing for
    a gain so that the least is the best; None where it can give or take no more."""

    lost: float | None
    gained: float | None


def _offer(one: Taker, size: int, reach: tuple[int, int], unit: int) -> _Offer:
    """Values rise ever less steeply, so a smaller part than was looked at does no worse for its
    bytes."""
    least, most = reach
    less, more = min(unit, size - least), min(unit, most - size)
    return _Offer(
        -one.gain(size, -less) / less if less > 0 else None,
        -one.gain(size, more) / more if more > 0 else None,
    )


def _best_pair(
    movable: Sequence[Taker], offers: Mapping[str, _Offer]
) -> tuple[Taker, Taker] | None:
    """Who misses a part least and whom it brings most, if that is more."""
    told = [(offers[one.uid], one.uid, one) for one in movable]
    givers = [(offer.lost, uid, one) for offer, uid, one in told if offer.lost is not None]
    takers = [(offer.gained, uid, one) for offer, uid, one in told if offer.gained is not None]
    pairs = [
        (lost + gained, giver, taker)
        for lost, _, giver in sorted(givers)[:2]
        for gained, _, taker in sorted(takers)[:2]
        if giver is not taker and lost + gained < -_NOTHING
    ]
    if not pairs:
        return None
    _, giver, taker = min(pairs, key=lambda pair: pair[0])
    return giver, taker


_NOTHING: Final = 1e-15
"""Tokens a second and byte under which a gain is rounding."""


def _moves(
    takers: Sequence[Taker],
    cut: Mapping[str, int],
    filled: Mapping[str, int],
    sizes: Mapping[str, int],
) -> Iterable[Move]:
    for one in takers:
        before, after = one.now_bytes, sizes[one.uid]
        if before == after:
            continue
        if after != filled[one.uid]:
            why = Why.WORTH_MORE if after > filled[one.uid] else Why.WORTH_LESS
        else:
            why = Why.ROOM if after > cut[one.uid] else Why.BUDGET_SHRANK
        yield Move(one.uid, before, after, why, one.gain(before, after - before))


def _whole(size_bytes: int) -> int:
    return size_bytes // UNIT_BYTES * UNIT_BYTES
