"""What a manager with a name writes down, so that another process knows what lies in its tiers.

A file of records, each with its length and checksum: whoever is killed in the middle of one leaves
a torn end, which is cut off. Each opening begins a life, with an owner's number of its own, on
stable storage before it is used: so no page of an earlier life is ever taken for one of a later,
whatever of the file a machine without power has lost.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import threading
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from sys import getsizeof
from typing import Any, Final

from onggi_library.manager.errors import CLOSED
from onggi_library.manager.forms import form_of, written
from onggi_library.manager.values import Form

NAME: Final = "steps"
VERSION: Final = 1
_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
_HEAD: Final = struct.Struct("<II")
"""Length and CRC-32 of what follows."""
RECORD_BYTES_MAX: Final = 1 << 24
"""A form of values.LEAVES_MAX tensors is some megabytes. A longer record is refused, since whoever
reads takes it for a torn end."""
SLACK_RECORDS: Final = 100_000
"""Records of what is gone, beyond one a step that is there, before the file is written anew: some
megabytes."""


NUMBER_BYTES: Final = 32
"""Of a serial that both know, and of a step's name."""


@dataclass
class Known:
    """What a journal says."""

    root: int
    """The number that all lives have in common."""
    lower: str
    lives: list[tuple[int, int]] = field(default_factory=list)
    """(first serial, owner) of each, rising."""
    steps: dict[int | str, int] = field(default_factory=dict)
    """The serial of each step's value."""
    begun: dict[int, Form] = field(default_factory=dict)
    """All values that pages may be there of."""

    def owner(self, serial: int) -> int:
        """Of the life that a value was put in."""
        return self.lives[bisect_right(self.lives, (serial, 1 << 64)) - 1][1]

    @property
    def next_serial(self) -> int:
        return 1 + max((*self.begun, *(first for first, _ in self.lives)), default=0)


class Notes:
    """Of a manager without a name, whose steps end with it: nothing is written down."""

    keeps = False
    nbytes = 0
    """What is known for it, beside the steps' table."""

    def begin(self, serial: int, form: Form) -> None: ...

    def put(self, step: int | str, serial: int) -> None: ...

    def discard(self, step: int | str) -> None: ...

    def gave_up(self, serial: int) -> None: ...

    def close(self) -> None: ...


class Journal(Notes):
    """Thread-safe. The folder is the caller's alone. Methods raise OSError, ValueError for what
    cannot be written, and RuntimeError after close(), with nothing written."""

    keeps = True

    @property
    def nbytes(self) -> int:  # type: ignore[override]
        known = self._known
        numbers = NUMBER_BYTES * (len(known.begun) + len(known.steps))
        return sum(map(getsizeof, (known.begun, known.steps, known.lives, self._numbers))) + numbers

    def __init__(self, folder: Path, known: Known) -> None:
        """Known is what there is from now on, its last life the one that begins, and all else is
        gone."""
        self._path = folder / NAME
        self._lock = threading.Lock()
        self._known = known
        self._numbers: dict[Form, int] = {}
        self._fd, self._records = -1, 0
        self._write_anew()

    def begin(self, serial: int, form: Form) -> None:
        """Pages of this value may be there from now on."""
        with self._lock:
            number, records = self._form(form)
            self._append(*records, ["b", serial, number])
            self._numbers[form] = number
            self._known.begun[serial] = form

    def put(self, step: int | str, serial: int) -> None:
        """The step has this value; what it had is gone."""
        with self._lock:
            self._append(["p", serial, step])
            before = self._known.steps.get(step)
            self._known.steps[step] = serial
            self._forget(before)

    def discard(self, step: int | str) -> None:
        with self._lock:
            self._append(["d", step])
            self._forget(self._known.steps.pop(step))

    def gave_up(self, serial: int) -> None:
        """A value that was begun did not become a step's."""
        with self._lock:
            self._known.begun.pop(serial, None)

    def close(self) -> None:
        with self._lock:
            try:
                os.fsync(self._fd)
            finally:  # a put of another thread must not write to whatever has this number next
                fd, self._fd = self._fd, -1
                os.close(fd)

    def _forget(self, serial: int | None) -> None:
        """Its pages go too; until the file is written anew, it says that some may be left."""
        if serial is not None:
            self._known.begun.pop(serial, None)
        if self._records > 2 * len(self._known.begun) + SLACK_RECORDS:
            with contextlib.suppress(OSError):  # a full filesystem: the old file goes on
                self._write_anew()

    def _form(self, form: Form) -> tuple[int, list[list[Any]]]:
        """Its number, which is its own once the records are written that say so."""
        if (known := self._numbers.get(form)) is not None:
            return known, []
        number = len(self._numbers)
        return number, [["f", number, written(form)]]

    def _append(self, *records: list[Any]) -> None:
        packed = b"".join(map(_packed, records))
        if self._fd < 0:
            raise RuntimeError(CLOSED)
        done = os.write(self._fd, packed)
        if done != len(packed):
            os.ftruncate(self._fd, os.fstat(self._fd).st_size - done)
            raise OSError(f"{self._path} took {done} of {len(packed)} bytes")
        self._records += len(records)

    def _write_anew(self) -> None:
        """All at once, or not at all. Raises OSError."""
        before = self._fd, self._records, self._numbers
        aside = self._path.with_suffix(".new")
        aside.unlink(missing_ok=True)
        self._fd, self._records, self._numbers = -1, 0, {}
        try:
            self._fd = os.open(aside, _FLAGS, 0o660)
            self._append(*self._all())
            os.fsync(self._fd)
            aside.rename(self._path)
        except BaseException:
            new, (self._fd, self._records, self._numbers) = self._fd, before
            _close(new)
            raise
        _close(before[0])
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _all(self) -> list[list[Any]]:
        """The records of what is there."""
        known = self._known
        records: list[list[Any]] = [["v", VERSION, known.root, known.lower]]
        records += [["l", first, owner] for first, owner in known.lives]
        for serial, form in known.begun.items():
            number, new = self._form(form)
            self._numbers[form] = number
            records += [*new, ["b", serial, number]]
        return records + [["p", serial, step] for step, serial in known.steps.items()]


def _close(fd: int) -> None:
    if fd >= 0:
        os.close(fd)


def read(folder: Path, lower: str) -> Known | None:
    """What the journal in this folder says; None: there is none. Raises ValueError for one of
    another version, or of values that lie otherwise."""
    try:
        whole = (folder / NAME).read_bytes()
    except FileNotFoundError:
        return None
    records = _records(whole)
    unread = f"{folder / NAME} cannot be read; remove {folder}"
    try:
        kind, version, root, there = next(records)
    except (StopIteration, ValueError):
        raise ValueError(unread) from None
    if kind != "v" or version != VERSION or there != lower:
        raise ValueError(
            f"{folder / NAME} is of version {version} with lower={there!r}; this is version "
            f"{VERSION} with lower={lower!r}: use that, or another name"
        )
    known = _replay(records, Known(root, lower))
    if known is None:
        raise ValueError(unread)
    return known


def _replay(records: Iterator[list[Any]], known: Known) -> Known | None:
    """None for records that speak of what no record before them says."""
    forms: dict[int, Form] = {}
    for record in records:
        match record:
            case ["l", first, owner]:
                known.lives.append((first, owner))
            case ["f", number, text]:
                forms[number] = form_of(text)
            case ["b", serial, number] if number in forms:
                known.begun[serial] = forms[number]
            case ["p", serial, step] if serial in known.begun:
                known.steps[step] = serial
            case ["d", step]:
                known.steps.pop(step, None)
            case _:
                return None
    return known


def _packed(record: list[Any]) -> bytes:
    text = json.dumps(record, separators=(",", ":")).encode()
    if len(text) > RECORD_BYTES_MAX:
        raise ValueError(
            f"a step's name, or the keys of a dict in its value, take {len(text)} bytes; a manager "
            f"with a name writes up to {RECORD_BYTES_MAX} down: use shorter ones"
        )
    return _HEAD.pack(len(text), zlib.crc32(text)) + text


def _records(whole: bytes) -> Iterator[list[Any]]:
    """Up to the first that is torn."""
    at = 0
    while at + _HEAD.size <= len(whole):
        length, crc = _HEAD.unpack_from(whole, at)
        text = whole[at + _HEAD.size : at + _HEAD.size + length]
        if length > RECORD_BYTES_MAX or len(text) < length or zlib.crc32(text) != crc:
            return
        yield json.loads(text)
        at += _HEAD.size + length
