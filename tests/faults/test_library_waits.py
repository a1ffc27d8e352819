"""A disk that hangs under a context of the library in this process: late, told, and not lost."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed here")

from tests.library.tiered_kit import MIB, agent, noise, reference  # noqa: E402

from onggi_library import carrier  # noqa: E402
from onggi_library.context.context import TieredContext  # noqa: E402
from onggi_library.context.errors import NotInTime  # noqa: E402
from onggi_sidecar.disk.device import Device  # noqa: E402

LAYERS, HEADS, SIZE, TOKENS = 2, 4, 64, 6000
"""24 MiB of keys and values, over a host tier of 16 MiB."""
ANSWERS_WITHIN_S = 60.0
"""The disk's breaker rests and tries again before it believes that the disk is back."""


class Disk:
    """Every disk of this process: answers, or hangs in what it was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._waits_s = carrier.WAIT_S
        self.reads, self.writes = threading.Event(), threading.Event()
        self.answers()
        read, write = Device.read_into, Device.write_from

        def read_into(device: Device, pages: Sequence[memoryview], offset_bytes: int) -> int:
            self.reads.wait()
            return read(device, pages, offset_bytes)

        def write_from(device: Device, pages: Sequence[memoryview], offset_bytes: int) -> None:
            self.writes.wait()
            write(device, pages, offset_bytes)

        monkeypatch.setattr(Device, "read_into", read_into)
        monkeypatch.setattr(Device, "write_from", write_from)

    def hangs(self, what: threading.Event) -> None:
        """From now on; and a second is long enough to wait for it."""
        what.clear()
        self._monkeypatch.setattr(carrier, "WAIT_S", 1.0)

    def answers(self) -> None:
        self._monkeypatch.setattr(carrier, "WAIT_S", self._waits_s)
        self.reads.set()
        self.writes.set()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    made = Disk(monkeypatch)
    yield made
    made.answers()


@pytest.fixture
def context(disk: Disk, tmp_path: Path) -> Iterator[TieredContext]:
    """All of it is in the tiers, and no thread of it is left at the end."""
    before = set(threading.enumerate())
    with (
        agent(memory=16 * MIB, disk=96 * MIB, disk_path=tmp_path) as running,
        TieredContext(
            running.socket, layers=LAYERS, device_bytes=4 * MIB, sinks=128, recent=128
        ) as made,
    ):
        yield made
        disk.answers()
    until_s = time.monotonic() + ANSWERS_WITHIN_S
    while not set(threading.enumerate()) <= before and time.monotonic() < until_s:
        time.sleep(0.05)  # some are told to end, and not waited for
    assert set(threading.enumerate()) <= before


def again(call: Callable[[], Any]) -> Any:
    """Until the disk is believed to be back."""
    until_s = time.monotonic() + ANSWERS_WITHIN_S
    while True:
        try:
            return call()
        except NotInTime:
            if time.monotonic() > until_s:
                raise


def rows(seed: int, tokens: int) -> tuple[Any, Any]:
    return noise(seed, 1, HEADS, tokens, SIZE), noise(seed + 1, 1, HEADS, tokens, SIZE)


def grow(context: TieredContext, keys: Any, values: Any, there: int = 0) -> None:
    """Have these and no others behind the first tokens, in all layers."""
    if there:
        context.crop(there)
    for layer in range(LAYERS):
        context.append(layer, keys[:, :, there:], values[:, :, there:])


def test_attention_over_a_disk_that_hangs_ends_in_time_and_goes_on_afterwards(
    disk: Disk, context: TieredContext
) -> None:
    keys, values = rows(1, TOKENS)
    queries = noise(3, 1, HEADS, 1, SIZE)
    grow(context, keys, values)
    exact = reference(queries, keys, values)
    assert float((context.attend(0, queries).double() - exact).abs().max()) < 2e-5
    disk.hangs(disk.reads)
    said = r"did not give \d+ pages that it keeps, for 1 s: .* Nothing is lost: see to the disk"
    for _ in range(2):
        with pytest.raises(NotInTime, match=said):
            context.attend(1, queries)  # the host tier has what the first layer wanted
    disk.answers()
    for layer in (1, 0):
        out = again(lambda layer=layer: context.attend(layer, queries))
        assert float((out.double() - exact).abs().max()) < 2e-5
    assert context.length() == TOKENS


def test_what_a_disk_that_hangs_cut_short_is_taken_back_and_appended_again(
    disk: Disk, context: TieredContext
) -> None:
    keys, values = rows(1, TOKENS)
    some = TOKENS // 4
    grow(context, keys[:, :, :some], values[:, :, :some])
    disk.hangs(disk.writes)
    with pytest.raises(NotInTime, match=r"did not write to its disk, for 1 s: .* Nothing is lost"):
        grow(context, keys, values, some)
    with pytest.raises(NotInTime, match="was cut short; crop to what there was before it"):
        context.append(0, keys, values)
    disk.answers()
    again(lambda: context.crop(some))
    assert context.length() == some
    again(lambda: grow(context, keys, values, some))
    for layer in range(LAYERS):
        queries = noise(3 + layer, 1, HEADS, 1, SIZE)
        out = again(lambda layer=layer, queries=queries: context.attend(layer, queries))
        assert float((out.double() - reference(queries, keys, values)).abs().max()) < 2e-5


def attend_to_all(context: TieredContext) -> None:
    for layer in range(LAYERS):
        context.attend(layer, noise(3, 1, HEADS, 1, SIZE))


def test_a_context_closes_while_its_disk_hangs(disk: Disk, context: TieredContext) -> None:
    grow(context, *rows(1, TOKENS))
    disk.hangs(disk.reads)
    with pytest.raises(NotInTime):
        attend_to_all(context)
    context.close()
    with pytest.raises(RuntimeError, match="it was closed"):
        context.attend(0, noise(3, 1, HEADS, 1, SIZE))
