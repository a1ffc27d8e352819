"""A page's checksum: one rule for every size, whoever holds the interpreter's lock meanwhile."""

import sys
import threading

import pytest
import xxhash

from onggi_core.wire.requests import SpaceSpec
from onggi_sidecar.disk.checksum import LET_GO_BYTES, page_checksums

SIZES = (4096, LET_GO_BYTES - 1, LET_GO_BYTES, LET_GO_BYTES + 1)


def sums(page_bytes: int, key: bytes, page: bytes) -> list[bytes]:
    return page_checksums(SpaceSpec(b"f" * 16, page_bytes, 16), [key], [memoryview(page)])


@pytest.mark.parametrize("page_bytes", SIZES)
def test_small_and_large_pages_are_proved_by_one_rule(page_bytes: int) -> None:
    page = bytes(range(256)) * (page_bytes // 256 + 1)
    described = b"f" * 16 + page_bytes.to_bytes(8, "little") + (16).to_bytes(4, "little")
    seed = xxhash.xxh3_64_intdigest(described) ^ 5  # of a key whose high half is zero
    key = (5).to_bytes(8, "little") + bytes(8)
    assert sums(page_bytes, key, page[:page_bytes]) == [
        xxhash.xxh3_128_digest(page[:page_bytes], seed)
    ]


def test_other_threads_go_on_while_a_large_page_is_hashed() -> None:
    """With no switch forced, another thread's turn can only come from a lock that was let go of."""
    heard, asked = threading.Event(), threading.Semaphore(0)

    def listen() -> None:
        asked.acquire()
        heard.set()

    page = bytes(LET_GO_BYTES * 64)
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1000.0)
    try:
        listener = threading.Thread(target=listen, daemon=True)
        listener.start()
        asked.release()
        rounds = 0
        while not heard.is_set() and rounds < 1000:
            sums(len(page), bytes(16), page)
            rounds += 1
        assert heard.is_set()
    finally:
        sys.setswitchinterval(interval_s)
    listener.join()
