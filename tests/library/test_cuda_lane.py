"""The lane of a GPU, on a model of one: streams that get on whenever they like.

No test here has run on a GPU. What is shown is that the lane orders its work by events alone, as
CUDA asks: whatever stream runs first, what is computed reads the piece that it was given.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

torch: Any = pytest.importorskip("torch", reason="torch is not installed here")

from onggi_library.context import lane as lane_module  # noqa: E402
from onggi_library.context.lane import CudaLane, Spans  # noqa: E402

BATCH, TOKENS = 2, 3


class Gpu:
    """Streams are queues; nothing of them is done before somebody waits or turns the crank."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self.lock = threading.RLock()
        self.streams: list[Stream] = []
        self.here = threading.local()
        self.main = Stream(self)

    def turn(self) -> bool:
        """One operation of one stream that can go on; False: there is none."""
        with self.lock:
            able = [stream for stream in self.streams if stream.able]
            if able:
                self.dice.choice(able).todo.popleft()[1]()
            return bool(able)

    def current(self) -> Stream:
        return getattr(self.here, "stream", self.main)

    @contextlib.contextmanager
    def use(self, stream: Stream) -> Iterator[None]:
        before = self.current()
        self.here.stream = stream
        yield
        self.here.stream = before


class Stream:
    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.todo: deque[tuple[Callable[[], bool], Callable[[], None]]] = deque()
        gpu.streams.append(self)

    @property
    def able(self) -> bool:
        return bool(self.todo) and self.todo[0][0]()

    def add(self, do: Callable[[], None], when: Callable[[], bool] = lambda: True) -> None:
        with self.gpu.lock:
            self.todo.append((when, do))

    def wait_event(self, event: Event) -> None:
        self.add(lambda: None, event.query)

    def synchronize(self) -> None:
        while self.todo:
            assert self.gpu.turn(), "streams wait for each other"


class Event:
    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.left = 0

    def record(self, stream: Stream) -> None:
        def over() -> None:
            self.left -= 1

        self.left += 1
        stream.add(over)

    def query(self) -> bool:
        return self.left == 0

    def synchronize(self) -> None:
        while self.left:
            self.gpu.turn()

    def elapsed_time(self, end: Event) -> float:
        assert self.query()
        assert end.query()
        return 2.0


class Memory:
    """Of the device: written and read by whatever stream is current, in its turn."""

    device = "gpu"

    def __init__(self, gpu: Gpu, tensor: Any) -> None:
        self.gpu = gpu
        self.tensor = tensor
        self.shape, self.dtype = tensor.shape, tensor.dtype
        self.recorded: list[Stream] = []

    def __getitem__(self, where: Any) -> Memory:
        return Memory(self.gpu, self.tensor[where])

    def __iter__(self) -> Iterator[Memory]:
        return (Memory(self.gpu, row) for row in self.tensor)

    def copy_(self, source: Any, *, non_blocking: bool) -> None:
        assert non_blocking
        assert source.is_contiguous()
        assert self.tensor.is_contiguous()
        self.gpu.current().add(lambda: self.tensor.copy_(source))

    def record_stream(self, stream: Stream) -> None:
        self.recorded.append(stream)


@pytest.fixture
def patch(monkeypatch: pytest.MonkeyPatch) -> Callable[[Gpu], None]:
    def put(gpu: Gpu) -> None:
        monkeypatch.setattr(torch.cuda, "Event", lambda **_: Event(gpu))
        monkeypatch.setattr(torch.cuda, "Stream", lambda _device: Stream(gpu))
        monkeypatch.setattr(torch.cuda, "stream", gpu.use)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda _device: gpu.current())
        monkeypatch.setattr(lane_module, "_pinned", lambda place: torch.zeros(place.shape))

    return put


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), stale=st.lists(st.booleans(), min_size=4, max_size=12))
def test_what_is_computed_reads_its_own_piece_whatever_stream_runs_first(
    patch: Callable[[Gpu], None], seed: int, stale: list[bool]
) -> None:
    """stale: pieces that are begun and that nobody asks for."""
    dice = Random(seed)
    gpu = Gpu(dice)
    patch(gpu)
    places = [Memory(gpu, torch.zeros(BATCH, TOKENS, 1)) for _ in range(2)]
    lane = CudaLane((places[0], places[1]))
    assert all(place.recorded for place in places)
    wanted, seen = [], []

    def fill(number: int) -> Callable[[Any], int]:
        def write(pinned: Any) -> int:
            pinned.fill_(number)
            return 1 + number % TOKENS

        return write

    def compute(rows: Memory) -> None:
        gpu.main.add(lambda: seen.append(rows.tensor.flatten().tolist()))

    numbers = itertools.count(1)
    number = next(numbers)
    coming = lane.begin(fill(number))
    for unwanted in stale:
        rows = coming()
        if unwanted:
            lane.begin(fill(next(numbers)))
            # the place of `rows` is begun next: what is computed from it is asked for before that
        compute(rows)
        wanted.append([float(number)] * (BATCH * (1 + number % TOKENS)))
        number = next(numbers)
        coming = lane.begin(fill(number))
        for _ in range(dice.randrange(4)):
            gpu.turn()
    lane.close()
    gpu.main.synchronize()
    assert seen == wanted
    assert lane.waited_s == pytest.approx(0.002 * len(stale))
    assert lane.busy_s >= 0.002 * len(stale)


def test_times_are_summed_when_both_ends_have_come_to_pass() -> None:
    gpu = Gpu(Random(0))
    begin, end, spans = Event(gpu), Event(gpu), Spans()
    begin.record(gpu.main)
    end.record(gpu.main)
    spans.add(begin, end)
    assert gpu.turn()
    assert spans.settled_s() == 0.0
    assert gpu.turn()
    assert spans.settled_s() == 0.002 == spans.settled_s()
