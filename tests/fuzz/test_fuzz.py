"""Readers of foreign bytes: whatever comes, they answer or refuse, in bounded memory."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.fuzz.found import FOUND
from tests.fuzz.targets import PEAK_BYTES, TARGETS

EXAMPLES = 150
BYTES_MAX = 4096

small = st.integers(0, 1 << 16)
chunk = st.one_of(
    st.binary(max_size=12),
    st.sampled_from([b"\xff" * 4, b"\0" * 8, b"[" * 40, b"{", b"1" * 30, b"\xed\xa0\x80", b"null"]),
)
edits = st.lists(
    st.tuples(st.sampled_from(["set", "cut", "put", "repeat"]), small, chunk), max_size=8
)


def mutated(raw: bytes, changes: list[tuple[str, int, bytes]]) -> bytes:
    """A sample with some of its bytes overwritten, left out, added to or said again."""
    for what, where, piece in changes:
        at = where % (len(raw) + 1)
        if what == "set":
            raw = raw[:at] + piece + raw[at + len(piece) :]
        elif what == "cut":
            raw = raw[:at] + raw[at + len(piece) + 1 :]
        elif what == "put":
            raw = raw[:at] + piece + raw[at:]
        else:
            raw = raw[:at] + raw[max(0, at - 88) :]
    return raw[:BYTES_MAX]


@pytest.mark.parametrize("name", TARGETS)
def test_samples_are_understood(name: str) -> None:
    for seed in TARGETS[name].seeds:
        TARGETS[name].one(seed)


@pytest.mark.parametrize("name", TARGETS)
def test_any_bytes_are_read_or_refused(name: str) -> None:
    target = TARGETS[name]
    bytes_of_any_kind = st.one_of(
        st.binary(max_size=400), st.builds(mutated, st.sampled_from(target.seeds), edits)
    )

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(bytes_of_any_kind)
    def tried(data: bytes) -> None:
        target.one(data)

    tried()


@pytest.mark.parametrize(("name", "data"), FOUND)
def test_what_was_found_once_stays_away(name: str, data: bytes) -> None:
    TARGETS[name].one(data)


@pytest.mark.parametrize("name", TARGETS)
def test_memory_stays_in_proportion(name: str) -> None:
    """The largest thing that a few bytes can ask for is refused, not made room for."""
    target = TARGETS[name]
    hostile = [
        *target.seeds,
        *(
            seed[:at] + b"\xff" * 4 + seed[at + 4 :]
            for seed in target.seeds
            for at in range(len(seed))
        ),
    ]
    for data in hostile[:600]:
        tracemalloc.start()
        try:
            target.one(data)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak <= PEAK_BYTES + target.peak * len(data), data[:80]
