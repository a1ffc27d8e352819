"""visibility: a block is seen by others only after its store was sealed, or an earlier life's was.

It is sealed in the arena from then until a store is given a page for it anew (or a read from disk
begins), since that says that the arena lost it; and on disk from its write to its ForgetPage. In
between the arena may have given it up without a word: that is not looked at here, its bytes are.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.sim import look
from tests.sim.checkers.base import Checker
from tests.sim.ledger import Grant, Loan, Pending
from tests.sim.life import Life
from tests.sim.trace import shown

from onggi_core.engine.actions import Action, Answer, ForgetPage, ReadRun, WriteRun
from onggi_core.engine.events import (
    Adopted,
    Event,
    ExtentTouched,
    IoOutcome,
    ReadEnded,
    WriteEnded,
)
from onggi_core.engine.state import LEASE_S
from onggi_core.wire.replies import Looked, Slot, StoreCompleted, StoreFilled, StorePrepared
from onggi_core.wire.requests import (
    Lookup,
    Prefetch,
    SpaceSpec,
    StoreComplete,
    StoreFill,
    StoreOutcome,
    StorePrepare,
)


class Visibility(Checker):
    name = "visibility"

    def begin(self, life: Life) -> None:
        super().begin(life)
        self._in_arena: set[tuple[bytes, bytes]] = set()
        self._on_disk: set[tuple[bytes, bytes]] = set()
        self._jobs: dict[int, ReadRun | WriteRun] = {}

    def after(self, event: Event, actions: list[Action]) -> None:
        change = self.life.change
        if isinstance(event, Adopted):
            self._on_disk.update((event.space.fingerprint, key) for key in event.keys)
        elif isinstance(event, ExtentTouched):
            for part in event.held:
                self._in_arena.update((part.space.fingerprint, key) for key in part.keys)
        elif isinstance(event, ReadEnded | WriteEnded):
            self._moved(self._jobs.pop(event.job), event.outcomes)
        if change.sealed is not None:
            fingerprint = change.sealed.space.fingerprint
            self._in_arena.update((fingerprint, key) for key, _ in change.sealed.pages)
        for held in change.opened:
            if isinstance(held, Loan):
                for space, key, _ in held.pages():
                    self._must_be_sealed(space, key, "a load offers")
            else:
                self._in_arena -= {(held.space.fingerprint, key) for key, _ in held.pages}
        for pending, answer in change.answered or ():
            if isinstance(answer, Answer):
                self._answered(pending, answer)
        for action in actions:
            self._acted(action)

    def _acted(self, action: Action) -> None:
        match action:
            case ReadRun():
                self._jobs[action.job] = action
                for key in action.keys:
                    self._must_be_sealed(action.space, key, "a read is for")
                    self._in_arena.discard((action.space.fingerprint, key))
            case WriteRun():
                self._jobs[action.job] = action
            case ForgetPage(_, space, key):
                self._on_disk.discard((space.fingerprint, key))

    def _moved(self, job: ReadRun | WriteRun, outcomes: tuple[IoOutcome, ...]) -> None:
        there = self._in_arena if isinstance(job, ReadRun) else self._on_disk
        done = zip(job.keys, outcomes, strict=True)
        there.update((job.space.fingerprint, k) for k, how in done if how is IoOutcome.DONE)

    def _answered(self, pending: Pending, answer: Answer) -> None:
        request, reply = pending.asked.request, answer.reply
        spaces = self.life.ledger.sessions[answer.session]
        if isinstance(request, Lookup | Prefetch) and isinstance(reply, Looked):
            if not reply.ready <= reply.pending <= len(request.keys):
                raise self.broken(f"{shown(reply)} for {len(request.keys)} keys")
            for key in request.keys[: reply.ready]:
                for space in spaces:
                    self._must_be_sealed(space, key, "a lookup is ready for")
            self._coming(spaces, request.keys[reply.ready : reply.pending])
        elif isinstance(request, StorePrepare) and isinstance(reply, StorePrepared):
            for key, slot in zip(request.keys, reply.slots, strict=True):
                if slot == Slot.EXISTS:
                    self._must_be_sealed(spaces[request.space], key, "a store is told of")
        elif isinstance(request, StoreComplete) and isinstance(reply, StoreCompleted):
            self._completed(request, reply)
        elif isinstance(request, StoreFill) and isinstance(reply, StoreFilled):
            self._filled(request, reply)

    def _coming(self, spaces: Iterable[SpaceSpec], keys: tuple[bytes, ...]) -> None:
        if not keys:
            return
        grants = self.life.ledger.grants.values()
        stored = {(grant.space.fingerprint, key) for grant in grants for key, _ in grant.pages}
        stored |= look.leaving(self.life.engine)
        for key in keys:
            for space in spaces:
                if (space.fingerprint, key) not in stored:
                    self._must_be_sealed(space, key, "a lookup awaits")

    def _completed(self, request: StoreComplete, reply: StoreCompleted) -> None:
        grant = next(x for x in self.life.change.closed if x.ticket == request.ticket)
        assert isinstance(grant, Grant)
        age_s = self.world.agenda.now_s - grant.given_s
        sealed = request.outcome is StoreOutcome.SEALED and not grant.room
        right = len(grant.pages) if sealed else 0
        if reply.sealed != right and (reply.sealed or age_s < LEASE_S):
            raise self.broken(f"{reply.sealed} of {len(grant.pages)} sealed by {shown(request)}")

    def _filled(self, request: StoreFill, reply: StoreFilled) -> None:
        """All of the chain is there, or nothing of it because the lease was over."""
        there = reply.sealed + reply.existing
        room = next((x for x in self.life.change.closed if x.ticket == request.ticket), None)
        late = isinstance(room, Grant) and self.world.agenda.now_s - room.given_s >= LEASE_S
        if there != len(request.keys) and (there or not late):
            raise self.broken(f"{shown(reply)} for {len(request.keys)} blocks")
        if request.keys:
            self.world.happened["room filled" if there else "room filled too late"] += 1
        if len(reply.offsets) > request.wanted or bool(reply.offsets) != bool(reply.ticket):
            raise self.broken(f"{shown(reply)} for {request.wanted} pages")

    def _must_be_sealed(self, space: SpaceSpec, key: bytes, what: str) -> None:
        block = space.fingerprint, key
        if block not in self._in_arena and block not in self._on_disk:
            raise self.broken(f"{what} {shown(key)} of {shown(space)}, which nobody sealed")
