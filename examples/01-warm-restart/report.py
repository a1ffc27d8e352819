"""What the three runs amount to: the rows of the table, the checks, the last line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

COLUMNS: Final = ("run", "first token", "loading", "tokens reused", "bytes moved", "ratio")


@dataclass(frozen=True)
class Model:
    """What the model process says of itself."""

    prompt_tokens: int
    block_tokens: int
    page_bytes: int
    reusable_blocks: int
    parameters: int


@dataclass(frozen=True)
class Run:
    """One answer to the prompt. Times in seconds; logits: a digest of the last prompt position."""

    name: str
    first_token_s: float
    restore_s: float
    reused_blocks: int
    disk_blocks: int
    stored_blocks: int
    tokens: tuple[int, ...]
    logits: str

    @classmethod
    def read(cls, name: str, event: dict[str, Any]) -> Run:
        return cls(
            name=name,
            first_token_s=float(event["first_token_s"]),
            restore_s=float(event["restore_s"]),
            reused_blocks=int(event["reused_blocks"]),
            disk_blocks=int(event["disk_blocks"]),
            stored_blocks=int(event["stored_blocks"]),
            tokens=tuple(event["tokens"]),
            logits=str(event["logits"]),
        )


def row(run: Run, cold: Run, model: Model) -> tuple[str, ...]:
    reused = run.reused_blocks * model.block_tokens
    moved = run.reused_blocks or run.stored_blocks
    arrow = "loaded" if run.reused_blocks else "stored"
    return (
        run.name,
        f"{run.first_token_s:.3f} s",
        f"{run.restore_s * 1000:.0f} ms" if run.reused_blocks else "-",
        f"{reused:,} of {model.prompt_tokens:,}",
        f"{moved * model.page_bytes / 2**20:.0f} MiB {arrow}",
        f"{cold.first_token_s / run.first_token_s:.1f}x",
    )


def problems(cold: Run, host: Run, disk: Run, model: Model) -> list[str]:
    """What did not go as it should; nothing of it depends on how fast the machine is."""
    every = model.reusable_blocks
    checks: Sequence[tuple[bool, str]] = (
        (cold.reused_blocks == 0, f"the cold run reused {cold.reused_blocks} blocks"),
        (cold.stored_blocks == every, f"{cold.stored_blocks} of {every} blocks were stored"),
        (host.reused_blocks == every, f"{host.reused_blocks} of {every} blocks came from host"),
        (host.disk_blocks == 0, f"{host.disk_blocks} blocks of the host run came from disk"),
        (disk.reused_blocks == every, f"{disk.reused_blocks} of {every} blocks after the restart"),
        (disk.disk_blocks == every, f"{disk.disk_blocks} of {every} blocks came from disk"),
        (host.tokens == cold.tokens, "the run from host memory gave other tokens"),
        (disk.tokens == cold.tokens, "the run from disk gave other tokens"),
        (host.logits == cold.logits, "the run from host memory gave other logits"),
        (disk.logits == cold.logits, "the run from disk gave other logits"),
    )
    return [what for right, what in checks if not right]


def last_line(cold: Run, host: Run, disk: Run) -> str:
    """For machines: key=value words after `demo: ok`."""
    identical = sum(run.tokens == cold.tokens for run in (cold, host, disk))
    return (
        f"demo: ok identical={identical}/3 "
        f"host_speedup={cold.first_token_s / host.first_token_s:.1f} "
        f"disk_speedup={cold.first_token_s / disk.first_token_s:.1f}"
    )
