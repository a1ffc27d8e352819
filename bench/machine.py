"""The machine a figure came from, in one line: a figure without it says nothing."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def describe() -> str:
    """Processor, usable cores, memory, kernel, Python, and how busy it is."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    cores = len(os.sched_getaffinity(0))
    return (
        f"{model}, {cores} cores, {pages * page_bytes / 2**30:.0f} GiB, "
        f"Linux {platform.release()}, Python {platform.python_version()}, "
        f"load {os.getloadavg()[0]:.1f}"
    )
