"""Inputs that once broke a reader, and what they broke."""

from __future__ import annotations

from typing import Final

from tests.fuzz.tier import patch

from onggi_sidecar.disk.layout import SPACES_OFFSET


def _many_in_few() -> bytes:
    """Lists of lists by name: 9 ** 8 items in a few hundred bytes."""
    lines = [b"a: &a [x,x,x,x,x,x,x,x,x]"]
    for above, name in zip("abcdefg", "bcdefgh", strict=True):
        lines.append(f"{name}: &{name} [{','.join([f'*{above}'] * 9)}]".encode())
    return b"\n".join([*lines, b"memory: *h"])


_LATE: Final = b'{"timestamp": 1%s, "hash_ids": [1]}\n{"timestamp": 2, "hash_ids": [1]}'

FOUND: Final[tuple[tuple[str, bytes], ...]] = (
    # RecursionError out of the JSON decoder, in the client
    ("replies", b"\x08" + b"[" * 100_000),
    # ZeroDivisionError and BadRequest at an agent's start: segments of 0 and of 5,000 bytes, blocks
    # of 0 tokens, each with its CRC
    ("tier", b"\x00" + patch(32, bytes(8))),
    ("tier", b"\x00" + patch(32, (5000).to_bytes(8, "little"))),
    ("tier", b"\x00" + patch(SPACES_OFFSET + 24, bytes(4))),
    # RecursionError and OverflowError
    ("trace", b"[" * 100_000),
    (
        "trace",
        b'{"timestamp": 1%s, "hash_ids": [1]}\n{"timestamp": 2, "hash_ids": [1]}' % (b"0" * 400),
    ),
    # ValueError, KeyError, AttributeError out of YAML's constructors, and no file named
    ("config_file", b"memory: 2020-13-45"),
    ("config_file", b"memory: " + b"9" * 5000),
    ("config_file", b"memory: !!int abc"),
    ("config_file", b"memory: !!bool abc"),
    ("config_file", b"memory: !!timestamp abc"),
    # RecursionError
    ("config_file", b"[" * 2000),
    # a minute, and memory without end, to print a value that is wrong
    ("config_file", _many_in_few()),
    # IndexError instead of a line that names the field; a crash when the socket was bound
    ("config_file", b'socket: "\\ud800"'),
    ("config_file", b'socket: "\\0"'),
)
