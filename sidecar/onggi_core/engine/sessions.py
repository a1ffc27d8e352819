"""Clients coming, saying who they are, and going."""

from __future__ import annotations

from onggi_core.engine import leaving, stores
from onggi_core.engine.session import Session
from onggi_core.engine.space import Space
from onggi_core.engine.state import LEASE_S, SPACES_MAX, State
from onggi_core.errors import BadRequest
from onggi_core.wire.frame import VERSION
from onggi_core.wire.replies import Welcome
from onggi_core.wire.requests import Hello, SpaceSpec


def hello(state: State, session: Session, asked: Hello) -> Welcome:
    """Binds the session to its spaces. Raises BadRequest, with nothing changed for it."""
    if session.spaces:
        raise BadRequest("HELLO", "sent twice", "a session says it once")
    for spec in asked.spaces:
        _check(state, spec)
    if len({spec.fingerprint for spec in asked.spaces}) < len(asked.spaces):
        raise BadRequest("spaces", len(asked.spaces), "each rank needs a fingerprint of its own")
    new = sum(spec.fingerprint not in state.spaces for spec in asked.spaces)
    wanted = {spec.fingerprint for spec in asked.spaces}
    while len(state.spaces) + new > SPACES_MAX:  # before any is made, so that none of its own goes
        if not _drop_idle_space(state, wanted):
            raise BadRequest("spaces", len(state.spaces) + new, f"{SPACES_MAX} are in use at most")
    session.spaces = [space_of(state, spec) for spec in asked.spaces]
    session.pid, session.engine = asked.pid, asked.engine
    state.counters.greeted_sessions += 1
    facts = state.facts
    return Welcome(
        version=VERSION,
        mode=state.mode,
        session=session.number,
        epoch=facts.epoch,
        arena_bytes=facts.arena_bytes,
        data_offset=facts.data_offset,
        extent_bytes=facts.extent_bytes,
        lease_ms=int(LEASE_S * 1000),
        arena=facts.arena,
        tags=tuple([space.tag for space in session.spaces]),
    )


def space_of(state: State, spec: SpaceSpec) -> Space:
    """The space of a fingerprint, made if it is new. Raises BadRequest if there are too many."""
    space = state.spaces.get(spec.fingerprint)
    if space is not None:
        return space
    if len(state.spaces) >= SPACES_MAX and not _drop_idle_space(state, set()):
        raise BadRequest("spaces", len(state.spaces) + 1, f"{SPACES_MAX} are in use at most")
    return state.add_space(spec)


def gone(state: State, session: Session, now_s: float) -> None:
    """The stream ended: what the client held is nobody's now, and free as soon as it is taken
    apart."""
    for ticket in tuple(session.loads):
        leaving.load_over(state, session, state.loads[ticket])
    stores.session_gone(state, session)
    del state.sessions[session.number]
    leaving.work(state, now_s)


def _check(state: State, spec: SpaceSpec) -> None:
    if not 1 <= spec.page_bytes <= state.facts.extent_bytes:
        raise BadRequest(
            "page_bytes",
            spec.page_bytes,
            f"this agent holds pages of 1 to {state.facts.extent_bytes} bytes (its extent size); "
            "give it a larger extent, or the engine smaller blocks",
        )
    if spec.block_tokens < 1:
        raise BadRequest("block_tokens", spec.block_tokens, "use 1 or more")
    known = state.spaces.get(spec.fingerprint)
    if known is not None and known.spec != spec:
        raise BadRequest(
            "page_bytes, block_tokens",
            (spec.page_bytes, spec.block_tokens),
            f"this fingerprint is known with {(known.spec.page_bytes, known.spec.block_tokens)}; "
            "what shapes a page (dtype, layers, block size) belongs into its fields",
        )


def _drop_idle_space(state: State, wanted: set[bytes]) -> bool:
    """wanted: fingerprints of a session that is being bound."""
    used = {id(space) for session in state.sessions.values() for space in session.spaces}
    for fingerprint, space in state.spaces.items():
        if not space.table and id(space) not in used and fingerprint not in wanted:
            state.drop_space(space)
            return True
    return False
