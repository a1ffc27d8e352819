"""The agent's life: what is started in which order, and taken down in the reverse.

Order matters where another process looks on: the socket is claimed before the arena, so that a
second agent cannot retire a live one's memory; the disk tier is adopted before the socket listens,
so that the first lookup after a restart already hits; SIGTERM is heard from the first line on.
"""

import asyncio
import contextlib
import errno
import gc
import importlib
import resource
import signal
import sys
import time
from collections import deque
from contextlib import AsyncExitStack
from typing import Any, Final

from onggi_core.engine.engine import Engine
from onggi_core.engine.events import ModeSet, Stopping
from onggi_core.heartbeat import Directive
from onggi_core.wire import replies
from onggi_sidecar.assembly import (
    budget_at_start,
    in_daemon_thread,
    make_disk_tier,
    make_engine,
    open_arena,
    open_disk,
    start_touching,
)
from onggi_sidecar.config import AgentConfig
from onggi_sidecar.disk.tier import SEAL_RESERVE_S, DiskTier
from onggi_sidecar.errors import StartRefused
from onggi_sidecar.figures import gather_figures
from onggi_sidecar.log import LOG, error, event, warn
from onggi_sidecar.mailbox import Mailbox
from onggi_sidecar.server import Server
from onggi_sidecar.shell import Shell
from onggi_sidecar.socketfile import claim_socket
from onggi_sidecar.tally import Tally

SWITCH_INTERVAL_S: Final = 0.0005
"""A busy thread holds the GIL for 5 ms by default: sixty lookups' worth of latency."""
GC_THRESHOLD: Final = 50_000
"""A lookup makes a few hundred objects that die by count; looking for cycles at every 700 of them
costs more than the lookup."""

_OUT_OF_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""What accept() says when there is no descriptor or memory for one more client. asyncio tries
again after a second, so it is no reason to end."""

EXIT_OK: Final = 0
EXIT_REFUSED: Final = 1
EXIT_FAULT: Final = 70
"""EX_SOFTWARE: a bug. The container is restarted and finds its disk tier again."""


def run_agent(config: AgentConfig) -> int:
    """Run until SIGTERM or SIGINT; the exit code."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    _raise_descriptor_limit()
    gc.set_threshold(GC_THRESHOLD)
    return asyncio.run(Agent(config).run())


def _raise_descriptor_limit() -> None:
    """A terabyte of disk is a thousand open segments, and the usual soft limit is 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Agent:
    """One life. Every resource is released by an exit stack, in reverse order of its making."""

    def __init__(self, config: AgentConfig) -> None:
        self._config = config
        self._told_to_stop = asyncio.Event()
        self._fault = False
        self._tally = Tally(time.perf_counter)
        self._server: Server | None = None
        self._engine: Engine | None = None
        self._disk: DiskTier | None = None

    async def run(self) -> int:
        """Start, serve, end. Raises what starting raised unless that was a refusal."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._told_to_stop.set)
        loop.set_exception_handler(self._unexpected)
        async with AsyncExitStack() as stack:
            starting = asyncio.create_task(self._start(stack))
            stopping = asyncio.create_task(self._told_to_stop.wait())
            await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
            if starting.done() and (why := starting.exception()) is not None:
                stopping.cancel()
                if not isinstance(why, StartRefused):
                    raise why
                error("start_refused", str(why))
                return EXIT_REFUSED
            await stopping
            event("stopping", "told to end")
            if not starting.done():
                starting.cancel()
                await asyncio.wait((starting,))
        event("stopped", "ended")
        return EXIT_FAULT if self._fault else EXIT_OK

    def _unexpected(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A callback raised: a bug of ours. The state behind it cannot be trusted, so the agent
        ends (disk tier sealed) and is started again."""
        why = context.get("exception")
        if isinstance(why, OSError) and why.errno in _OUT_OF_ROOM:
            self._tally.fault("out_of_descriptors")
            if self._tally.faults["out_of_descriptors"] == 1:  # asyncio tells of each, by hundreds
                warn("accept_failed", f"cannot take one more connection: {why.strerror}")
            return
        loop.default_exception_handler(context)
        self._fault = True
        self._told_to_stop.set()

    async def _start(self, stack: AsyncExitStack) -> None:
        config, begun_s = self._config, time.monotonic()
        claim = claim_socket(config.socket)
        stack.callback(claim.release)
        mailbox = Mailbox(asyncio.get_running_loop())
        arena = open_arena(config)
        stack.callback(arena.retire)
        extents = budget_at_start(config, arena, None).extents
        toucher = start_touching(arena, mailbox, extents)
        stack.callback(toucher.stop)
        gc.disable()  # a million adopted blocks are no cycles, and looking for them costs seconds
        opened = await in_daemon_thread(lambda: open_disk(config), "onggi-recover")
        if opened is None and config.disk:
            self._tally.fault("disk_unavailable")
        if opened is not None:
            stack.callback(opened.folder.release)
            self._tally.fault("journal_damaged", opened.found.report.damaged_blocks)
            self._disk = make_disk_tier(opened, arena, mailbox, config)
        self._engine = make_engine(config, arena, opened)
        shell = Shell(
            self._engine,
            disk=self._disk,
            toucher=toucher,
            loop=asyncio.get_running_loop(),
            clock=time.monotonic,
        )
        for adopted in opened.found.adopted if opened is not None else ():
            shell.step(adopted)
        shell.step(budget_at_start(config, arena, opened))
        mailbox.open(shell.step)
        self._server = Server(shell, self._tally)
        stack.push_async_callback(self._take_down, shell, self._server)
        await self._server.start(claim.listen())
        shell.start_ticking()
        event(
            "listening",
            f"listening on {config.socket}",
            socket=str(config.socket),
            epoch=arena.header.epoch.hex(),
            start_s=round(time.monotonic() - begun_s, 3),
        )
        await self._start_reporting(shell, stack)
        gc.freeze()  # what was made so far lives as long as the process: never walk it again
        gc.enable()

    async def _start_reporting(self, shell: Shell, stack: AsyncExitStack) -> None:
        """HTTP, metrics and heartbeats, whose libraries take longer to load than all the rest:
        in a thread, while clients are served already."""
        await in_daemon_thread(
            lambda: importlib.import_module("onggi_sidecar.reporting"), "onggi-import"
        )
        from onggi_sidecar.reporting import Reporting

        reporting = Reporting(
            self._config,
            figures=self._figures,
            tally=self._tally,
            disk_seconds=self._disk.counts.seconds if self._disk is not None else deque(),
            unready=self._unready,
        )
        stack.push_async_callback(reporting.close)
        await reporting.serve_http()
        if self._config.operator_url:
            reporting.post_heartbeats(
                obey=lambda directive: self._obey(directive, shell), ended=self._posting_ended
            )

    async def _take_down(self, shell: Shell, server: Server) -> None:
        """Stop admitting, finish or abandon I/O within the deadline, seal the journal."""
        deadline_s = time.monotonic() + self._config.shutdown_deadline_s
        server.close()
        shell.step(Stopping())
        shell.stop_ticking()
        if self._disk is not None:
            disk = self._disk
            write_until_s = deadline_s - SEAL_RESERVE_S
            while self._writes_left() and time.monotonic() < write_until_s:
                await in_daemon_thread(
                    lambda: disk.workers.drain(deadline_s=write_until_s), "onggi-drain"
                )
            try:
                async with asyncio.timeout(deadline_s - time.monotonic() + SEAL_RESERVE_S):
                    whole = await in_daemon_thread(
                        lambda: disk.stop(deadline_s=deadline_s), "onggi-seal"
                    )
            except (OSError, TimeoutError) as fault:
                warn(
                    "journal_unsealed", f"the journal could not be sealed: {fault or 'disk hangs'}"
                )
            else:
                event("disk_sealed", "the disk tier is sealed", every_job_ended=whole)
        server.close_clients()
        await asyncio.sleep(0)  # lets the streams' ends reach the engine

    def _figures(self) -> dict[str, Any]:
        assert self._engine is not None
        return gather_figures(
            self._engine, self._disk, self._tally, io_deadline_s=self._config.io_deadline_s
        )

    def _writes_left(self) -> bool:
        """Whether blocks are still on their way to disk: each write's end may start another."""
        assert self._engine is not None
        return bool(self._engine.stats()["writes_in_flight"])

    def _obey(self, directive: Directive, shell: Shell) -> None:
        assert self._engine is not None
        mode = replies.Mode[directive.mode.name]
        if self._engine.stats()["mode"] != directive.mode.value:
            event("mode_set", f"the operator set mode {directive.mode.value}", mode=mode.name)
            shell.step(ModeSet(mode))

    def _posting_ended(self, posting: "asyncio.Task[None]") -> None:
        """A bug in heartbeats is told, and the agent serves on: no request needs them."""
        if not posting.cancelled() and (fault := posting.exception()) is not None:
            self._tally.fault("heartbeat_bug")
            LOG.error("heartbeats ended by a bug", exc_info=fault)

    def _unready(self) -> str:
        """Why the agent is not ready; empty when it is."""
        if self._told_to_stop.is_set():
            return "ending"
        if self._server is None or not self._server.listening:
            return "the socket is not listening yet"
        if not self._figures()["arena_ready_bytes"]:
            return "the first extent of the arena is not touched yet"
        return ""
