"""The agent's life: what is started in which order, and taken down in the reverse.

Order matters where another process looks on: the socket is claimed before the arena, so that a
second agent cannot retire a live one's memory; the disk tier is adopted before the socket listens,
so that the first lookup after a restart already hits; it may be told to stop at any time.

Clients are served by the data plane, a thread of its own. This one, asyncio's, has signals, HTTP
and heartbeats, and talks to the plane by calls that end in bounded time.
"""

import asyncio
import functools
import importlib
import time
from collections import deque
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from onggi_core.engine.engine import Engine
from onggi_core.engine.events import Stopping, Tick
from onggi_sidecar.assembly import (
    end_disk,
    in_daemon_thread,
    make_disk_tier,
    make_engine,
    open_arena,
    open_disk_in_time,
    start_touching,
)
from onggi_sidecar.budgets import Budgets
from onggi_sidecar.config import AgentConfig
from onggi_sidecar.disk.leftovers import tend
from onggi_sidecar.disk.tier import DiskTier
from onggi_sidecar.figures import gather_figures
from onggi_sidecar.heap import give_back_free_heap
from onggi_sidecar.log import LOG, event, warn
from onggi_sidecar.mailbox import Mailbox
from onggi_sidecar.obedience import Obedience
from onggi_sidecar.plane import Plane, PlaneSilent
from onggi_sidecar.server import Server
from onggi_sidecar.shell import Shell
from onggi_sidecar.socketfile import claim_socket
from onggi_sidecar.tally import Tally

T = TypeVar("T")


class Agent:
    """One life. Every resource is released by an exit stack, in reverse order of its making.

    reports: whether it serves HTTP and posts heartbeats. listening: called once clients can come.
    """

    def __init__(
        self, config: AgentConfig, *, reports: bool, listening: Callable[[], None]
    ) -> None:
        self._config = config
        self._reports = reports
        self._listening = listening
        self._budgets: Budgets | None = None
        self._told_to_stop = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop
        self._fault = False
        self._tally = Tally(time.perf_counter)
        self._plane: Plane | None = None
        self._serves = False
        self._engine: Engine | None = None
        self._disk: DiskTier | None = None
        self._last_figures: dict[str, Any] = {}

    async def run(self) -> bool:
        """Start, serve, end; False if a bug ended it. Raises what starting raised, StartRefused
        among it."""
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._unexpected)
        async with AsyncExitStack() as stack:
            starting = asyncio.create_task(self._start(stack))
            stopping = asyncio.create_task(self._told_to_stop.wait())
            await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
            if starting.done() and (why := starting.exception()) is not None:
                stopping.cancel()
                raise why
            await stopping
            event("stopping", "told to end")
            if not starting.done():
                starting.cancel()
                await asyncio.wait((starting,))
        event("stopped", "ended")
        return not self._fault

    @property
    def has_disk(self) -> bool:
        """Whether there is a disk tier, once it serves."""
        return self._disk is not None

    def stop(self) -> None:
        """Begin the end; run() answers when it is over. On the agent's own loop."""
        self._told_to_stop.set()

    def read_again(self, reread: Callable[[], AgentConfig]) -> None:
        """Follow budgets that were changed where the configuration comes from."""
        if self._budgets is not None:  # else the start reads it soon enough
            self._budgets.read_again(reread)

    def _unexpected(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A callback raised: a bug of ours, so the agent ends and is started again."""
        loop.default_exception_handler(context)
        self._fell()

    def _fell(self) -> None:
        """A bug was met. The state behind it cannot be trusted, so the agent ends, disk tier
        sealed, and is started again."""
        self._fault = True
        self._told_to_stop.set()

    def _fell_elsewhere(self) -> None:
        """As _fell, from another thread."""
        self._loop.call_soon_threadsafe(self._fell)

    async def _start(self, stack: AsyncExitStack) -> None:
        config, begun_s = self._config, time.monotonic()
        claim = claim_socket(config.socket)
        stack.callback(claim.release)
        # HTTP's libraries take half a second to load, with the GIL held, and open files for it, as
        # its port is one: before there are clients, who may have all the descriptors there are
        importing = asyncio.create_task(self._import_reporting())
        stack.callback(importing.cancel)
        mailbox = Mailbox()
        arena = open_arena(config)
        stack.callback(arena.retire)
        extents = min(config.memory // config.extent, arena.header.extent_count)
        toucher = start_touching(arena, mailbox, extents, self._fell_elsewhere)
        stack.callback(toucher.stop)
        opened = await open_disk_in_time(config)
        if opened is None and config.disk:
            self._tally.fault("disk_unavailable")
        self._budgets = Budgets(
            config,
            extents=arena.header.extent_count,
            plan=opened.found.plan if opened is not None else None,
            post=mailbox.post,
        )
        if opened is not None:
            stack.callback(opened.folder.release)
            stack.callback(tend(config))
            stack.callback(opened.room.watch(self._budgets.disk_bytes, self._tally))
            self._tally.fault("table_damaged", opened.found.report.damaged_blocks)
            self._disk = make_disk_tier(opened, arena, mailbox, config)
            stack.callback(self._disk.close)
        self._engine = make_engine(config, arena, opened)
        shell = Shell(self._engine, disk=self._disk, toucher=toucher, clock=time.monotonic)
        while opened is not None and opened.found.adopted:
            shell.step(opened.found.adopted.pop(0))
        give_back_free_heap()
        shell.step(self._budgets.present)
        await importing
        server, plane = self._step_engine(shell, mailbox, stack)
        if self._reports:
            await self._start_reporting(stack)
        plane.call(lambda: server.start(claim.listen()))
        self._serves = True
        event(
            "listening",
            f"listening on {config.socket}",
            socket=str(config.socket),
            epoch=arena.header.epoch.hex(),
            start_s=round(time.monotonic() - begun_s, 3),
        )
        self._listening()

    def _step_engine(
        self, shell: Shell, mailbox: Mailbox, stack: AsyncExitStack
    ) -> tuple[Server, Plane]:
        """From here on the engine is the plane's. The server takes nobody yet."""

        def tick() -> None:
            shell.step(Tick())
            server.tick()

        if self._disk is not None:
            self._disk.workers.fell = self._fell_elsewhere
        plane = Plane(mailbox, step=shell.step, tick=tick, fell=self._fell_elsewhere)
        shell.wake_at, shell.again, shell.when_idle = plane.wake_at, plane.again, plane.when_idle
        server = Server(shell, self._tally, plane)
        stack.push_async_callback(self._take_down, shell, server, plane)
        plane.start()
        self._plane = plane
        return server, plane

    async def _import_reporting(self) -> None:
        if self._reports:
            await in_daemon_thread(
                lambda: importlib.import_module("onggi_sidecar.reporting"), "onggi-import"
            )

    async def _start_reporting(self, stack: AsyncExitStack) -> None:
        from onggi_sidecar.reporting import Reporting  # loaded by now, see _start

        assert self._plane is not None
        assert self._budgets is not None
        obedience = Obedience(self._budgets, figures=self._figures, post=self._plane.post)
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
            reporting.post_heartbeats(obedience, ended=self._posting_ended)

    async def _take_down(self, shell: Shell, server: Server, plane: Plane) -> None:
        """Stop admitting, finish or abandon I/O within the deadline, seal the page table."""
        deadline_s = time.monotonic() + self._config.shutdown_deadline_s

        def stop_admitting() -> None:
            server.close()
            shell.step(Stopping())

        self._ask_plane(plane, stop_admitting)
        if self._disk is not None:
            # each write's end may start another
            await end_disk(self._disk, lambda: self._left(plane, "writes_in_flight"), deadline_s)
            left = self._left(plane, "pending_blocks")
            event("blocks_left", f"{left} blocks did not reach the disk", left_blocks=left)
        self._ask_plane(plane, server.close_clients)
        if not plane.stop():
            warn("plane_hangs", "the data plane did not end in time and is left behind")

    def _ask_plane(self, plane: Plane, work: Callable[[], T]) -> T | None:
        """On the way down: what fails is told, and the rest of the end still happens."""
        try:
            return plane.call(work)
        except Exception as fault:  # noqa: BLE001  the page table has to be sealed all the same
            LOG.error("the data plane failed at the end", exc_info=fault)
            self._fault = True
            return None

    def _figures(self) -> dict[str, Any]:
        """Of this moment; of the last one that was heard of when the plane is busy or gone."""
        assert self._engine is not None
        assert self._plane is not None
        gather = functools.partial(
            gather_figures,
            self._engine,
            self._disk,
            self._tally,
            io_deadline_s=self._config.io_deadline_s,
        )
        try:
            self._last_figures = self._plane.call(gather)
        except PlaneSilent:
            if not self._last_figures:
                raise
        return self._last_figures

    def _left(self, plane: Plane, figure: str) -> int:
        engine = self._engine
        assert engine is not None
        return self._ask_plane(plane, lambda: int(engine.stats()[figure])) or 0

    def _posting_ended(self, posting: "asyncio.Task[None]") -> None:
        """A bug in heartbeats is told, and the agent serves on: no request needs them."""
        if not posting.cancelled() and (fault := posting.exception()) is not None:
            self._tally.fault("heartbeat_bug")
            LOG.error("heartbeats ended by a bug", exc_info=fault)

    def _unready(self) -> str:
        """Why the agent is not ready; empty when it is."""
        if self._told_to_stop.is_set():
            return "ending"
        if not self._serves:
            return "clients are not taken yet"
        try:
            if not self._figures()["arena_ready_bytes"]:
                return "the first extent of the arena is not touched yet"
        except PlaneSilent as silent:
            return str(silent)
        return ""
