"""fio on a file of its own in the same folder: the bare disk at the same block size and depth.

Its best case: O_DIRECT, a file that is laid out already, blocks in order, and the best of psync
with as many jobs as the agent has threads, io_uring at that depth, and io_uring with its buffers on
huge pages: a disk takes a transfer in so many pieces at most, and 1 MiB in small pages may be more.
Nothing is checked.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.children import ChildFailed
from bench.sizes import MIB

ENGINES: Final = ("psync", "io_uring", "io_uring_huge")
HUGE: Final = "_huge"
"""Ends the name of an engine that has its buffers on huge pages: fio takes them from malloc, and
glibc (from 2.35 on; another libc ignores it) asks the kernel for such."""
RUN_EXTRA_S: Final = 60.0


def why_absent() -> str:
    """What is missing on this machine; empty if fio can take part."""
    return "" if shutil.which("fio") else "fio is not installed (Debian, Ubuntu: apt install fio)"


@dataclass(frozen=True)
class Rates:
    """In bytes a second."""

    read: float
    written: float


class Fio:
    """A file of `nbytes` in `folder`, laid out here. Raises ChildFailed."""

    def __init__(self, folder: Path, nbytes: int, depth: int) -> None:
        self._file = folder / "fio"
        self._nbytes = nbytes
        self._depth = depth
        self._run(self._job("psync", "write", depth, MIB, 0.0))

    def run(self, engine: str, direction: str, block_bytes: int, seconds: float) -> Rates:
        """direction: read, write or mixed, which is half of the depth each. Raises ChildFailed."""
        if direction == "mixed":
            half = max(1, self._depth // 2)
            jobs = self._job(engine, "read", half, block_bytes, seconds)
            jobs += self._job(engine, "write", half, block_bytes, seconds)
        else:
            jobs = self._job(engine, direction, self._depth, block_bytes, seconds)
        return self._run(jobs, huge=engine.endswith(HUGE))

    def _job(
        self, engine: str, direction: str, depth: int, block_bytes: int, seconds: float
    ) -> list[str]:
        """psync has one request a job, so its depth is a number of jobs, each on its own part."""
        jobs, in_flight = (depth, 1) if engine == "psync" else (1, depth)
        share = self._nbytes // jobs // MIB * MIB
        job = [f"--name={direction}", f"--filename={self._file}", f"--rw={direction}"]
        job += [f"--bs={block_bytes}", f"--ioengine={engine.removesuffix(HUGE)}"]
        job += [f"--iodepth={in_flight}"]
        job += [f"--numjobs={jobs}", f"--size={share}", f"--offset_increment={share}"]
        job += ["--direct=1", "--invalidate=0", "--thread", "--group_reporting"]
        if seconds:
            job += ["--time_based", f"--runtime={seconds:g}"]
        return job

    def _run(self, jobs: Sequence[str], *, huge: bool = False) -> Rates:
        command = ["fio", "--output-format=json", *jobs]
        environment = os.environ | ({"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"} if huge else {})
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=RUN_EXTRA_S, env=environment
            )
        except subprocess.TimeoutExpired as late:
            raise ChildFailed(f"fio took more than {RUN_EXTRA_S:.0f} s") from late
        if done.returncode:
            raise ChildFailed(f"fio: {(done.stderr or done.stdout).strip()[-400:]}")
        found: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
        if any(job["error"] for job in found["jobs"]):
            raise ChildFailed(f"fio: error {found['jobs'][0]['error']}")
        return Rates(
            sum(float(job["read"]["bw_bytes"]) for job in found["jobs"]),
            sum(float(job["write"]["bw_bytes"]) for job in found["jobs"]),
        )
