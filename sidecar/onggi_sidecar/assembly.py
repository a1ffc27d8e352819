"""The agent's parts, made and joined. Each function makes one part and says how it is released."""

import asyncio
import datetime as dt
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from onggi_core.arena_header import EPOCH_BYTES
from onggi_core.engine.engine import Engine
from onggi_core.engine.events import ExtentTouched
from onggi_core.engine.state import Facts
from onggi_core.wire import replies
from onggi_sidecar.arena.file import ARENA_NAME, ArenaFile, create_arena
from onggi_sidecar.arena.toucher import TouchEnded, Toucher
from onggi_sidecar.cgroup import OVERHEAD_BYTES, memory_limit_bytes
from onggi_sidecar.config import AgentConfig
from onggi_sidecar.disk.folder import ClaimedFolder, Holder, claim_folder
from onggi_sidecar.disk.recovery import RecoveredTier, recover, system_dice
from onggi_sidecar.disk.tier import DiskTier
from onggi_sidecar.disk.workers import Workers
from onggi_sidecar.errors import DiskUnavailable, StartRefused
from onggi_sidecar.log import error, event, warn
from onggi_sidecar.mailbox import Mailbox

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OpenedDisk:
    """A claimed folder and what was found in it."""

    folder: ClaimedFolder
    found: RecoveredTier


def open_arena(config: AgentConfig) -> ArenaFile:
    """Make this life's arena. Raises StartRefused when nothing of it fits, or when it asks for more
    than the machine has: touching it would take all memory there is."""
    machine_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if config.memory > machine_bytes:
        raise StartRefused(
            f"memory is {config.memory} bytes, but this machine has {machine_bytes}; ask for less"
        )
    arena = create_arena(
        config.socket.parent,
        size_bytes=config.memory,
        extent_bytes=config.extent,
        epoch=os.urandom(EPOCH_BYTES),
    )
    given_bytes = arena.header.extent_count * config.extent
    whole_bytes = config.memory - config.memory % config.extent
    if given_bytes < config.memory:
        cause = (
            f"the volume of {arena.path} has no room for more"
            if given_bytes < whole_bytes
            else f"it is given in extents of {config.extent}"
        )
        warn(
            "arena_cut_down",
            f"{config.memory} bytes of memory were asked for; serving with {given_bytes}, since "
            f"{cause}",
            asked_bytes=config.memory,
            given_bytes=given_bytes,
        )
    limit_bytes = memory_limit_bytes()
    if limit_bytes is not None and limit_bytes < given_bytes + OVERHEAD_BYTES:
        warn(
            "memory_limit_low",
            f"the container may use {limit_bytes} bytes, but an arena of {given_bytes} and "
            f"{OVERHEAD_BYTES} for the agent itself are needed; raise the limit or lower memory",
            limit_bytes=limit_bytes,
            needed_bytes=given_bytes + OVERHEAD_BYTES,
        )
    return arena


def start_touching(arena: ArenaFile, mailbox: Mailbox) -> Toucher:
    """Touch the arena in the background; each extent is offered as it becomes resident."""

    def ended(end: TouchEnded) -> None:
        if end.problem:
            error("arena_volume_full", end.problem, ready_bytes=end.ready_bytes)
        elif end.ready_bytes == end.asked_bytes:
            event("arena_ready", "every page of the arena is touched", ready_bytes=end.ready_bytes)

    toucher = Toucher(arena, offer=lambda extent: mailbox.post(ExtentTouched(extent)), ended=ended)
    toucher.start()
    return toucher


def open_disk(config: AgentConfig) -> OpenedDisk | None:
    """Claim and read the disk folder; None without a disk tier, or when it cannot be used, which
    is logged. Blocking: for a thread. Raises StartRefused."""
    if not config.disk or config.disk_path is None:
        return None
    since = dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds")
    holder = Holder(os.getpid(), config.pod_name, since)
    try:
        folder = claim_folder(config.disk_path, config.disk_claim, holder)
    except DiskUnavailable as why:
        error("disk_unavailable", f"{why}; serving without a disk tier")
        return None
    begun_s = time.monotonic()
    try:
        found = recover(folder.path, budget_bytes=config.disk, dice=system_dice)
    except OSError as fault:
        folder.release()
        error(
            "disk_unavailable",
            f"cannot read {folder.path}: {fault.strerror}; serving without a disk tier",
        )
        return None
    _say_what_was_found(folder, found, time.monotonic() - begun_s)
    return OpenedDisk(folder, found)


def _say_what_was_found(folder: ClaimedFolder, found: RecoveredTier, recovery_s: float) -> None:
    report = found.report
    for problem in report.problems:
        warn("disk_given_up", problem)
    event(
        "disk_ready",
        f"disk tier at {folder.path} holds {report.adopted_blocks} blocks of an earlier life",
        adopted_blocks=report.adopted_blocks,
        damaged_records=report.damaged_records,
        lost_blocks=report.lost_blocks,
        torn_bytes=report.torn_bytes,
        ended_cleanly=report.sealed,
        segments=found.plan.segments,
        segment_bytes=found.plan.segment_bytes,
        recovery_s=round(recovery_s, 3),
    )


def make_disk_tier(
    opened: OpenedDisk, arena: ArenaFile, mailbox: Mailbox, config: AgentConfig
) -> DiskTier:
    return DiskTier(
        opened.folder.path,
        plan=opened.found.plan,
        journal=opened.found.journal,
        devices=opened.found.devices,
        memory=arena,
        workers=Workers(time.monotonic),
        ended=mailbox.post,
        clock=time.monotonic,
        wall_clock=time.time,
        io_deadline_s=config.io_deadline_s,
    )


def make_engine(config: AgentConfig, arena: ArenaFile, opened: OpenedDisk | None) -> Engine:
    header = arena.header
    facts = Facts(
        epoch=header.epoch,
        arena=ARENA_NAME,
        arena_bytes=header.file_bytes,
        data_offset=header.data_offset_bytes,
        extent_bytes=header.extent_bytes,
        extents=header.extent_count,
        segment_bytes=opened.found.plan.segment_bytes if opened else 0,
        segments=opened.found.plan.segments if opened else 0,
    )
    return Engine(facts, replies.Mode[config.mode.name])


async def in_daemon_thread(work: Callable[[], T], name: str) -> T:
    """Run blocking work beside the loop; unlike an executor's, its thread never keeps a process
    that was told to end."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def give(result: T | None, fault: BaseException | None) -> None:
        if done.cancelled():
            return
        if fault is not None:
            done.set_exception(fault)
        else:
            done.set_result(result)  # type: ignore[arg-type]  # T may itself be optional

    def run() -> None:
        try:
            outcome: tuple[T | None, BaseException | None] = work(), None
        except Exception as fault:  # noqa: BLE001  raised again where it is awaited
            outcome = None, fault
        if not loop.is_closed():
            loop.call_soon_threadsafe(give, *outcome)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await done
