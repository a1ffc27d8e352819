"""What a board shows of an agent that died, for the one that takes over: every block, once.

The board lies in a file that others can write, so nothing of it is believed before it was looked
at: places inside an extent of the arena, pages of one size an extent, no page and no block twice.
What does not fit is left out.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from onggi_core.board.layout import GATE_BYTES, KEY_BYTES, SPACE, SPACES_MAX, Layout
from onggi_core.geometry import ALIGN_BYTES, stride
from onggi_core.wire.requests import SpaceSpec


@dataclass(slots=True)
class Held:
    """Blocks of one space in one extent, those shown first first. places: in bytes from the start
    of the data."""

    space: SpaceSpec
    keys: list[bytes] = field(default_factory=list)
    parents: list[bytes] = field(default_factory=list)
    places: list[int] = field(default_factory=list)


def survey(board: bytes, slots: int, *, extent_bytes: int, extents: int) -> dict[int, list[Held]]:
    """What each extent holds. board: Layout(slots).nbytes bytes."""
    layout = Layout(slots)
    spaces = _spaces(board, extent_bytes)
    tags = array("I", board[layout.tags_at : layout.places_at])
    places = array("I", board[layout.places_at : layout.stamps_at])
    stamps = array("Q", board[layout.stamps_at : layout.beginnings_at])
    found: dict[int, dict[int, Held]] = {}
    sizes: dict[int, int] = {}
    """Extent -> the room its pages take."""
    seen: set[int | tuple[int, bytes]] = set()
    for slot in sorted(filter(stamps.__getitem__, range(slots)), key=stamps.__getitem__):
        tag, place = tags[slot], places[slot] * ALIGN_BYTES
        spec, (extent, within) = spaces.get(tag), divmod(place, extent_bytes)
        if spec is None or extent >= extents:
            continue
        room = stride(spec.page_bytes)
        at = layout.keys_at + slot * KEY_BYTES
        key = board[at : at + KEY_BYTES]
        fits = within % room == 0 and within + room <= extent_bytes
        if not fits or sizes.setdefault(extent, room) != room or {place, (tag, key)} & seen:
            continue
        seen.update((place, (tag, key)))
        held = found.setdefault(extent, {}).setdefault(tag, Held(spec))
        held.keys.append(key)
        held.parents.append(board[at + KEY_BYTES * slots : at + KEY_BYTES * (slots + 1)])
        held.places.append(place)
    return {extent: list(spaces_of.values()) for extent, spaces_of in found.items()}


def _spaces(board: bytes, extent_bytes: int) -> dict[int, SpaceSpec]:
    """What tags mean, those whose pages an extent has room for."""
    end = GATE_BYTES + SPACES_MAX * SPACE.size
    return {
        tag: SpaceSpec(fingerprint, page_bytes, tokens)
        for fingerprint, page_bytes, tokens, tag in SPACE.iter_unpack(board[GATE_BYTES:end])
        if tag and tokens and 0 < page_bytes <= extent_bytes
    }
