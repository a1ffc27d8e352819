"""Everything that reads bytes from elsewhere, each as one function of bytes.

A target returns quietly if the bytes were understood or refused with the documented exception, and
raises AssertionError (or whatever the reader raised) otherwise. What was understood must survive
being written and read again.
"""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.fuzz import samples, tier

from onggi_core.arena_header import HEADER_BYTES, NotAnArena, parse_header
from onggi_core.heartbeat import (
    HeartbeatError,
    dump_directive,
    dump_heartbeat,
    parse_directive,
    parse_heartbeat,
)
from onggi_core.quantity import QuantityError, parse_size
from onggi_core.replay.trace import Trace, TraceRefused
from onggi_core.wire.cut import Cutter
from onggi_core.wire.frame import HEADER_BYTES as FRAME_HEADER_BYTES
from onggi_core.wire.frame import PAYLOAD_MAX_BYTES, Status, WireError, frame
from onggi_core.wire.replies import decode_reply
from onggi_core.wire.requests import decode_request
from onggi_sidecar.config import ConfigRefused, load_config
from onggi_sidecar.disk.segment import DamagedSegment, open_segment

OPS: Final = 14
"""Operations tried: all there are and some that there are not."""
_FOLDER: Final = tempfile.TemporaryDirectory(prefix="onggi-fuzz-")


def frames(data: bytes) -> None:
    """A stream is cut into the same frames in one piece and in many, and joins to itself again."""
    pieces, stream = (data[0] % 50 + 1 if data else 1), data[1:]
    whole, why = _cut([stream])
    parts, why_parts = _cut([stream[at : at + pieces] for at in range(0, len(stream), pieces)])
    assert (whole, why) == (parts, why_parts) or why, "how a stream arrives changes its frames"
    again = b"".join(frame(f.op, f.status, f.request_id, f.payload) for f in whole)
    assert stream.startswith(again)
    if not why:
        assert len(stream) - len(again) <= FRAME_HEADER_BYTES + PAYLOAD_MAX_BYTES


def _cut(pieces: list[bytes]) -> tuple[list, str]:
    cutter, found = Cutter(), []
    try:
        for piece in pieces:
            found += cutter.feed(piece)
    except WireError as refused:
        if refused.status is not Status.TOO_LARGE:
            raise
        return found, refused.sentence
    return found, ""


def requests(data: bytes) -> None:
    """The first byte is the operation, the rest the payload."""
    op, payload = (data[0] % OPS if data else 0), data[1:]
    try:
        request = decode_request(op, payload)
    except WireError:
        return
    assert request.encode() == payload, "two payloads mean one request"
    assert decode_request(op, request.encode()) == request


def replies(data: bytes) -> None:
    op, payload = (data[0] % OPS if data else 0), data[1:]
    try:
        reply = decode_reply(op, payload)
    except WireError:
        return
    assert repr(decode_reply(op, reply.encode())) == repr(reply)


def arena_header(data: bytes) -> None:
    try:
        header = parse_header(data)
    except NotAnArena:
        return
    assert header.pack() == data[:HEADER_BYTES]


def heartbeat(data: bytes) -> None:
    try:
        beat = parse_heartbeat(data)
    except HeartbeatError:
        return
    assert parse_heartbeat(dump_heartbeat(beat)) == beat


def directive(data: bytes) -> None:
    try:
        found = parse_directive(data)
    except HeartbeatError:
        return
    assert parse_directive(dump_directive(found)) == found


def segment(data: bytes) -> None:
    """A segment file's header, as found or (first byte even) with its CRC made right."""
    raw = data[1:]
    if data[:1] and data[0] % 2 == 0 and len(raw) >= samples.SEGMENT_CRC_AT:
        fields = raw[: samples.SEGMENT_CRC_AT]
        raw = fields + zlib.crc32(fields).to_bytes(4, "little") + raw[samples.SEGMENT_CRC_AT + 4 :]
    path = Path(_FOLDER.name, "segment-000003")
    path.write_bytes(raw)
    try:
        device = open_segment(
            path, tier_uuid=samples.TIER_UUID, segment_bytes=samples.SEGMENT_BYTES
        )
    except DamagedSegment:
        return
    device.close()
    assert raw[: samples.SEGMENT_CRC_AT] == samples.SEGMENT[: samples.SEGMENT_CRC_AT]


def config_file(data: bytes) -> None:
    path = Path(_FOLDER.name, "agent.yaml")
    path.write_bytes(data)
    try:
        load_config({"config": str(path)}, {})
    except ConfigRefused:
        return


def config_environment(data: bytes) -> None:
    """Lines of NAME=value, as far as an environment can hold them."""
    text = data.decode("utf-8", "surrogateescape")
    pairs = (line.partition("=") for line in text.splitlines())
    environment = {f"ONGGI_AGENT_{name.upper()}": value for name, _, value in pairs}
    try:
        load_config({}, environment)
    except ConfigRefused:
        return


def trace(data: bytes) -> None:
    """One number and one key for each different id, whatever the order."""
    found = Trace()
    try:
        prompts = list(found.read(data.decode("utf-8", "replace").splitlines()))
    except TraceRefused:
        return
    named = {pair for prompt in prompts for pair in zip(prompt.blocks, prompt.keys, strict=True)}
    assert len(named) == len({key for _, key in named}) == found.distinct
    assert {block for block, _ in named} == set(range(found.distinct))


def size(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    try:
        found = parse_size(text)
    except QuantityError:
        return
    assert found >= 0
    assert parse_size(str(found)) == found


@dataclass(frozen=True, slots=True)
class Target:
    """peak: bytes of memory it may take for each byte it reads, beside PEAK_BYTES."""

    one: Callable[[bytes], None]
    seeds: tuple[bytes, ...]
    peak: int = 64


TARGETS: Final = {
    "frames": Target(frames, samples.FRAMES),
    "requests": Target(requests, samples.REQUESTS),
    "replies": Target(replies, samples.REPLIES, peak=200),
    "arena_header": Target(arena_header, samples.ARENA_HEADERS),
    "heartbeat": Target(heartbeat, samples.HEARTBEATS, peak=200),
    "directive": Target(directive, samples.DIRECTIVES, peak=200),
    "segment": Target(segment, samples.SEGMENTS),
    "tier": Target(tier.tier, tier.SEEDS, peak=4000),
    "config_file": Target(config_file, samples.CONFIG_FILES, peak=4000),
    "config_environment": Target(config_environment, samples.ENVIRONMENTS, peak=1000),
    "trace": Target(trace, samples.TRACES, peak=400),
    "size": Target(size, samples.SIZES),
}
PEAK_BYTES: Final = 8 * 1024 * 1024
