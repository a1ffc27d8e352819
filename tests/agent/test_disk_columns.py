"""What a restart hands to the engine: whole, and roughly least recently used first."""

import random
from array import array
from pathlib import Path

from onggi_core.engine.events import Adopted
from onggi_core.wire.requests import SpaceSpec
from onggi_sidecar.disk.columns import AGES, adopted_columns
from onggi_sidecar.disk.layout import (
    BLOCK_RECORDS,
    COUNT_MASK,
    HEADER,
    SECONDS_VERSION,
    TABLE_VERSION,
    USE_BYTES,
    TableLayout,
    with_crc,
)
from onggi_sidecar.disk.scan import scan_table
from onggi_sidecar.disk.table import PageTable, TableState

PAGE = 4096
SEGMENT_BYTES = 4096 * PAGE
SPACES = (SpaceSpec(b"a" * 16, PAGE, 16), SpaceSpec(b"b" * 16, PAGE - 96, 16))
RUN = 16


def key(number: int) -> bytes:
    return number.to_bytes(16, "big")


def table_of(path: Path, used_s: list[int]) -> dict[bytes, tuple[SpaceSpec, int]]:
    """A table with a run for each of used_s, of two spaces by turns; what each key should say."""
    table = PageTable(path, TableState(b"u" * 16, SEGMENT_BYTES))
    said: dict[bytes, tuple[SpaceSpec, int]] = {}
    for number, now_s in enumerate(used_s):
        first, spec = number * RUN, SPACES[number % 2]
        keys = [key(first + n) for n in range(RUN)]
        place = first * PAGE
        table.assign(place // SEGMENT_BYTES, PAGE)
        table.put(
            spec,
            place,
            stride_bytes=PAGE,
            keys=keys,
            parents=[key(10**9 + first + n) for n in range(RUN)],
            checksums=[key(10**12 + first + n) for n in range(RUN)],
            now_s=now_s,
        )
        said |= {name: (spec, place + n * PAGE) for n, name in enumerate(keys)}
    table.seal(1.0, wait_s=10.0)
    table.close()
    return said


def adopted(path: Path) -> list[Adopted]:
    scanned = scan_table(path, budget_bytes=1 << 30)
    return adopted_columns(scanned, scanned.spaces)


def test_every_record_comes_back_once_with_all_it_says(tmp_path: Path) -> None:
    dice = random.Random(1)
    said = table_of(tmp_path / "table", [dice.randrange(1, 10**6) for _ in range(700)])
    events = adopted(tmp_path / "table")
    assert {event.space for event in events} == set(SPACES)
    found = {
        name: (event.space, place)
        for event in events
        for name, place in zip(event.keys, event.places, strict=True)
    }
    assert found == said
    for event in events:
        numbers = [int.from_bytes(name, "big") for name in event.keys]
        assert list(event.parents) == [key(10**9 + n) for n in numbers]
        assert list(event.checksums) == [key(10**12 + n) for n in numbers]
        assert event.parents[3] == key(10**9 + numbers[3])
        assert event.checksums[-1] == key(10**12 + numbers[-1])
        assert event.checksums[1:3] == [key(10**12 + n) for n in numbers[1:3]]
        assert len(event.parents) == len(numbers)


def test_blocks_used_longer_ago_come_first_to_within_an_age(tmp_path: Path) -> None:
    runs = 2000
    used_s = list(range(1, runs + 1))
    random.Random(2).shuffle(used_s)
    table_of(tmp_path / "table", used_s)
    for event in adopted(tmp_path / "table"):
        uses = [used_s[int.from_bytes(name, "big") // RUN] for name in event.keys]
        off = [abs(use / runs - at / len(uses)) for at, use in enumerate(uses)]
        assert max(off) <= 2 / AGES


def test_uses_outlive_the_agent_and_a_page_of_a_run_keeps_its_own(tmp_path: Path) -> None:
    path = tmp_path / "table"
    table_of(path, [100] * 10)
    scanned = scan_table(path, budget_bytes=1 << 30)
    table = PageTable(path, scanned.state())
    table.touch(3 * PAGE, PAGE, bytes([0, 5]), 200.0)
    table.write_uses()
    table.close()
    uses = scan_table(path, budget_bytes=1 << 30).regions[0].uses
    assert uses[:7] == array("I", [96, 96, 96, 200, 205, 96, 96])
    assert set(uses[10 * RUN :]) == {0}


def test_how_often_pages_were_asked_for_comes_back_with_them(tmp_path: Path) -> None:
    path = tmp_path / "table"
    table_of(path, [100] * 200)
    table = PageTable(path, scan_table(path, budget_bytes=1 << 30).state())
    dice = random.Random(3)
    counts = {at: dice.choice([bytes(5), bytes([3] * 5), dice.randbytes(5)]) for at in (2, 90, 700)}
    counts = {at: bytes(count & COUNT_MASK for count in some) for at, some in counts.items()}
    for at, some in counts.items():
        table.touch(at * PAGE, PAGE, some, 200.0)
    table.seal(1.0, wait_s=10.0)
    table.close()
    wanted = {key(at + n): count for at, some in counts.items() for n, count in enumerate(some)}
    for event in adopted(path):
        assert event.ages[-1] == len(event.keys)
        for name, count in zip(event.keys, event.counts, strict=True):
            assert count == wanted.get(name, 0)


def test_a_table_whose_uses_are_seconds_alone_is_read_and_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "table"
    said = table_of(path, [103] * 100 + [1007] * 100)
    raw = bytearray(path.read_bytes())
    fields = (*HEADER.unpack_from(raw)[:1], SECONDS_VERSION, *HEADER.unpack_from(raw)[2:])
    raw[: HEADER.size + 4] = with_crc(HEADER.pack(*fields))
    at = TableLayout(SEGMENT_BYTES).uses_offset(0, PAGE)
    old_s = array("I", [103] * 1600 + [1007] * 1600)
    raw[at : at + len(old_s) * USE_BYTES] = old_s.tobytes()
    path.write_bytes(raw)
    for _ in range(2):  # as it is found, and as it is written
        scanned = scan_table(path, budget_bytes=1 << 30)
        assert scanned.regions[0].uses[: len(old_s)] == array("I", [96] * 1600 + [1000] * 1600)
        state = scanned.state()
        events = adopted_columns(scanned, scanned.spaces)
        assert {name for event in events for name in event.keys} == said.keys()
        assert {count for event in events for count in event.counts} == {0}
        PageTable(path, state).close()
    assert HEADER.unpack_from(path.read_bytes())[1] == TABLE_VERSION


def test_what_was_forgotten_is_free_in_whichever_block_it_lies(tmp_path: Path) -> None:
    path = tmp_path / "table"
    said = table_of(path, [1] * 20)
    scanned = scan_table(path, budget_bytes=1 << 30)
    table = PageTable(path, scanned.state())
    gone = {0, 5, BLOCK_RECORDS - 1, BLOCK_RECORDS, 3 * BLOCK_RECORDS + 1}
    for slot in gone:
        table.forget(slot * PAGE)
    table.seal(1.0, wait_s=10.0)
    table.close()
    left = {name for event in adopted(path) for name in event.keys}
    assert left == said.keys() - {key(slot) for slot in gone}


def test_numbers_of_spaces_that_hold_nothing_are_given_away_again(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr("onggi_sidecar.disk.table.SPACES_MAX", 2)
    table = PageTable(tmp_path / "table", TableState(b"u" * 16, SEGMENT_BYTES))
    table.assign(0, PAGE)
    for number in range(5):  # each at the place of the one before: only the last holds anything
        spec = SpaceSpec(key(number), PAGE, 16)
        one = [key(number)]
        table.put(spec, 0, stride_bytes=PAGE, keys=one, parents=one, checksums=one, now_s=1.0)
    table.close()
    (event,) = adopted(tmp_path / "table")
    assert event.space.fingerprint == key(4)
