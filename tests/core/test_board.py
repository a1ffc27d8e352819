"""What the agent shows and a reader sees: the same, or nothing, and never what has gone."""

from __future__ import annotations

import zlib
from array import array

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onggi_core.board.layout import SLOTS_MAX, SLOTS_MIN, Layout, slots_for
from onggi_core.board.reader import BoardReader
from onggi_core.board.survey import Held, survey
from onggi_core.board.writer import Board
from onggi_core.errors import IllegalMove
from onggi_core.identity import ROOT, block_key
from onggi_core.wire.requests import SpaceSpec

MIB = 1 << 20


def make(slots: int = SLOTS_MIN) -> tuple[Board, BoardReader]:
    buffer = bytearray(Layout(slots).nbytes)
    board = Board(buffer, slots)
    board.open()
    return board, BoardReader(buffer, slots)


def chain(name: str, blocks: int) -> list[bytes]:
    keys, above = [], ROOT
    for at in range(blocks):
        above = block_key(above, f"{name}/{at}".encode())
        keys.append(above)
    return keys


def show(board: Board, blocks: range, keys: list[bytes], tag: int = 1) -> None:
    board.show(blocks, tag, keys, [ROOT, *keys[:-1]], array("I", blocks))


def units(reader: BoardReader, keys: list[bytes], tag: int = 1) -> list[int]:
    return list(reader.look(tag, b"".join(keys)).units)


def test_a_chain_is_found_whole_from_any_block_and_only_in_its_space() -> None:
    board, reader = make()
    keys = chain("a", 20)
    show(board, range(100, 120), keys)
    assert units(reader, keys) == list(range(100, 120))
    assert units(reader, keys[7:]) == list(range(107, 120))
    assert units(reader, [*keys[:5], *chain("b", 3)]) == list(range(100, 105))
    assert units(reader, chain("b", 3)) == []
    assert units(reader, keys, tag=2) == []


def test_what_was_stored_in_parts_is_found_over_their_borders() -> None:
    board, reader = make()
    keys, other = chain("a", 12), chain("b", 5)
    show(board, range(4), keys[:4])
    show(board, range(50, 55), other)
    show(board, range(4, 12), keys[4:])
    assert units(reader, keys) == list(range(12))
    assert len(reader.look(1, b"".join(keys)).stamps) == 2


def test_the_same_key_in_two_spaces_is_two_blocks() -> None:
    board, reader = make()
    keys = chain("a", 3)
    show(board, range(3), keys, tag=1)
    show(board, range(10, 13), keys, tag=2)
    assert (units(reader, keys, 1), units(reader, keys, 2)) == ([0, 1, 2], [10, 11, 12])


def test_what_was_taken_off_is_not_found_and_a_copy_of_it_not_believed() -> None:
    board, reader = make()
    keys = chain("a", 8)
    show(board, range(8), keys)
    seen = reader.look(1, b"".join(keys))
    assert reader.still(seen)
    board.take_off(range(6, 8))
    assert not reader.still(seen)
    assert units(reader, keys) == [0, 1, 2, 3, 4, 5]
    assert reader.still(reader.look(1, b"".join(keys[:6])))


def test_the_same_block_at_the_same_place_again_is_another_showing() -> None:
    board, reader = make()
    keys = chain("a", 2)
    show(board, range(2), keys)
    seen = reader.look(1, b"".join(keys))
    board.take_off(range(2))
    show(board, range(2), keys)
    assert units(reader, keys) == [0, 1]
    assert not reader.still(seen), "its page may have held something else meanwhile"


def test_a_closed_gate_says_that_nothing_counts() -> None:
    board, reader = make()
    assert reader.open
    board.close()
    assert not reader.open


def test_a_full_board_leaves_blocks_out_and_has_room_again() -> None:
    board, reader = make()
    keys = chain("a", SLOTS_MIN + 3)
    show(board, range(SLOTS_MIN + 3), keys)
    assert units(reader, keys) == list(range(SLOTS_MIN))
    assert (board.shown_blocks, board.unshown_blocks) == (SLOTS_MIN, 3)
    board.take_off(range(SLOTS_MIN + 3))
    assert board.shown_blocks == 0
    show(board, range(SLOTS_MIN), keys[3:])
    assert units(reader, keys[3:]) == list(range(SLOTS_MIN))


def test_showing_a_block_twice_is_a_fault_that_changes_nothing() -> None:
    board, reader = make()
    keys = chain("a", 3)
    show(board, range(3), keys)
    with pytest.raises(IllegalMove, match="board"):
        show(board, range(2, 5), chain("b", 3))
    assert units(reader, chain("b", 3)) == []
    assert board.shown_blocks == 3


def test_names_of_one_bucket_are_found_behind_others_when_it_is_full() -> None:
    """Keys are hashes, but nobody has to choose them so."""
    board, reader = make()
    layout, alike, number = board.layout, [], 0
    while len(alike) < 12:
        key = number.to_bytes(16, "big")
        if layout.bucket(1, key) == 5:
            alike.append(key)
        number += 1
    show(board, range(12), alike)
    assert units(reader, alike) == list(range(12))
    assert units(reader, alike[11:]) == [], "it has no entry, so it is asked for over the socket"
    board.take_off(range(4))
    show(board, range(20, 21), [(1 << 100).to_bytes(16, "big")])
    assert units(reader, alike[4:]) == list(range(4, 12))


SMALL = SpaceSpec(b"s" * 16, 4096, 16)
LARGE = SpaceSpec(b"l" * 16, 10_000, 32)


def surveyed(board: Board, extents: int = 4) -> dict[int, list[Held]]:
    slots = board.layout.slots
    return survey(bytes(board.buffer), slots, extent_bytes=16 * 4096, extents=extents)


def test_a_survey_finds_every_block_by_extent_and_space_in_the_order_of_showing() -> None:
    board, _ = make()
    board.name_space(0, 1, SMALL)
    board.name_space(1, 2, LARGE)
    keys, other = chain("a", 3), chain("b", 2)
    board.show(range(3), 1, keys, [ROOT, *keys[:-1]], array("I", [17, 16, 2]))
    board.show(range(5, 7), 2, other, [ROOT, other[0]], array("I", [32, 35]))
    assert surveyed(board) == {
        0: [Held(SMALL, [keys[2]], [keys[1]], [2 * 4096])],
        1: [Held(SMALL, keys[:2], [ROOT, keys[0]], [17 * 4096, 16 * 4096])],
        2: [Held(LARGE, other, [ROOT, other[0]], [32 * 4096, 35 * 4096])],
    }
    board.take_off(range(3))
    assert list(surveyed(board)) == [2]
    assert surveyed(board, extents=2) == {}


def test_a_survey_leaves_out_what_cannot_be() -> None:
    """Whoever can open the arena can write to it."""
    board, _ = make()
    board.name_space(0, 1, SMALL)
    board.name_space(1, 2, LARGE)
    board.name_space(2, 3, SpaceSpec(b"z" * 16, 1 << 60, 16))
    keys = chain("a", 8)
    for number, (tag, unit) in enumerate(
        [(1, 0), (1, 0), (2, 3), (9, 4), (3, 5), (1, 64), (2, 17), (2, 31)]
    ):
        board.show([number], tag, [keys[number]], [ROOT], array("I", [unit]))
    board.show([20], 1, [keys[0]], [ROOT], array("I", [1]))
    assert surveyed(board) == {0: [Held(SMALL, [keys[0]], [ROOT], [0])]}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_survey_of_any_bytes_holds_pages_that_could_be(data: st.DataObject) -> None:
    board, _ = make()
    board.name_space(0, 1, SMALL)
    board.name_space(1, 2, LARGE)
    show(board, range(40), chain("a", 40))
    for _ in range(data.draw(st.integers(1, 30))):
        at = data.draw(st.integers(0, board.layout.nbytes - 1))
        board.buffer[at] = data.draw(st.integers(0, 255))
    taken: set[int] = set()
    for extent, held in surveyed(board).items():
        assert 0 <= extent < 4
        assert len({-(-part.space.page_bytes // 4096) for part in held}) == 1
        for part in held:
            for place in part.places:
                units = range(place // 4096, place // 4096 - (-part.space.page_bytes // 4096))
                assert extent * 16 <= units.start <= units.stop <= (extent + 1) * 16
                assert not taken & set(units)
                taken.update(units)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_reader_sees_what_is_shown_after_any_changes(data: st.DataObject) -> None:
    board, reader = make()
    prompts = [chain(f"p{number}", 24) for number in range(4)]
    shown: dict[int, int] = {}
    """block -> place"""
    for step in range(data.draw(st.integers(1, 40))):
        prompt = data.draw(st.integers(0, 3))
        begin = data.draw(st.integers(0, 23))
        blocks = range(prompt * 24 + begin, prompt * 24 + data.draw(st.integers(begin, 24)))
        if data.draw(st.booleans()):
            fresh = [block for block in blocks if block not in shown]
            places = array("I", [1000 * step + block for block in fresh])
            keys = [prompts[prompt][block % 24] for block in fresh]
            board.show(fresh, 1, keys, [ROOT] * len(fresh), places)
            shown.update(zip(fresh, places, strict=True))
        else:
            board.take_off(blocks)
            for block in blocks:
                shown.pop(block, None)
    assert board.shown_blocks == len(shown)
    for number, keys in enumerate(prompts):
        begin = data.draw(st.integers(0, 23))
        expected = []
        for at in range(begin, 24):
            if number * 24 + at not in shown:
                break
            expected.append(shown[number * 24 + at])
        assert units(reader, keys[begin:]) == expected


def test_the_bytes_are_those_of_the_format() -> None:
    buffer = bytearray(Layout(SLOTS_MIN).nbytes)
    board = Board(buffer, SLOTS_MIN)
    board.open()
    key = bytes(range(16))
    board.name_space(2, 3, SpaceSpec(b"f" * 16, 65_536, 16))
    board.show([7], 3, [key], [b"p" * 16], array("I", [0x1234]))
    buckets = SLOTS_MIN // 4
    buckets_at = 4096 + 32 * 1024
    keys_at = buckets_at + buckets * 64
    bucket = zlib.crc32(key, 3) % buckets
    assert buffer[:8] == (1).to_bytes(8, "little")
    assert buffer[4096 + 64 : 4096 + 96] == (
        b"f" * 16
        + (65_536).to_bytes(8, "little")
        + (16).to_bytes(4, "little")
        + (3).to_bytes(4, "little")
    )
    assert buffer[buckets_at + bucket * 64 :][:8] == key[12:16] + (1).to_bytes(4, "little")
    assert buffer[keys_at : keys_at + 16] == key
    parents_at = keys_at + 16 * SLOTS_MIN
    assert buffer[parents_at : parents_at + 16] == b"p" * 16
    tags_at = parents_at + 16 * SLOTS_MIN
    assert buffer[tags_at : tags_at + 4] == (3).to_bytes(4, "little")
    places_at = tags_at + 4 * SLOTS_MIN
    assert buffer[places_at : places_at + 4] == (0x1234).to_bytes(4, "little")
    stamps_at = places_at + 4 * SLOTS_MIN
    assert buffer[stamps_at : stamps_at + 8] == (1).to_bytes(8, "little")
    assert buffer[8:16] == (16_384).to_bytes(8, "little")
    beginnings_at = stamps_at + 8 * SLOTS_MIN
    board.beginnings.add(1, bytes(16) + key)
    assert [at for at, count in enumerate(buffer[beginnings_at:]) if count] == [0x0100]
    assert len(buffer) == beginnings_at + 16_384


@pytest.mark.parametrize(
    ("arena_bytes", "slots"),
    [(MIB, SLOTS_MIN), (64 * MIB, 4096), (100 * MIB, 8192), (1 << 50, SLOTS_MAX)],
)
def test_an_arenas_board_has_a_slot_for_its_smallest_pages(arena_bytes: int, slots: int) -> None:
    assert slots_for(arena_bytes) == slots
    assert Layout(SLOTS_MAX).nbytes <= 33 * MIB
