"""The agent's parts, made and joined. Each function makes one part and says how it is released."""

import asyncio
import datetime as dt
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from onggi_core.arena_header import EPOCH_BYTES
from onggi_core.board.writer import Board
from onggi_core.engine.engine import Engine
from onggi_core.engine.events import ExtentRefused, ExtentTouched, IoOutcome
from onggi_core.engine.state import Facts
from onggi_core.policy.names import FIXED, PolicyName
from onggi_core.quantity import spell_bytes
from onggi_core.wire import replies
from onggi_sidecar.arena.file import (
    ARENA_NAME,
    ArenaFile,
    create_arena,
    volume_room_bytes,
)
from onggi_sidecar.arena.toucher import Settled, Toucher
from onggi_sidecar.cgroup import memory_limit_bytes, own_bytes
from onggi_sidecar.config import AgentConfig
from onggi_sidecar.disk.folder import ClaimedFolder, claim_folder
from onggi_sidecar.disk.other_claim import lies_unused
from onggi_sidecar.disk.outcome import classify
from onggi_sidecar.disk.recovery import RecoveredTier, recover, system_dice
from onggi_sidecar.disk.room import RoomWatch
from onggi_sidecar.disk.segments import Segments
from onggi_sidecar.disk.tier import SEAL_RESERVE_S, DiskTier
from onggi_sidecar.disk.workers import Workers
from onggi_sidecar.errors import DiskUnavailable, StartRefused
from onggi_sidecar.filesystems import in_memory
from onggi_sidecar.holder import Holder
from onggi_sidecar.log import error, event, warn
from onggi_sidecar.mailbox import Mailbox

OPEN_WITHIN_S: Final = 60.0
"""For reading a disk folder at the start: a million blocks take two seconds."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OpenedDisk:
    """A claimed folder, what was found in it, and whether its filesystem has room for more."""

    folder: ClaimedFolder
    found: RecoveredTier
    room: RoomWatch


def open_arena(config: AgentConfig) -> ArenaFile:
    """Make this life's arena, as large as its budget may become and as the container's limit
    allows. Raises StartRefused when not one extent of it fits, or when it asks for more than the
    machine has: touching it would take all memory there is."""
    asked_bytes = config.arena_bytes_max
    machine_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if asked_bytes > machine_bytes:
        raise StartRefused(
            f"memory is {spell_bytes(asked_bytes)}, but this machine has "
            f"{spell_bytes(machine_bytes)}; ask for less"
        )
    limit_bytes = memory_limit_bytes()
    needed_bytes = own_bytes(asked_bytes)
    allowed_bytes = asked_bytes if limit_bytes is None else limit_bytes - needed_bytes
    if allowed_bytes < config.extent:
        raise StartRefused(
            f"the container may use {spell_bytes(limit_bytes or 0)}; an arena of one extent of "
            f"{spell_bytes(config.extent)} and {spell_bytes(needed_bytes)} for the agent itself "
            "do not fit into that; raise the limit, or lower extent"
        )
    arena = create_arena(
        config.socket.parent,
        size_bytes=min(asked_bytes, allowed_bytes),
        extent_bytes=config.extent,
        epoch=os.urandom(EPOCH_BYTES),
        hugepages=config.hugepages,
    )
    if not in_memory(arena.path.parent):
        warn(
            "arena_not_in_memory",
            f"{arena.path.parent} is on a disk: the kernel writes the arena there, and loads may "
            "wait for it; put the socket on a memory-backed volume (tmpfs, medium: Memory)",
        )
    given_bytes = arena.header.extent_count * config.extent
    if config.memory_said:
        level = logging.WARNING if limit_bytes is None else logging.INFO
        event("memory_share", config.memory_said, level=level, memory_bytes=config.memory)
    if given_bytes < min(asked_bytes, allowed_bytes) // config.extent * config.extent:
        cause = (
            f"the volume of {arena.path} has room for "
            f"{spell_bytes(volume_room_bytes(arena.path.parent))}"
        )
    elif given_bytes < asked_bytes // config.extent * config.extent:
        cause = (
            f"the container may use {spell_bytes(limit_bytes or 0)}, and the agent needs "
            f"{spell_bytes(needed_bytes)} of that itself"
        )
    elif given_bytes < asked_bytes and not config.memory_said:
        cause = f"it is given in extents of {spell_bytes(config.extent)}"
    else:
        return arena
    warn(
        "arena_cut_down",
        f"{spell_bytes(asked_bytes)} of memory were asked for; serving with "
        f"{spell_bytes(given_bytes)}, since {cause}",
        asked_bytes=asked_bytes,
        given_bytes=given_bytes,
    )
    return arena


def start_touching(
    arena: ArenaFile, mailbox: Mailbox, extents: int, fell: Callable[[], None]
) -> Toucher:
    """Touch the arena in the background; each extent is offered as it becomes resident. `fell`:
    called on the toucher's thread when that ends by a bug."""

    def settled(end: Settled) -> None:
        arena.forget_leftover()
        if end.problem:
            error("arena_volume_full", end.problem, ready_bytes=end.ready_bytes)
        else:
            event("arena_ready", "every page of the arena is touched", ready_bytes=end.ready_bytes)

    toucher = Toucher(
        arena,
        touched=lambda extent: mailbox.post(ExtentTouched(extent, arena.inherited(extent))),
        refused=lambda extent: mailbox.post(ExtentRefused(extent)),
        settled=settled,
        fell=fell,
    )
    toucher.start(extents)
    return toucher


async def open_disk_in_time(config: AgentConfig) -> OpenedDisk | None:
    """As open_disk, in a thread. A disk that hangs costs the disk tier, not the start."""
    try:
        async with asyncio.timeout(OPEN_WITHIN_S):
            return await in_daemon_thread(lambda: open_disk(config), "onggi-recover")
    except TimeoutError:
        error(
            "disk_unavailable",
            f"{config.disk_path} could not be read within {OPEN_WITHIN_S:g} s; serving without a "
            "disk tier",
        )
        return None


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
        found = recover(folder.path, budget_bytes=config.disk_bytes_max, dice=system_dice)
        room = RoomWatch(folder.path, most_bytes=config.disk_bytes_max)
        room.first_look(config.disk)
        if unused := lies_unused(config.disk_path, config.disk_claim):
            warn("disk_left_unused", unused)
    except OSError as fault:
        folder.release()
        told = f"cannot read {folder.path}: {fault.strerror}"
        if classify(fault) is IoOutcome.NO_SPACE:
            told = (
                f"disk_path {folder.path} has no room for the tier's page table "
                f"({fault.strerror}); free some there, and start the agent again"
            )
        error("disk_unavailable", f"{told}; serving without a disk tier")
        return None
    _say_what_was_found(folder, found, time.monotonic() - begun_s)
    return OpenedDisk(folder, found, room)


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
        most_bytes=found.plan.bytes,
        recovery_s=round(recovery_s, 3),
    )


def make_disk_tier(
    opened: OpenedDisk, arena: ArenaFile, mailbox: Mailbox, config: AgentConfig
) -> DiskTier:
    return DiskTier(
        table=opened.found.table,
        segments=Segments(
            opened.folder.path,
            plan=opened.found.plan,
            tier_uuid=opened.found.table.tier_uuid,
            devices=opened.found.devices,
            unused=opened.found.unused_segments,
            clock=time.monotonic,
        ),
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
    board = Board(arena.board, header.board_slots)
    adaptive = config.policy is PolicyName.ADAPTIVE
    candidates = FIXED if adaptive else (config.policy,)
    return Engine(facts, replies.Mode[config.mode.name], board, candidates=candidates)


async def end_disk(disk: DiskTier, writes_left: Callable[[], int], deadline_s: float) -> None:
    """Write what waits for the disk, abandon what the time does not reach, seal the page table.
    writes_left: whether blocks are still on their way; each write's end may start another."""
    write_until_s = deadline_s - SEAL_RESERVE_S
    while writes_left() and time.monotonic() < write_until_s:
        await in_daemon_thread(lambda: disk.workers.drain(deadline_s=write_until_s), "onggi-drain")
    try:
        async with asyncio.timeout(deadline_s - time.monotonic() + SEAL_RESERVE_S):
            whole = await in_daemon_thread(lambda: disk.stop(deadline_s=deadline_s), "onggi-seal")
    except (OSError, TimeoutError) as fault:
        warn("table_unsealed", f"the page table could not be sealed: {fault or 'disk hangs'}")
    else:
        event("disk_sealed", "the disk tier is sealed", every_job_ended=whole)


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

    try:
        threading.Thread(target=run, name=name, daemon=True).start()
    except RuntimeError:
        if threading.main_thread().is_alive():
            raise
        run()  # an interpreter that ends begins no thread, and its exit handler waits for this loop
    return await done
