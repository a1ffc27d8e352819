"""The wire protocol: what is sent is what arrives, and whatever else arrives is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onggi_core.wire.cut import Cutter, Frame
from onggi_core.wire.frame import (
    DISCARD_KEYS_MAX,
    HEADER,
    KEYS_MAX,
    PAYLOAD_MAX_BYTES,
    Op,
    Status,
    WireError,
    frame,
    refusal,
)
from onggi_core.wire.locate import At, Locate, Located
from onggi_core.wire.packed import fill_frame
from onggi_core.wire.replies import (
    Discarded,
    LoadCompleted,
    LoadPrepared,
    Looked,
    Mode,
    Slot,
    StatsReply,
    StoreCompleted,
    StoreFilled,
    StorePrepared,
    Welcome,
    decode_reply,
)
from onggi_core.wire.requests import (
    Discard,
    Hello,
    LoadComplete,
    Loaded,
    LoadOutcome,
    LoadPrepare,
    Lookup,
    Missed,
    Prefetch,
    SpaceSpec,
    StatsRequest,
    StoreComplete,
    StoreFill,
    StoreOutcome,
    StorePrepare,
    decode_request,
)

u32, u64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
digest = st.binary(min_size=16, max_size=16)
keys = st.lists(digest, max_size=50).map(tuple)
chains = st.lists(keys.filter(bool), max_size=5).map(tuple)
text = st.text(max_size=20)
space = st.builds(SpaceSpec, digest, u64, u32)
requests = st.one_of(
    st.builds(Hello, u32, text, st.lists(space, min_size=1, max_size=4).map(tuple)),
    st.builds(Lookup, keys),
    st.builds(Prefetch, keys),
    st.builds(StorePrepare, st.integers(0, 63), digest, keys),
    st.builds(StoreComplete, u64, st.sampled_from(StoreOutcome)),
    st.builds(StoreFill, u64, st.integers(0, 63), u32, digest, keys),
    st.builds(LoadPrepare, u32, keys),
    st.builds(LoadComplete, u64, st.sampled_from(LoadOutcome), u32),
    st.builds(Loaded, chains),
    st.builds(Missed, chains),
    st.builds(Discard, keys),
    st.builds(Locate, keys),
    st.just(StatsRequest()),
)
rows = st.integers(0, 5).flatmap(
    lambda n: st.lists(st.lists(u64, min_size=n, max_size=n).map(tuple), max_size=3).map(tuple)
)
replies = st.one_of(
    st.builds(
        Welcome,
        st.just(1),
        st.sampled_from(Mode),
        u64,
        digest,
        u64,
        u64,
        u32,
        u32,
        text,
    ),
    st.builds(Looked, u32, u32),
    st.builds(StorePrepared, u64, st.lists(st.one_of(u64, st.sampled_from(Slot))).map(tuple)),
    st.builds(StoreCompleted, u32),
    st.builds(StoreFilled, u32, u32, u64, st.lists(u64).map(tuple)),
    st.builds(LoadPrepared, u64, u32, rows),
    st.just(LoadCompleted()),
    st.builds(Discarded, u32),
    st.builds(Located, st.lists(st.sampled_from(At)).map(bytes)),
    st.builds(StatsReply, st.dictionaries(text, st.integers())),
)


@given(requests)
def test_a_request_arrives_as_it_was_sent(request) -> None:
    assert decode_request(request.op, request.encode()) == request


@given(replies)
def test_a_reply_arrives_as_it_was_sent(reply) -> None:
    assert decode_reply(reply.op, reply.encode()) == reply


def test_many_keys_arrive_in_order() -> None:
    many = tuple(number.to_bytes(16, "big") for number in range(KEYS_MAX))
    assert decode_request(Op.LOOKUP, Lookup(many).encode()) == Lookup(many)


def test_a_discard_of_too_many_is_refused_with_the_bound() -> None:
    many = tuple(number.to_bytes(16, "big") for number in range(DISCARD_KEYS_MAX + 1))
    with pytest.raises(WireError, match="DISCARD has 4097 keys; the limit is 4096") as error:
        decode_request(Op.DISCARD, Discard(many).encode())
    assert error.value.status is Status.BAD_REQUEST


@given(st.sampled_from([*Op, 0, 14, 65535]), st.binary(max_size=200))
def test_garbage_is_refused_in_a_sentence_and_never_breaks_anything(op, payload) -> None:
    refused: list[WireError] = []
    for decode in (decode_request, decode_reply):
        try:
            decode(op, payload)
        except WireError as error:
            refused.append(error)
    assert all(error.sentence and error.status in Status for error in refused)


@given(requests, st.integers(1, 40))
def test_a_cut_or_lengthened_request_is_refused(request, by) -> None:
    raw = request.encode()
    with pytest.raises(WireError):
        decode_request(request.op, raw + b"x" * by)
    if len(raw) >= by:
        with pytest.raises(WireError):
            decode_request(request.op, raw[:-by])


@given(st.lists(st.tuples(u32, st.binary(max_size=60)), max_size=6), st.integers(1, 30))
def test_frames_come_out_whole_however_the_stream_is_cut(sent, piece) -> None:
    stream = b"".join(frame(Op.LOOKUP, 0, number, payload) for number, payload in sent)
    cutter = Cutter()
    got: list[Frame] = []
    for at in range(0, len(stream), piece):
        got += cutter.feed(stream[at : at + piece])
    assert [(f.request_id, f.payload) for f in got] == sent
    assert not cutter.waiting


def test_a_frame_that_announces_too_much_is_refused_before_it_arrives() -> None:
    with pytest.raises(WireError) as error:
        Cutter().feed(HEADER.pack(PAYLOAD_MAX_BYTES + 1, Op.LOOKUP, 0, 1))
    assert error.value.status is Status.TOO_LARGE
    assert str(PAYLOAD_MAX_BYTES + 1) in error.value.sentence


def test_a_payload_over_the_limit_is_not_sent() -> None:
    with pytest.raises(WireError):
        frame(Op.STATS, 0, 1, b"x" * (PAYLOAD_MAX_BYTES + 1))


@pytest.mark.parametrize(
    ("payload", "status", "said"),
    [
        (Hello(1, "e", (SpaceSpec(b"f" * 16, 1, 1),), 2, 9).encode(), Status.BAD_VERSION, "2 to 9"),
        (b"HTTP/1.1 GET /", Status.BAD_FRAME, "begins with b'HTTP'"),
        (Hello(1, "e", ()).encode(), Status.BAD_REQUEST, "names 0 spaces"),
    ],
)
def test_a_hello_that_cannot_be_served_says_why(payload, status, said) -> None:
    with pytest.raises(WireError) as error:
        decode_request(Op.HELLO, payload)
    assert error.value.status is status
    assert said in error.value.sentence


def test_an_outcome_outside_the_list_is_named_with_the_right_ones() -> None:
    with pytest.raises(WireError, match=r"outcome is 7; use 1 \(SEALED\), 2 \(ABANDONED\)"):
        decode_request(Op.STORE_COMPLETE, b"\0" * 8 + b"\7")


def test_a_refusal_is_a_frame_with_a_status_and_a_sentence() -> None:
    (got,) = Cutter().feed(refusal(Op.LOOKUP, Status.TOO_MANY, 5, "no"))
    assert got == Frame(Op.LOOKUP, Status.TOO_MANY, 5, b"no")


@given(u64, u64, st.integers(0, 63), u32, digest, keys)
def test_a_fill_in_one_go_is_the_frame_of_its_request(number, ticket, space, wanted, parent, keys):
    asked = StoreFill(ticket, space, wanted, parent, keys)
    quick = fill_frame(number, ticket, space, wanted, parent, b"".join(keys))
    assert quick == frame(Op.STORE_FILL, 0, number, asked.encode())
