"""Waiting for the tiers below the device: bounded by what gets on, and told. And what is larger
than the host tier, which comes by parts of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed here")

from tests.library.tiered_kit import MIB, agent, noise, reference  # noqa: E402

from onggi import KVCacheManager  # noqa: E402
from onggi_library import carrier  # noqa: E402
from onggi_library.carrier import Carrier, Says  # noqa: E402
from onggi_library.context.context import TieredContext  # noqa: E402
from onggi_library.context.errors import ContextLost, NotInTime  # noqa: E402

SAYS = Says("context", ContextLost, NotInTime)


class Clock:
    """Seconds that pass only where somebody waits."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class Answers:
    """An agent of whom only figures are asked. pending: blocks that wait for its disk, by time."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.silent = False
        self.pending: Callable[[float], int] = lambda _: 0

    def __call__(self, *_: Any, **__: Any) -> Answers:
        return self

    def close(self) -> None: ...

    def stats(self) -> dict[str, Any]:
        if self.silent:
            return {}
        return {
            "arena_budget_bytes": 16 * MIB,
            "disk_bytes": 64 * MIB,
            "disk_breaker": "open",
            "extent_bytes": MIB,
            "pending_blocks": self.pending(self.clock.now_s),
            "segment_bytes": 4 * MIB,
        }


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    clock = Clock()
    made = Answers(clock)
    monkeypatch.setattr(carrier, "time", clock)
    monkeypatch.setattr(carrier, "Client", made)
    monkeypatch.setattr(carrier, "LOOK_EVERY_S", 5.0)
    return made


def test_a_slow_disk_is_waited_for_as_long_as_it_gets_on(answers: Answers) -> None:
    answers.pending = lambda now_s: max(0, 100 - int(now_s // 50))
    Carrier("/s", SAYS).until_written()
    assert answers.clock.now_s == 5000.0


@pytest.mark.parametrize("others", [0, 3])
def test_a_disk_that_does_nothing_is_told_of_with_what_to_do(answers: Answers, others: int) -> None:
    """Also where others' pages come and go meanwhile."""
    answers.pending = lambda now_s: 7 + int(now_s) % (1 + others)
    said = (
        r"^the agent did not write to its disk, for 60 s: \d+ pages wait for its disk, whose "
        r"breaker is open\. Nothing is lost: see to the disk and call again, or close this context$"
    )
    with pytest.raises(NotInTime, match=said):
        Carrier("/s", SAYS).until_written()
    assert answers.clock.now_s <= 130.0


def test_an_agent_that_says_nothing_is_waited_for_a_few_seconds(answers: Answers) -> None:
    made = Carrier("/s", SAYS)
    answers.silent = True
    with pytest.raises(ContextLost, match=r"^no agent answers at /s, for 10 s; see that one runs"):
        made.until_written()
    assert answers.clock.now_s <= 20.0
    made.close()
    with pytest.raises(RuntimeError, match="this context is closed; make another one"):
        made.figures()


@pytest.mark.parametrize("layers", [1, 2])
def test_one_layer_and_one_piece_may_be_larger_than_the_host_tier(
    tmp_path: Path, layers: int
) -> None:
    """Seen: of one layer's chain nothing could be given up, so it took no more than the host tier;
    and each piece began anew where the first of its pages had been given up meanwhile."""
    size, tokens = 1024, 6144
    keys, values = noise(1, 1, 1, tokens, size), noise(2, 1, 1, tokens, size)
    with (
        agent(memory=8 * MIB, disk=160 * MIB, disk_path=tmp_path) as running,
        TieredContext(
            running.socket, layers=layers, device_bytes=80 * MIB, sinks=0, recent=0, block_tokens=16
        ) as context,
    ):
        for layer in range(layers):
            for begin in range(0, tokens, 1024):
                some = slice(begin, begin + 1024)
                context.append(layer, keys[:, :, some], values[:, :, some])
        piece = context._held.side.share.piece * 16 * 2 * size * 4
        assert piece > 8 * MIB
        assert context.report().tier_bytes > layers * 5 * 8 * MIB
        for layer in (0, layers - 1, 0):
            queries = noise(3 + layer, 1, 1, 1, size)
            out = context.attend(layer, queries)
            assert float((out.double() - reference(queries, keys, values)).abs().max()) < 2e-5
        context.crop(tokens - 3000)
        context.append(0, keys[:, :, :5], values[:, :, :5])


def test_one_value_may_be_larger_than_the_host_tier(tmp_path: Path) -> None:
    value = torch.arange(10 << 20, dtype=torch.int32)
    with KVCacheManager(0, "16MiB", tmp_path, "192MiB") as manager:
        manager.put("large", value)
        manager.put("other", value + 1)
        for _ in range(2):
            assert torch.equal(manager.get("large"), value)
            assert torch.equal(manager.get("other"), value + 1)


def test_a_block_that_no_extent_holds_is_refused_with_what_would_fit() -> None:
    with agent(memory=16 * MIB) as running:
        rows = noise(1, 1, 4, 8, 64)
        with TieredContext(
            running.socket, layers=1, device_bytes=1 << 30, block_tokens=4096
        ) as context:
            with pytest.raises(
                ValueError,
                match=r"^block_tokens is 4096, and so many of one layer and sequence are 8388608 "
                r"bytes \(8MiB\); this agent takes blocks of up to 4194304 bytes \(4MiB\), its "
                r"extent: use up to 2048$",
            ):
                context.append(0, rows, rows)
            assert context.length() == 0
        with TieredContext(
            running.socket, layers=1, device_bytes=1 << 30, block_tokens=2048
        ) as context:
            context.append(0, rows, rows)
            assert context.length() == 8
