"""Right bytes of every kind: where mutation begins."""

from __future__ import annotations

from typing import Final

from onggi_core.arena_header import ArenaHeader
from onggi_core.heartbeat import (
    Directive,
    Heartbeat,
    Lookups,
    Mode,
    TierBlocks,
    TierBytes,
    dump_directive,
    dump_heartbeat,
)
from onggi_core.wire import replies
from onggi_core.wire.frame import Op, frame
from onggi_core.wire.locate import Locate, Located
from onggi_core.wire.replies import (
    Discarded,
    LoadCompleted,
    LoadPrepared,
    Looked,
    Slot,
    StatsReply,
    StoreCompleted,
    StoreFilled,
    StorePrepared,
    Welcome,
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
)
from onggi_sidecar.disk.segment import pack_segment_header

TIER_UUID: Final = b"u" * 16
SEGMENT_BYTES: Final = 4 * 1024 * 1024
SEGMENT_CRC_AT: Final = 40
_KEYS: Final = tuple(bytes([n]) * 16 for n in range(3))
_SPACES: Final = (SpaceSpec(b"f" * 16, 4096, 16), SpaceSpec(b"g" * 16, 12289, 16))


_ASKED = (
    Hello(7, "vllm", _SPACES),
    Lookup(_KEYS),
    Prefetch(_KEYS),
    StorePrepare(1, bytes(16), _KEYS),
    StoreComplete(9, StoreOutcome.SEALED),
    StoreFill(9, 1, 4, bytes(16), _KEYS),
    LoadPrepare(1000, _KEYS),
    LoadComplete(9, LoadOutcome.LOADED, 3),
    Loaded((_KEYS[:1], _KEYS)),
    Missed((_KEYS,)),
    Discard(_KEYS),
    Locate(_KEYS),
    StatsRequest(),
)
_SAID = (
    Welcome(1, replies.Mode.ACTIVE, 3, b"e" * 16, 1 << 30, 1 << 21, 1 << 26, 30000, "arena"),
    Looked(2, 3),
    StorePrepared(4, (4096, int(Slot.EXISTS), int(Slot.NO_ROOM))),
    StoreCompleted(3),
    StoreFilled(2, 1, 10, (4096, 8192)),
    LoadPrepared(5, 1, ((0, 4096), (8192, 12288))),
    LoadCompleted(),
    Discarded(2),
    Located(b"\2\1\0"),
    StatsReply({"mode": "Active", "host_pages": 3, "errors": {"corrupt": 1}}),
)
_BEAT = Heartbeat(
    pool="chat",
    namespace="default",
    pod="chat-0",
    pod_uid="0b9c",
    node="node-1",
    epoch="ab" * 16,
    mode=Mode.ACTIVE,
    capacity=TierBytes(1 << 30, 1 << 34),
    used=TierBytes(1 << 20, 0),
    arena_ready_bytes=1 << 30,
    hits=TierBlocks(5, 6),
    lookups=Lookups(7, 8, 9),
    tokens_saved=96,
    evictions=1,
    errors={"corrupt": 1},
    fingerprints=("0f" * 16,),
    clients=1,
)
SEGMENT: Final = pack_segment_header(3, TIER_UUID, SEGMENT_BYTES)

REQUESTS: Final = tuple(bytes([asked.op]) + asked.encode() for asked in _ASKED)
REPLIES: Final = tuple(bytes([said.op]) + said.encode() for said in _SAID)
FRAMES: Final = (
    b"\x07" + b"".join(frame(asked.op, 0, n, asked.encode()) for n, asked in enumerate(_ASKED)),
    b"\x00" + frame(Op.STATS, 8, 1, b"the agent is ending"),
)
ARENA_HEADERS: Final = (ArenaHeader(b"e" * 16, 1 << 26, 16, 3).pack(),)
HEARTBEATS: Final = (dump_heartbeat(_BEAT),)
DIRECTIVES: Final = (dump_directive(Directive(Mode.OBSERVE, 15.0)),)
SEGMENTS: Final = (b"\x00" + SEGMENT, b"\x01" + SEGMENT[:64])
CONFIG_FILES: Final = (
    b"memory: 1GiB\nextent: 64MiB\ndisk: 8GiB\ndisk_path: /tmp/tier\nmode: Observe\n",
    b"# all defaults\n",
    b"pool: chat\nnamespace: default\npod_name: chat-0\noperator_url: https://operator:8443\n",
)
ENVIRONMENTS: Final = (b"memory=2Gi\nmode=Paused\nhttp_port=0\n", b"extent=1048576\ndisk=16MiB")
SIZES: Final = (b"1GiB", b"64Mi", b"1048576", b"1.5G", b"0")
TRACES: Final = (
    b'{"timestamp": 0, "hash_ids": [1, 2]}\n{"timestamp": 7.5, "hash_ids": [1, 2, 9], "x": 1}\n',
    b'\n{"timestamp": 5, "hash_ids": [0]}\n{"timestamp": 4, "hash_ids": [0]}\n',
)
