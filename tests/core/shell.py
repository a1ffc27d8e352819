"""A shell for the engine made of dictionaries: an arena, a disk and clients that keep the rules.

The fake clients and disk do what real ones do, one step at a time and in any order, and check what
the engine may never do: hand out one page twice, offer a page that is being filled, or offer bytes
that are not the block's own.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from onggi_core.engine.actions import (
    Action,
    Answer,
    ForgetPage,
    HurryRead,
    NoteUses,
    ReadRun,
    Refuse,
    ReleaseExtent,
    ReleaseSegment,
    TouchExtent,
    WriteRun,
)
from onggi_core.engine.engine import Engine
from onggi_core.engine.events import (
    Asked,
    ExtentRefused,
    ExtentTouched,
    IoOutcome,
    ReadEnded,
    SessionClosed,
    SessionOpened,
    WriteEnded,
)
from onggi_core.engine.state import Facts, RoomBounds
from onggi_core.identity import ROOT, block_key
from onggi_core.wire.replies import LoadPrepared, Reply, Slot, StoreFilled, StorePrepared
from onggi_core.wire.requests import (
    Hello,
    LoadComplete,
    LoadOutcome,
    LoadPrepare,
    Request,
    SpaceSpec,
    StoreComplete,
    StoreFill,
    StoreOutcome,
    StorePrepare,
)

PAGE = 4096
ROOMS = RoomBounds(session_bytes=8 * PAGE, share=2, worth_bytes=PAGE)


def spec(name: str, page_bytes: int = PAGE, block_tokens: int = 16) -> SpaceSpec:
    return SpaceSpec(block_key(ROOT, name.encode()), page_bytes, block_tokens)


def chain(name: str, length: int) -> list[bytes]:
    keys: list[bytes] = []
    for number in range(length):
        keys.append(block_key(keys[-1] if keys else ROOT, f"{name}/{number}".encode()))
    return keys


def pattern(space: SpaceSpec, key: bytes) -> bytes:
    return space.fingerprint + key


def checksum(page: bytes) -> bytes:
    return hashlib.md5(page).digest()


@dataclass
class OpenStore:
    session: int
    space: SpaceSpec
    slots: list[tuple[bytes, int]]
    """(key, arena offset) of the pages to fill; no key yet in a room."""
    room: bool = False


@dataclass
class OpenLoad:
    session: int
    spaces: tuple[SpaceSpec, ...]
    keys: list[bytes]
    reply: LoadPrepared


@dataclass
class Shell:
    extents: int = 2
    segments: int = 2
    touched: int | None = None
    """Extents there from the start; all of them unless said otherwise."""
    pages_each: int = 4
    rooms: RoomBounds = ROOMS
    now_s: float = 0.0
    arena: dict[int, bytes] = field(default_factory=dict)
    disk: dict[int, bytes] = field(default_factory=dict)
    hurried: list[int] = field(default_factory=list)
    journal: dict[int, tuple[SpaceSpec, bytes, bytes]] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    """Of pages on disk, how often each was asked for: what the page table was told."""
    sessions: dict[int, tuple[SpaceSpec, ...]] = field(default_factory=dict)
    stores: dict[int, OpenStore] = field(default_factory=dict)
    loads: dict[int, OpenLoad] = field(default_factory=dict)
    asked_loads: dict[int, tuple[int, list[bytes]]] = field(default_factory=dict)
    jobs: dict[int, WriteRun | ReadRun] = field(default_factory=dict)
    replies: dict[int, Reply | Refuse] = field(default_factory=dict)
    touching: dict[int, None] = field(default_factory=dict)
    extents_held: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.region_bytes = region = PAGE * self.pages_each
        self.engine = Engine(
            Facts(
                epoch=b"e" * 16,
                arena="arena",
                arena_bytes=region * self.extents,
                data_offset=0,
                extent_bytes=region,
                extents=self.extents,
                segment_bytes=region,
                segments=self.segments,
                rooms=self.rooms,
            )
        )
        self.last_request = 0
        self._session = 0
        for number in range(self.extents if self.touched is None else self.touched):
            self.touching[number] = None
            self.touch(number)

    def step(self, event: object) -> list[Action]:
        actions = self.engine.step(event, self.now_s)  # type: ignore[arg-type]
        for action in actions:
            self._do(action)
        return actions

    def open(self, *spaces: SpaceSpec) -> int:
        self._session += 1
        session = self._session
        self.step(SessionOpened(session))
        self.ask(session, Hello(1, "test", spaces))
        self.sessions[session] = spaces
        return session

    def close(self, session: int) -> None:
        """As a dead client: it touches nothing any more."""
        del self.sessions[session]
        self.stores = {t: s for t, s in self.stores.items() if s.session != session}
        self.loads = {t: x for t, x in self.loads.items() if x.session != session}
        self.asked_loads = {r: x for r, x in self.asked_loads.items() if x[0] != session}
        self.step(SessionClosed(session))

    def ask(self, session: int, request: Request) -> Reply | Refuse | None:
        """The answer, or None if it comes later."""
        self.last_request += 1
        if isinstance(request, LoadPrepare):
            self.asked_loads[self.last_request] = (session, list(request.keys))
        self.step(Asked(session, self.last_request, request))
        return self.replies.get(self.last_request)

    def prepare(
        self, session: int, keys: list[bytes], parent: bytes = ROOT, space: int = 0
    ) -> StorePrepared:
        reply = self.ask(session, StorePrepare(space, parent, tuple(keys)))
        assert isinstance(reply, StorePrepared)
        refused = {int(slot) for slot in Slot}
        given = [(k, s) for k, s in zip(keys, reply.slots, strict=True) if s not in refused]
        self._check_nobody_has([offset for _, offset in given])
        if reply.ticket:
            self.stores[reply.ticket] = OpenStore(session, self.sessions[session][space], given)
        return reply

    def fill(self, ticket: int) -> None:
        """The client writes every page of its store."""
        store = self.stores[ticket]
        for key, offset in store.slots:
            self.arena[offset] = pattern(store.space, key)

    def complete(self, ticket: int, outcome: StoreOutcome = StoreOutcome.SEALED) -> Reply | None:
        store = self.stores.pop(ticket)
        return self.ask(store.session, StoreComplete(ticket, outcome))  # type: ignore[return-value]

    def store(self, session: int, keys: list[bytes], parent: bytes = ROOT, space: int = 0) -> int:
        """A whole store; answers how many blocks were sealed."""
        ticket = self.prepare(session, keys, parent, space).ticket
        if not ticket:
            return 0
        self.fill(ticket)
        return self.complete(ticket).sealed  # type: ignore[union-attr]

    def ask_room(self, session: int, pages: int, space: int = 0) -> StoreFilled:
        return self._fill_room(session, StoreFill(0, space, pages, ROOT, ()))

    def store_to(
        self, room: int, keys: list[bytes], parent: bytes = ROOT, wanted: int = 0
    ) -> StoreFilled:
        """The client writes a chain to its room, says so, and asks for the next room."""
        store = self.stores[room]
        for key, (_, offset) in zip(keys, store.slots, strict=False):
            self.arena[offset] = pattern(store.space, key)
        del self.stores[room]
        space = self.sessions[store.session].index(store.space)
        return self._fill_room(store.session, StoreFill(room, space, wanted, parent, tuple(keys)))

    def _fill_room(self, session: int, asked: StoreFill) -> StoreFilled:
        reply = self.ask(session, asked)
        assert isinstance(reply, StoreFilled)
        self._check_nobody_has(list(reply.offsets))
        if reply.ticket:
            slots = [(b"", offset) for offset in reply.offsets]
            space = self.sessions[session][asked.space]
            self.stores[reply.ticket] = OpenStore(session, space, slots, room=True)
        return reply

    def load(self, session: int, keys: list[bytes], wait_ms: int = 0) -> LoadPrepared | None:
        """None when the answer comes later."""
        return self.ask(session, LoadPrepare(wait_ms, tuple(keys)))  # type: ignore[return-value]

    def finish(self, ticket: int, outcome: LoadOutcome = LoadOutcome.LOADED) -> None:
        load = self.loads.pop(ticket)
        self.check_bytes(load)
        self.ask(load.session, LoadComplete(ticket, outcome, load.reply.blocks))

    def check_bytes(self, load: OpenLoad) -> None:
        for space, row in zip(load.spaces, load.reply.offsets, strict=True):
            for key, offset in zip(load.keys, row, strict=False):
                assert self.arena[offset] == pattern(space, key), "a wrong byte"

    def end_job(self, job: int, *outcomes: IoOutcome) -> None:
        """The disk does, or fails, one job. outcomes: one a page; the last stands for the rest."""
        action = self.jobs.pop(job)
        given = outcomes or (IoOutcome.DONE,)
        each = [given[min(index, len(given) - 1)] for index in range(len(action.keys))]
        if isinstance(action, WriteRun):
            sums = [self._write(action, index, outcome) for index, outcome in enumerate(each)]
            self.step(WriteEnded(job, tuple(each), tuple(sums)))
            return
        each = [self._read(action, index, outcome) for index, outcome in enumerate(each)]
        self.step(ReadEnded(job, tuple(each)))

    def _write(self, run: WriteRun, index: int, outcome: IoOutcome) -> bytes:
        if outcome is not IoOutcome.DONE:
            return b""
        place = run.place + index * run.stride_bytes
        self.disk[place] = self.arena[run.offsets[index]]
        self.journal[place] = (run.space, run.keys[index], run.parents[index])
        return checksum(self.disk[place])

    def _read(self, run: ReadRun, index: int, outcome: IoOutcome) -> IoOutcome:
        if outcome is not IoOutcome.DONE:
            self.arena[run.offsets[index]] = b"half read"
            return outcome
        found = self.disk[run.place + index * run.stride_bytes]
        self.arena[run.offsets[index]] = found
        right = checksum(found) == run.checksums[index]
        assert right == (found == pattern(run.space, run.keys[index]))
        return IoOutcome.DONE if right else IoOutcome.CORRUPT

    def end_jobs(self) -> None:
        while self.jobs:
            self.end_job(next(iter(self.jobs)))

    def stats(self) -> dict[str, int]:
        return self.engine.stats()

    def _do(self, action: Action) -> None:
        match action:
            case Answer():
                self.replies[action.request_id] = action.reply
                if isinstance(action.reply, LoadPrepared):
                    self._answered_load(action.request_id, action.reply)
            case Refuse():
                self.replies[action.request_id] = action
            case WriteRun() | ReadRun():
                self.jobs[action.job] = action
            case NoteUses(place, stride_bytes, counts):
                noted = {place + n * stride_bytes: count for n, count in enumerate(counts)}
                assert noted.keys() <= self.disk.keys(), "a use of what is not on disk"
                self.counts |= noted
            case HurryRead(job):
                assert job in self.jobs, "a read that is over"
                self.hurried.append(job)
            case ForgetPage():
                self.journal.pop(action.place, None)
            case TouchExtent(number):
                assert number not in self.extents_held
                self.touching[number] = None
            case ReleaseExtent(number):
                self._let_go(number)
            case ReleaseSegment(number):
                region = range(number * self.region_bytes, (number + 1) * self.region_bytes)
                assert not any(place in region for place in self.journal), "a lost block"
                self.disk = {at: page for at, page in self.disk.items() if at not in region}

    def touch(self, number: int, *, refused: bool = False) -> None:
        """The shell is done with a TouchExtent."""
        del self.touching[number]
        if refused:
            self.step(ExtentRefused(number))
            return
        self.extents_held.add(number)
        self.step(ExtentTouched(number))

    def _let_go(self, number: int) -> None:
        region = range(number * self.region_bytes, (number + 1) * self.region_bytes)
        self.extents_held.remove(number)
        held = {offset for store in self.stores.values() for _, offset in store.slots}
        held |= {o for load in self.loads.values() for row in load.reply.offsets for o in row}
        held |= {offset for job in self.jobs.values() for offset in job.offsets}
        assert not any(offset in region for offset in held), "memory in use was let go of"
        self.arena = {at: page for at, page in self.arena.items() if at not in region}

    def _answered_load(self, request_id: int, reply: LoadPrepared) -> None:
        session, keys = self.asked_loads.pop(request_id)
        if not reply.ticket:
            return
        load = OpenLoad(session, self.sessions[session], keys, reply)
        filling = {offset for store in self.stores.values() for _, offset in store.slots}
        for row in reply.offsets:
            assert not filling & set(row), "a reserved page was offered"
        self.check_bytes(load)
        self.loads[reply.ticket] = load

    def _check_nobody_has(self, offsets: list[int]) -> None:
        assert len(set(offsets)) == len(offsets), "one page for two blocks"
        held = {offset for store in self.stores.values() for _, offset in store.slots}
        held |= {o for load in self.loads.values() for row in load.reply.offsets for o in row}
        held |= {offset for job in self.jobs.values() for offset in job.offsets}
        assert not held & set(offsets), "a page with two owners"
