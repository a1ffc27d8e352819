"""The agent as a process of its own: signals, exit code, and what it sets for itself alone."""

import asyncio
import gc
import signal
import sys
from collections.abc import Callable
from typing import Final

from onggi_sidecar.agent import Agent
from onggi_sidecar.config import AgentConfig
from onggi_sidecar.descriptors import DESCRIPTORS_MIN, raise_descriptor_limit
from onggi_sidecar.errors import StartRefused
from onggi_sidecar.heap import keep_large_apart
from onggi_sidecar.log import LOG, error

SWITCH_INTERVAL_S: Final = 0.0001
"""A busy thread holds the GIL for 5 ms by default: sixty lookups' worth of latency."""
GC_THRESHOLD: Final = 50_000
"""A lookup makes a few hundred objects that die by count; looking for cycles at every 700 of them
costs more than the lookup."""

EXIT_OK: Final = 0
EXIT_REFUSED: Final = 1
EXIT_FAULT: Final = 70
"""EX_SOFTWARE: a bug. The container is restarted and finds its disk tier again."""


def run_agent(config: AgentConfig, reread: Callable[[], AgentConfig]) -> int:
    """Run until SIGTERM or SIGINT; the exit code. reread: the configuration anew, for SIGHUP."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    keep_large_apart()
    allowed = raise_descriptor_limit()
    if allowed < DESCRIPTORS_MIN:
        error(
            "start_refused",
            f"this process may open {allowed} files (ulimit -n); allow {DESCRIPTORS_MIN} or more",
        )
        return EXIT_REFUSED
    gc.set_threshold(GC_THRESHOLD)
    gc.disable()  # a million adopted blocks are no cycles, and looking for them costs seconds
    try:
        return asyncio.run(_as_process(config, reread))
    except OSError as fault:
        LOG.debug("where it failed", exc_info=fault)
        where = f" on {fault.filename}" if fault.filename else ""
        error("start_refused", f"the system refused what the agent needs{where}: {fault.strerror}")
        return EXIT_REFUSED


async def _as_process(config: AgentConfig, reread: Callable[[], AgentConfig]) -> int:
    loop = asyncio.get_running_loop()
    agent = Agent(config, reports=True, listening=_keep_what_there_is)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, agent.stop)
    loop.add_signal_handler(signal.SIGHUP, agent.read_again, reread)
    try:
        return EXIT_OK if await agent.run() else EXIT_FAULT
    except StartRefused as why:
        error("start_refused", str(why))
        return EXIT_REFUSED


def _keep_what_there_is() -> None:
    """What was made so far lives as long as the process: never walk it again."""
    gc.freeze()
    gc.enable()
