"""KVCacheManager: values by step over device, host memory and disk, exact or an exception."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Final, Literal

import torch

from onggi.arguments import named
from onggi_core.policy.names import PolicyName
from onggi_library.endings import Ending
from onggi_library.manager import kept
from onggi_library.manager.ahead import Ahead, weakly
from onggi_library.manager.errors import CLOSED, Lost, Unreachable
from onggi_library.manager.figures import Stats
from onggi_library.manager.lanes import Lanes
from onggi_library.manager.outfit import OwnAgent, device_of, device_tier, socket_of
from onggi_library.manager.pages import check_whole, cut
from onggi_library.manager.steps import Step, check_step, checked_steps
from onggi_library.manager.tally import Tally
from onggi_library.manager.values import Form, flatten, pack, unpack
from onggi_library.rounding import EXACT, check_lower

FIRST_STEPS: Final = 4
LAST_STEPS: Final = 64


class KVCacheManager:
    """Thread-safe. Not for a forked child, which is told so: make a manager of its own there."""

    @named
    def __init__(
        self,
        gpu_memory: float | str = 1,
        cpu_memory: float | str | None = None,
        nvm_path: str | os.PathLike[str] | None = None,
        nvm_memory: float | str | None = None,
        *,
        device: str | torch.device | None = None,
        agent: str | os.PathLike[str] | None = None,
        first_steps: int = FIRST_STEPS,
        last_steps: int = LAST_STEPS,
        policy: str = PolicyName.LRU.value,
        lower: str = EXACT,
        name: str | None = None,
    ) -> None:
        """gpu_memory, cpu_memory (4 if None), nvm_memory: numbers are GiB, or "512MiB". device:
        where values are handed out; the current CUDA device, or plain memory where there is none.
        nvm_path: a folder for the disk tier, none without it; nvm_memory: what its file system has
        free less a tenth (1 GiB at least), 1 TiB at most, unless it is said. agent: the socket of a
        running agent, instead of cpu_memory, nvm_path and nvm_memory. first_steps, last_steps: how
        many of the steps put first and last stay on the device; policy: who goes of the others.
        lower: "exact", or "int8" to round what lies below the device. name: steps stay in nvm_path
        under it, for the next manager of this name.

        Raises ValueError and TypeError for what cannot be, StartRefused where there is less memory
        or disk than asked for, Unreachable where no agent answers.
        """
        self._pid = os.getpid()
        check_lower(lower)
        where = device_of(device)
        self._device = device_tier(gpu_memory, where, policy, first_steps, last_steps)
        self._agent: OwnAgent | None = None
        if agent is None:
            self._agent = OwnAgent(cpu_memory, nvm_path, nvm_memory, name)
            socket = self._agent.socket
        else:
            socket = socket_of(
                agent, cpu_memory=cpu_memory, nvm_path=nvm_path, nvm_memory=nvm_memory, name=name
            )
        folder = self._agent.kept if self._agent else None
        try:
            begun = kept.begin(socket, lower, alone=agent is None, folder=folder)
        except BaseException:
            self._end_agent()
            raise
        self._below, self._steps, self._notes, lost = begun
        self._lanes = Lanes(where)
        self._ahead = Ahead(weakly(self._bring_up))
        self._lock = threading.RLock()
        self._closed = False
        self._tally = Tally(self._device, lost)
        self._ending = Ending(self, self._ahead.let_go)

    # ---- values

    def put(self, step: Step, kv: Any) -> None:
        """Keep a value: a tensor, or tuples, lists and dicts of tensors, up to 32 deep. It
        is copied, to host memory as well, before this returns. A step that was put before gets the
        new value. Raises TypeError and ValueError for what cannot be kept, and DoesNotFit; then the
        step is as it was."""
        self._check(step)
        form, tensors = flatten(kv)
        check_whole(form.nbytes)
        self._below.check(form)
        row = self._lanes.new_row(cut(form.nbytes).nbytes)
        with self._lanes.work():
            pack(tensors, form, row)
        serial = self._steps.new_serial()
        self._below.put(serial, form, self._lanes.to_host(row))
        with self._lock:
            try:
                self._notes.put(step, serial)
            except Exception:
                self._notes.gave_up(serial)
                self._below.discard(serial, form)
                raise
            before = self._steps.replace(step, serial, form)
            self._tally.puts += 1
            self._keep_on_device(serial, row)
            self._device.was_put(serial)
        if before is not None:
            self._forget(*before)

    def get(self, step: Step) -> Any:
        """The value, on the device, in tensors of its own. Raises KeyError for a step that was not
        put, Lost where the tiers no longer have it, Unreachable where nobody knows."""
        self._check(step)
        row = None
        while row is None:
            with self._lock:
                serial, form = self._steps.find(step)
                row = self._copy_on_device(serial, form)
            if row is None:
                self._ahead.wait_for(serial)
                with self._lock:
                    row = self._copy_on_device(serial, form)
            if row is None:
                row = self._from_below(step, serial, form)
        with self._lock:
            foretold = self._tally.foretold(step, threading.get_ident())
        self._bring_ahead(foretold)
        return unpack(form, row)

    def prefetch(self, steps: Iterable[Step]) -> int:
        """These will be asked for, in this order: they come to host memory, and as far as a queue
        of 100 MB goes to the device. How many of them are on the device, or will be; steps that are
        not there are passed over and not counted. Raises TypeError for what is no list of steps."""
        self._check()
        return self._bring_ahead(checked_steps(steps))

    def discard(self, step: Step) -> None:
        """The step is worth nothing any more. Raises KeyError for one that was not put."""
        self._check(step)
        with self._lock:
            self._steps.find(step)
            self._notes.discard(step)
            before = self._steps.remove(step)
        self._forget(*before)

    def __contains__(self, step: object) -> bool:
        with self._lock:
            return self._steps.get(step) is not None

    def __len__(self) -> int:
        return len(self._steps)

    def __iter__(self) -> Iterator[Step]:
        """The steps, in the order in which they were put first."""
        with self._lock:
            return iter(self._steps.names())

    # ---- the manager

    def stats(self) -> Stats:
        self._check()
        figures = self._below.tiers.stats()
        with self._lock:
            return self._tally.stats(
                len(self._steps),
                self._below,
                figures,
                queue_bytes=self._ahead.nbytes,
                known_bytes=self._steps.nbytes + self._notes.nbytes,
            )

    def close(self) -> None:
        """Give all memory back, and what lies on disk but under a name. Twice is as good as once.
        Raises Unreachable if steps with a name did not get to the disk."""
        if self._closed or not self._ending.comes():
            return
        self._closed = True
        self._ahead.close()
        with self._lock:
            self._device.clear()
            if self._agent is None:
                for serial, form in self._steps.values():
                    self._below.discard(serial, form)
        try:
            if self._notes.keeps:
                self._below.tiers.wait_until_written()
            self._notes.close()
        finally:
            self._below.tiers.close()
            self._end_agent()

    def __enter__(self) -> KVCacheManager:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> Literal[False]:
        self.close()
        return False

    # ---- inside

    def _check(self, *steps: Step) -> None:
        if os.getpid() != self._pid:
            raise RuntimeError(
                f"this KVCacheManager is process {self._pid}'s, and this is its child "
                f"{os.getpid()}; make one here, or start children by spawn"
            )
        if self._closed:
            raise RuntimeError(CLOSED)
        for step in steps:
            check_step("step", step)

    def _copy_on_device(self, serial: int, form: Form) -> torch.Tensor | None:
        """A copy of a value that the device has."""
        found = self._device.find(serial)
        if found is None:
            return None
        row, ahead = found
        self._tally.found_on_device(serial, form.nbytes, ahead=ahead)
        return self._lanes.copy_of(row, form.nbytes)

    def _from_below(self, step: Step, serial: int, form: Form) -> torch.Tensor | None:
        """None: the step has another value by now."""
        source, row = self._below.get(serial, form, self._lanes.new_host_row)
        with self._lock:
            if self._steps.find(step)[0] != serial:
                return None
            if source is None:
                raise Lost(step, "the tiers below the device no longer have it")
            self._tally.found_below(serial, form.nbytes, source)
            row = self._lanes.to_device(row)
            self._keep_on_device(serial, row)
            self._device.passes(serial)
        return row

    def _bring_ahead(self, steps: Iterable[Step]) -> int:
        coming = 0
        for step in steps:
            with self._lock:
                found = self._steps.get(step)
                if found is None:
                    continue
                serial, form = found
                here = serial in self._device
            pages = cut(form.nbytes)
            if not here:
                self._below.hint(serial, form)
                fits = pages.nbytes <= self._device.capacity_bytes
                here = fits and self._ahead.add(step, serial, pages.nbytes)
            coming += here
        return coming

    def _bring_up(self, step: Step, serial: int) -> None:
        """In the thread of Ahead. What goes wrong is found again, and told, by the get to come."""
        with self._lock:
            found = self._steps.get(step)
        if found is None or found[0] != serial:
            return
        try:
            source, row = self._below.get(serial, found[1], self._lanes.new_host_row)
        except Unreachable:
            return
        row = self._lanes.to_device(row)
        with self._lock:
            found = self._steps.get(step)
            if source is not None and found is not None and found[0] == serial:
                self._keep_on_device(serial, row, ahead=True)

    def _keep_on_device(self, serial: int, row: torch.Tensor, *, ahead: bool = False) -> None:
        if serial in self._device:
            return
        slot = self._device.room_for(serial, row.numel(), ahead=ahead)
        if slot is not None:
            with self._lanes.work():
                slot.copy_(row, non_blocking=True)

    def _forget(self, serial: int, form: Form) -> None:
        with self._lock:
            self._device.remove(serial)
        self._below.discard(serial, form)

    def _end_agent(self) -> None:
        if self._agent is not None:
            self._agent.close()
