"""Aborts at named moments, done inside an engine's process (engine_process.py), which steps it.

A moment says what is held up meanwhile and by what it is known that it has come. What is held up
waits inside its own call: a copy at the copier's door, a read from disk in the agent.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

WAIT_S = 120.0
"""For anything that takes milliseconds."""
STEPS_HELD = 20
"""In which blocks that must not be freed yet would be, if nobody held them."""


class Inside:
    """An engine in this process, vLLM's side and Onggi's."""

    def __init__(self, llm: Any) -> None:
        from vllm.distributed.kv_transfer import get_kv_transfer_group

        self.engine = llm.llm_engine
        self.core = self.engine.engine_core.engine_core
        self.scheduler = self.core.scheduler
        self.ours = self.scheduler.connector._scheduler
        self.mover = get_kv_transfer_group()._worker._mover

    # ---- what it does

    def add(self, prompt: dict[str, Any], max_tokens: int) -> str:
        from vllm import SamplingParams

        sampling = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
        ids = {"prompt_token_ids": prompt["ids"]}
        name: str = self.engine.add_request(f"abort-{time.monotonic_ns()}", ids, sampling)
        return name

    def step(self) -> None:
        self.engine.step()
        time.sleep(0.001)  # as vLLM's own loop does where nothing was computed

    def step_until(self, true: Callable[[], bool]) -> None:
        until_s = time.monotonic() + WAIT_S
        while not true():
            assert time.monotonic() < until_s, "the moment never comes"
            self.step()

    def abort(self, name: str) -> None:
        """Between two steps. The scheduler hears of it also where the request has just ended."""
        self.engine.output_processor.abort_requests([name], internal=True)
        self.core.abort_requests([name])

    def abort_in_the_step(self, name: str) -> bool:
        """As one that arrives while a step computes: taken in behind the forward pass, before the
        step's results are. Whether a load of the request was under way then."""
        take_in, seen = self.core._process_aborts_queue, []

        def noting() -> None:
            seen.append(self.loading(name) is not None)
            take_in()

        self.engine.output_processor.abort_requests([name], internal=True)
        self.core.aborts_queue.put_nowait([name])
        self.core._process_aborts_queue = noting
        try:
            self.step()
        finally:
            del self.core._process_aborts_queue
        return seen == [True]

    # ---- what it is

    @property
    def free(self) -> int:
        return int(self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks())

    def request(self, name: str) -> Any:
        return self.scheduler.requests.get(name)

    def status(self, name: str) -> str:
        request = self.request(name)
        return "" if request is None else request.status.name

    def loading(self, name: str) -> Any:
        loads = self.ours._loads._loading.values()
        return next((one for one in loads if one.request_id == name), None)

    def promised(self, name: str) -> Any:
        tracked = self.ours._tracked.get(name)
        return None if tracked is None else tracked.offer

    @property
    def remembered(self) -> int:
        """Requests, loads and saves that Onggi's side still knows of."""
        ours = self.ours
        saves = getattr(ours._saves, "_keys", None)  # of one kind of blocks
        saves = ours._saves._jobs if saves is None else saves  # of several
        return len(ours._tracked) + len(ours._loads._loading) + len(saves)


# ---- what is held up


class Held:
    """Something that waits until it is let go. waiting: how many have come to the door."""

    def __init__(self) -> None:
        self.door = threading.Event()
        self.waiting = 0

    def let_go(self) -> None:
        self.door.set()


Hold = Callable[[Inside, str], contextlib.AbstractContextManager[Held]]


@contextlib.contextmanager
def nothing(_: Inside, __: str) -> Iterator[Held]:
    yield Held()


@contextlib.contextmanager
def copies(inside: Inside, way: str) -> Iterator[Held]:
    """The mover's copies out of the engine's blocks, or into them."""
    held = Held()

    def at_the_door(copy: Any) -> Any:
        def waits(*of: Any) -> bool:
            held.waiting += 1
            assert held.door.wait(WAIT_S)
            return bool(copy(*of))

        return waits

    for copier in inside.mover._copiers:
        setattr(copier, way, at_the_door(getattr(copier, way)))
    try:
        yield held
    finally:
        held.let_go()
        for copier in inside.mover._copiers:
            delattr(copier, way)


def saves(inside: Inside, _: str) -> contextlib.AbstractContextManager[Held]:
    return copies(inside, "copy_in")


def loads(inside: Inside, _: str) -> contextlib.AbstractContextManager[Held]:
    return copies(inside, "copy_out")


class HeldDisk(Held):
    """The agent reads nothing while the file is there (it was started so)."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file
        file.touch()

    def let_go(self) -> None:
        self._file.unlink(missing_ok=True)


@contextlib.contextmanager
def disk(_: Inside, file: str) -> Iterator[Held]:
    held = HeldDisk(Path(file))
    try:
        yield held
    finally:
        held.let_go()


# ---- moments


class Moment(NamedTuple):
    """come: whether it is now, between two steps. in_step: let go what is held, and abort while
    the next step computes. tokens: that the request may generate."""

    come: Callable[[Inside, str, Held], bool]
    hold: Hold = nothing
    in_step: bool = False
    tokens: int = 64


def arrived(inside: Inside, name: str, _: Held) -> bool:
    return inside.status(name) == "WAITING" and inside.promised(name) is None


def queued(inside: Inside, name: str, _: Held) -> bool:
    return inside.status(name) == "WAITING" and inside.promised(name) is not None


def queued_for_disk(inside: Inside, name: str, held: Held) -> bool:
    if not queued(inside, name, held):
        return False
    offer = inside.promised(name)  # of one kind of blocks, or of several
    return offer.waits if hasattr(offer, "waits") else offer.pending is not None


def loading(inside: Inside, name: str, _: Held) -> bool:
    load = inside.loading(name)
    return load is not None and not load.sent


def copying(inside: Inside, name: str, held: Held) -> bool:
    load = inside.loading(name)
    return load is not None and load.sent and held.waiting > 0


def came(inside: Inside, name: str, _: Held) -> bool:
    return name in inside.scheduler.finished_recving_kv_req_ids


def in_chunk(inside: Inside, name: str, _: Held) -> bool:
    request = inside.request(name)
    return request.num_computed_tokens >= 512 and request.num_output_tokens == 0


def decoding(inside: Inside, name: str, _: Held) -> bool:
    return bool(inside.request(name).num_output_tokens >= 3)


def preempted(inside: Inside, name: str, _: Held) -> bool:
    return inside.status(name) == "PREEMPTED"


def saving(inside: Inside, name: str, held: Held) -> bool:
    return decoding(inside, name, held) and held.waiting > 0


def ended(inside: Inside, name: str, held: Held) -> bool:
    return not inside.engine.has_unfinished_requests() and held.waiting > 0


MOMENTS = {
    "arrived": Moment(arrived),
    "queued": Moment(queued),
    "queued for disk": Moment(queued_for_disk, disk),
    "loading": Moment(loading, disk),
    "copying": Moment(copying, loads),
    "reported": Moment(copying, loads, in_step=True),
    "came": Moment(came),
    "first step": Moment(arrived, in_step=True),
    "chunk": Moment(in_chunk),
    "decoding": Moment(decoding),
    "preempted": Moment(preempted, tokens=800),
    "saving": Moment(saving, saves),
    "ended": Moment(ended, saves, tokens=1),
}


def abort_at(llm: Any, command: dict[str, Any]) -> dict[str, Any]:
    """Add a request, step until the moment has come, abort it there, step until the engine is idle.
    beside: a prompt that runs meanwhile and takes room. kept: blocks are to stay in use until what
    is held up is let go; else they are waited for before.
    """
    inside, moment = Inside(llm), MOMENTS[command["moment"]]
    before = inside.free
    with moment.hold(inside, command["file"]) as held:
        beside = inside.add(command["beside"], 500) if command.get("beside") else ""
        if beside:
            inside.step_until(lambda: bool(inside.request(beside).num_output_tokens))
        name = inside.add(command["prompt"], moment.tokens)
        inside.step_until(lambda: moment.come(inside, name, held))
        computed = getattr(inside.request(name), "num_computed_tokens", 0)
        in_step = moment.in_step and abort_in_step(inside, name, held)
        if not moment.in_step:
            inside.abort(name)
        if beside:
            inside.abort(beside)
        if command["kept"]:
            for _ in range(STEPS_HELD):
                inside.step()
        else:
            inside.step_until(lambda: inside.free == before)
        kept = before - inside.free
        held.let_go()
        inside.step_until(lambda: not inside.scheduler.has_requests())
    return {
        "in_step": in_step,
        "computed": computed,
        "kept": kept,
        "leaked": before - inside.free,
        "remembered": inside.remembered,
    }


def abort_in_step(inside: Inside, name: str, held: Held) -> bool:
    held.let_go()
    if held.waiting:  # the next step has its end to tell
        until_s = time.monotonic() + WAIT_S
        while not inside.mover._moved.loads:
            assert time.monotonic() < until_s, "the load never ends"
            time.sleep(0.001)
    return inside.abort_in_the_step(name)
