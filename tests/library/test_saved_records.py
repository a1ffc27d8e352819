"""Records of saved contexts that are damaged, or somebody else's."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

from onggi_library.context import saved  # noqa: E402
from onggi_library.context.errors import ContextLost  # noqa: E402
from onggi_library.context.saved import RECORD_BYTES_MAX, RECORD_PAGE_BYTES, Shelf  # noqa: E402
from onggi_library.in_process import InProcessAgent  # noqa: E402


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    agent = InProcessAgent(memory="64MiB", extent="16MiB", policy="lru")
    found = Shelf(agent.socket, "tests")
    yield found
    found.close()
    agent.close()


def lay(shelf: Shelf, name: str, packed: bytes, length: int | None = None) -> None:
    """A record as it lies in the tiers."""
    whole = struct.pack("<Q", len(packed) if length is None else length) + packed
    count = -(-len(whole) // RECORD_PAGE_BYTES)
    page = bytearray(whole.ljust(count * RECORD_PAGE_BYTES, b"\0"))
    rows = torch.frombuffer(page, dtype=torch.uint8)
    shelf._store.put(saved._keys(name, count), rows)


def test_a_record_that_lies_about_its_length_can_be_taken_away(shelf: Shelf) -> None:
    lay(shelf, "n", b"x", length=2**63)
    with pytest.raises(ContextLost, match=f"at most {RECORD_BYTES_MAX}"):
        shelf.get("n")
    shelf.remove("n")
    assert shelf.get("n") is None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (zlib.compress(b"[" * 200_000), "recursion"),
        (zlib.compress(b" " * (4 * RECORD_BYTES_MAX + 1)), "larger than"),
        (zlib.compress(json.dumps({"version": 1}).encode())[:-6], "cut short"),
        (zlib.compress(b"{}"), "version"),
        (b"no such thing", "header"),
    ],
    ids=["nested", "huge", "cut", "empty", "other"],
)
def test_what_is_no_record_is_told_in_a_sentence(shelf: Shelf, content: bytes, said: str) -> None:
    lay(shelf, "n", content)
    with pytest.raises(ContextLost, match=said):
        shelf.get("n")
