"""Whole chains at once: pin, copy and unpin; storing them is in bulk_store.py.

A chain is moved in parts, and the next part is asked for before the present one is copied: what the
agent does for it, a read from disk included, goes on beside the copying.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from onggi import checks
from onggi.copies import runs
from onggi.crew import move
from onggi.memory import HeldPages, hold_pages, hold_whole
from onggi.outcomes import Load, Pages
from onggi.pending import PendingLoad
from onggi_core.wire.requests import LoadOutcome

if TYPE_CHECKING:
    from onggi.client import Client

FIRST_BLOCKS: Final = 64
"""Blocks of the first part, which nothing is copied beside. Each further part has twice as many, so
that its blocks are looked up while the one before is copied, however small they are."""
PART_BLOCKS: Final = 1024
PART_BYTES: Final = 64 * 1024 * 1024
"""Most of one part: a part costs a tenth of a millisecond beside its copying, mostly for code that
the copy before has pushed out of the processor's caches, and its pages are held all the while."""
DISK_PART_BYTES: Final = 4 * 1024 * 1024
"""The same where blocks may come from disk: two milliseconds of reading, so that a chain is copied
while most of it is still being read."""
DISK_PARTS: Final = 4
"""Parts asked for at a time where blocks may come from disk: it has to be kept busy while one is
copied and one verified. The pages of all of them are pinned: 16 MiB. Otherwise the next part is
asked for when the present one's answer is there and whole: what follows a gap is worth nothing."""
CALLERS: Final = (TypeError, ValueError)
"""The caller's faults: a page that is none."""


def parts(blocks: int, most: int) -> Iterator[tuple[int, int]]:
    """(first block, end) of each request. A last one of less than half goes with the one before."""
    begin, step = 0, min(FIRST_BLOCKS, most)
    while begin < blocks:
        end = begin + step if blocks - begin - step >= step // 2 + 1 else blocks
        yield begin, end
        begin, step = end, min(2 * step, most)


def blocks_in_part(page_bytes: int, *, from_disk: bool) -> int:
    """Most blocks of one part."""
    nbytes = DISK_PART_BYTES if from_disk else PART_BYTES
    return min(PART_BLOCKS, max(1, nbytes // page_bytes))


class Memory:
    """The caller's pages, looked at when their turn comes: a miss should not pay for them."""

    def __init__(self, pages: Any, count: int, page_bytes: int, *, writable: bool) -> None:
        self._pages = pages
        self._page_bytes = page_bytes
        self._writable = writable
        self._whole = None
        if type(pages) is not list:
            self._whole = hold_whole(pages, count, page_bytes, writable=writable)
        self.count = count if self._whole is not None else checks.counted("pages", pages)

    def part(self, begin: int, end: int) -> HeldPages:
        """Raises ValueError naming the page that is wrong."""
        if self._whole is not None:
            return HeldPages(self._whole.addresses[begin:end], self._whole.keeper)
        some = self._pages[begin:end] if begin or end < self.count else self._pages
        return hold_pages(some, self._page_bytes, writable=self._writable, first=begin)


def move_out(client: Client, pages: Pages, held: HeldPages) -> bool:
    """See Client.copy_out."""
    return _copy_out(client, pages, held.addresses) and client.holds(pages)


def _copy_out(client: Client, pages: Pages, addresses: Sequence[int]) -> bool:
    """Whether the pages still are the agent's to keep has to be asked after it."""
    arena = client.arena(pages)
    if arena is None:
        return False
    whole = arena.copy_out(runs(pages.offsets, addresses, pages.page_bytes), move)
    return whole and client.now_s() < pages.expires_s


def move_in(client: Client, pages: Pages, held: HeldPages) -> bool:
    """See Client.copy_in."""
    arena = client.arena(pages)
    if arena is None or client.now_s() >= pages.expires_s:
        return False
    whole = arena.copy_in(runs(pages.offsets, held.addresses, pages.page_bytes), move)
    return whole and client.now_s() < pages.expires_s


def load(client: Client, keys: Sequence[bytes], pages: Any, wait_s: float, space: int) -> int:
    """See Client.load. What can be copied without asking is looked for first: that has to be quick,
    since its code is in no cache after the copy before."""
    if type(space) is not int or not 0 <= space < len(client.spaces):
        checks.space_number(space, client.spaces)
    if type(wait_s) is not float or not wait_s >= 0:
        wait_s = checks.seconds("wait_s", wait_s)
    page_bytes = client.spaces[space].page_bytes
    usual = type(pages) is list and type(keys) in (list, tuple)
    if usual and len(pages) == len(keys) <= min(PART_BLOCKS, PART_BYTES // page_bytes):
        session = client.showing() if keys else None
        shown = session.shown if session is not None else None
        if session is not None and shown and shown.load_row(keys, pages, page_bytes, space):
            client.note_loaded(session, keys)
            return len(keys)
    client.rooms.tidy()
    memory = Memory(pages, checks.keys_of(keys), page_bytes, writable=True)
    if memory.count < len(keys):
        raise ValueError(f"pages has {memory.count} entries for {len(keys)} keys; use one each")
    done = _shown(client, keys, memory, space)
    return done if done == len(keys) else _ask_for(client, keys, memory, wait_s, space, done)


def _ask_for(
    client: Client, keys: Sequence[bytes], memory: Memory, wait_s: float, space: int, done: int
) -> int:
    """The blocks behind the first `done`, by requests; how many are there then with those."""
    until_s, first = client.now_s() + wait_s, done
    page_bytes = client.spaces[space].page_bytes
    most = blocks_in_part(page_bytes, from_disk=wait_s > 0)
    rest = parts(len(keys) - done, most)
    ahead: deque[tuple[int, PendingLoad]] = deque()
    one_by_one, begun_at = False, -1

    def ask_for_next(count: int = 1) -> None:
        for begin, end in itertools.islice(rest, count):
            left_s = max(0.0, until_s - client.now_s()) if wait_s else 0.0
            some = keys[first + begin : first + end]
            ahead.append((first + end, client.load_prepare(some, wait_s=left_s)))

    ask_for_next(DISK_PARTS if wait_s else 1)
    try:
        while ahead:
            end, pending = ahead[0]
            held = memory.part(done, end)  # while the answer is on its way
            got = pending.wait(max(0.0, until_s - client.now_s()) + client.deadline_s)
            ahead.popleft()
            if got.blocks == end - done and not one_by_one:
                ask_for_next()
            done += _empty(client, got, held, space)
            if done < end:
                if done == begun_at or not _may_come_alone(client, keys[done], ahead, until_s):
                    break
                one_by_one, begun_at, first = True, done, done
                rest = parts(len(keys) - done, most)
            if one_by_one:
                ask_for_next()
    except CALLERS:  # nothing may stay pinned for it until the next call
        for _, pending in ahead:
            pending.wait(client.deadline_s)
        raise
    finally:
        for _, pending in ahead:
            pending.cancel()
    return done


def _may_come_alone(
    client: Client, key: bytes, ahead: deque[tuple[int, PendingLoad]], until_s: float
) -> bool:
    """Whether a part that ended early may have found our own other parts in its way: in a small
    arena those that are asked for at a time are all there is room for. They are given back, and the
    rest of the chain comes part by part, as long as each brings a block."""
    left_s = until_s - client.now_s()
    if left_s <= 0 or not client.lookup([key]).pending:
        return False
    while ahead:
        _, pending = ahead.popleft()
        pending.wait(left_s + client.deadline_s)
        pending.cancel()
    return True


def _shown(client: Client, keys: Sequence[bytes], memory: Memory, space: int) -> int:
    """Copy what can be copied without asking: of a chain that is here as a whole the parts before
    one that has gone meanwhile."""
    session = client.showing()
    if session is None or session.shown is None:
        return 0
    shown, nbytes, done = session.shown, client.spaces[space].page_bytes, 0
    most = min(PART_BLOCKS, PART_BYTES // nbytes or 1)
    if len(keys) > most and shown.look(keys) is None:
        return 0
    while done < len(keys):
        begin, end = done, min(len(keys), done + most)
        some = keys[begin:end]
        if not shown.load(some, lambda: memory.part(begin, end), nbytes, space):  # noqa: B023
            break
        client.note_loaded(session, some)
        done = end
    return done


def _empty(client: Client, load: Load, held: HeldPages, space: int) -> int:
    """Copy out the blocks that were found, and give their pages back; how many. That they could be
    given back shows that they were ours until then."""
    if not load.blocks:
        return 0
    outcome, kept = LoadOutcome.FAILED, False
    try:
        if _copy_out(client, load.pages(space), held.addresses[: load.blocks]):
            outcome = LoadOutcome.LOADED
    finally:
        kept = client.finish_load(load, outcome)
    return load.blocks if kept and outcome is LoadOutcome.LOADED else 0
