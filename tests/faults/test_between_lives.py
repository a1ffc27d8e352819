"""What may happen to an agent's files while it is away: the next life starts, and never lies.

Damage costs the blocks it hits, never a start and never a wrong byte; what is stored again after
that is there again.
"""

import mmap
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from agent_process import MIB, SMALL, AgentProcess, BareClient, StartAgent, chain, ready, until

from onggi_core.arena_header import RETIRED_EPOCH, ArenaHeader

BLOCKS = 120
"""Two segments' worth."""
FIRST = chain(BLOCKS, seed=1)
LAST = chain(BLOCKS, seed=9)
DISK = ("--disk", "16MiB")


@pytest.fixture(scope="module")
def tier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A disk folder with a life behind it, `now`, and how it was in the middle of that, `then`.
    More was stored between than it holds, so places were written over."""
    folder = tmp_path_factory.mktemp("tier")
    agent = AgentProcess(folder, *SMALL, *DISK, "--disk-path", str(folder / "now"))
    client = ready(agent)
    client.store(FIRST)
    client.wait_until_on_disk(BLOCKS)
    shutil.copytree(folder / "now", folder / "then")
    for seed in (2, 3, 9):
        client.store(chain(BLOCKS, seed=seed))
        until("writes to end", lambda: not _writing(client))
    client.close()
    assert agent.end() == 0
    agent.clean_up()
    return folder


def _writing(client: BareClient) -> int:
    stats = client.stats()
    return int(stats["writes_in_flight"] + stats["dirty_blocks"])


def segments(disk: Path) -> list[Path]:
    return sorted(disk.glob("segment-*"))


def records(disk: Path) -> list[Path]:
    """Whatever else is kept there, but the lock."""
    others = {*disk.iterdir()} - {*segments(disk), disk / "lock"}
    assert others
    return sorted(others)


def flip_bits(path: Path, count: int, *, seed: int) -> None:
    dice = random.Random(seed)
    raw = bytearray(path.read_bytes())
    for _ in range(count):
        raw[dice.randrange(len(raw))] ^= 1 << dice.randrange(8)
    path.write_bytes(raw)


def cut(path: Path, share: float) -> None:
    with path.open("r+b") as file:
        file.truncate(int(path.stat().st_size * share))


def swap(first: Path, second: Path) -> None:
    spare = first.with_name("spare")
    first.rename(spare)
    second.rename(first)
    spare.rename(second)


def swap_pages(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    one, two, page = 4096 + 65536, 4096 + 5 * 65536, 65536
    raw[one : one + page], raw[two : two + page] = raw[two : two + page], raw[one : one + page]
    path.write_bytes(raw)


def replace(names: Callable[[Path], list[Path]], disk: Path, by: Path) -> None:
    """Put what another time left in the place of what is there."""
    for path in names(disk):
        path.unlink()
    for path in names(by):
        shutil.copy(path, disk / path.name)


def garble(path: Path) -> None:
    path.write_bytes(random.Random(5).randbytes(path.stat().st_size))


Damage = Callable[[Path, Path], object]
"""disk, and how it was at an earlier time."""

DAMAGES: dict[str, Damage] = {
    "a segment cut to half": lambda disk, _: cut(segments(disk)[0], 0.5),
    "a segment cut to nothing": lambda disk, _: cut(segments(disk)[0], 0),
    "two segments swapped": lambda disk, _: swap(*segments(disk)[:2]),
    "two pages swapped": lambda disk, _: swap_pages(segments(disk)[0]),
    "bits flipped in every segment": lambda disk, _: [
        flip_bits(path, 50, seed=n) for n, path in enumerate(segments(disk))
    ],
    "a segment gone": lambda disk, _: segments(disk)[1].unlink(),
    "bits flipped in the records": lambda disk, _: [
        flip_bits(path, 20, seed=n) for n, path in enumerate(records(disk))
    ],
    "records cut to half": lambda disk, _: [cut(path, 0.5) for path in records(disk)],
    "records cut to nothing": lambda disk, _: [cut(path, 0) for path in records(disk)],
    "records gone": lambda disk, _: [path.unlink() for path in records(disk)],
    "records garbled": lambda disk, _: [garble(path) for path in records(disk)],
    "records of an earlier time": lambda disk, then: replace(records, disk, then),
    "segments of an earlier time": lambda disk, then: replace(segments, disk, then),
}


ALSO = {
    "a segment cut to nothing",
    "two segments swapped",
    "a segment gone",
    "records cut to nothing",
    "records garbled",
    "segments of an earlier time",
}
"""Near to one of the others, so they are tried where there is more time."""


@pytest.mark.parametrize(
    "what",
    [pytest.param(what, marks=[pytest.mark.soak] if what in ALSO else []) for what in DAMAGES],
)
def test_damage_while_the_agent_is_away_is_never_a_wrong_byte(
    what: str, tier: Path, start: StartAgent, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    shutil.copytree(tier / "now", disk)
    DAMAGES[what](disk, tier / "then")
    agent = start(*DISK, "--disk-path", str(disk))
    client = ready(agent)
    for seed in (1, 2, 3, 9):
        for key, page in chain(BLOCKS, seed=seed).items():
            assert client.load((key,)) in ([], [page])
    client.store(LAST)
    assert client.load(tuple(LAST)) == list(LAST.values())
    client.close()
    assert agent.end() == 0
    assert sum(p.stat().st_blocks * 512 for p in disk.iterdir()) <= 16 * MIB


def test_without_damage_the_next_life_has_it_all(
    tier: Path, start: StartAgent, tmp_path: Path
) -> None:
    shutil.copytree(tier / "now", tmp_path / "disk")
    client = ready(start(*DISK, "--disk-path", str(tmp_path / "disk")))
    assert client.load(tuple(LAST)) == list(LAST.values())
    client.close()


VERSION_1 = struct.pack("<8sII16sQIIQ", b"ONGGIARN", 1, 56, b"e" * 16, MIB, 16, 16, 2 * MIB)

ARENAS = {
    "of another epoch": ArenaHeader(b"e" * 16, MIB, 16).pack(),
    "of an older version": VERSION_1,
    "of a version to come": b"ONGGIARN" + (99).to_bytes(4, "little") + b"????" + b"e" * 16,
}


@pytest.mark.parametrize("which", ARENAS)
def test_an_arena_left_behind_is_taken_back_from_whoever_still_maps_it(
    which: str, start: StartAgent, memory_folder: Path
) -> None:
    """A client of another version may be attached to it: its epoch goes, whatever else it is."""
    with (memory_folder / "arena").open("w+b") as file:
        file.write(ARENAS[which].ljust(18 * MIB, b"\xee"))
        file.flush()
        mapped = mmap.mmap(file.fileno(), 0)
    client = ready(start())
    assert mapped[16:32] == RETIRED_EPOCH
    assert mapped[4096:8192] == bytes(4096)
    blocks = chain(100)
    client.store(blocks)
    assert mapped[2 * MIB : 3 * MIB] == bytes(MIB)
    assert client.load(tuple(blocks)) == list(blocks.values())
    client.close()
    mapped.close()


def test_what_is_no_arena_is_replaced(start: StartAgent, memory_folder: Path) -> None:
    (memory_folder / "arena").write_bytes(b"")
    (memory_folder / "arena.new").write_bytes(b"\xee" * 10_000)
    client = ready(start())
    assert client.store(chain(3)) == 3
    assert not (memory_folder / "arena.new").exists()
    client.close()
