"""The machine and the code a figure came from: a figure without them says nothing."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def facts() -> dict[str, Any]:
    """Date, commit, machine and how busy it is, as JSON."""
    pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _commit(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "machine": {
            "processor": _processor(),
            "cores": len(os.sched_getaffinity(0)),
            "memory_gib": round(pages * page_bytes / 2**30, 1),
            "kernel": platform.release(),
            "python": platform.python_version(),
        },
    }


def described(facts: dict[str, Any]) -> str:
    """The same in one line."""
    machine = facts["machine"]
    return (
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gib']:.0f} GiB, "
        f"Linux {machine['kernel']}, Python {machine['python']}; commit {facts['commit']}, "
        f"load {facts['load_average'][0]}, {facts['date']}"
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown processor"


def _commit() -> str:
    """Short, with a plus sign where files differ from it."""
    try:
        git = ["git", "-C", str(ROOT)]
        head = subprocess.run(
            [*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True
        )
        changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "sidecar"], check=False)
    except OSError:
        return "unknown"
    return (head.stdout.strip() or "unknown") + ("+" if changed.returncode == 1 else "")
