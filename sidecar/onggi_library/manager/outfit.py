"""What a manager is made of, from what its caller said."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any, Final

import torch

from onggi import checks
from onggi_core.policy.choosers import Chooser
from onggi_core.policy.names import FIXED, PolicyName, chooser_of
from onggi_core.policy.reuse import Reuse
from onggi_library import own_tiers
from onggi_library.in_process import InProcessAgent
from onggi_library.manager import folder, sizes
from onggi_library.manager.device import DeviceTier
from onggi_library.manager.hot import HotSet

CPU_MEMORY_GIB: Final = 4
_ITS_OWN: Final = {
    "cpu_memory": "a running agent has memory of its own",
    "nvm_path": "a running agent has a disk of its own",
    "nvm_memory": "a running agent has a disk of its own",
    "name": "what is kept by name is in nvm_path, and not in a running agent",
}


class OwnAgent:
    """An agent in this process, and its folder for as long as it lives."""

    def __init__(
        self,
        cpu_memory: float | str | None,
        nvm_path: str | os.PathLike[str] | None,
        nvm_memory: float | str | None,
        name: str | None,
    ) -> None:
        self.kept: Path | None = None
        """The folder of the steps that outlive the process."""
        if nvm_path is None:
            for argument, value in (("name", name), ("nvm_memory", nvm_memory)):
                if value is not None:
                    right = "name a folder for what is to lie there"
                    raise ValueError(f"{argument} is {value!r} without nvm_path; {right}")
        host = CPU_MEMORY_GIB if cpu_memory is None else cpu_memory
        settings = own_tiers.host_memory(sizes.asked("cpu_memory", host))
        if nvm_path is not None:
            settings |= self._disk(nvm_path, nvm_memory, name)
        self._agent = InProcessAgent(policy=PolicyName.LRU, **settings)
        self.socket = str(self._agent.socket)

    def _disk(
        self,
        nvm_path: str | os.PathLike[str],
        nvm_memory: float | str | None,
        name: str | None,
    ) -> dict[str, Any]:
        path, said = own_tiers.path_of("nvm_path", nvm_path), os.fsdecode(nvm_path)
        ours = folder.of_manager(path, name)
        wanted = None if nvm_memory is None else sizes.asked("nvm_memory", nvm_memory)
        nbytes = own_tiers.disk_bytes(wanted, "nvm_path", said, ours)
        own_tiers.usable("nvm_path", said, ours)
        with own_tiers.told_of("nvm_path", said):
            if name is not None:
                self.kept = folder.of_name(path, name)
                return {"disk": nbytes, "disk_path": ours}
            folder.make_empty(path)
        afterwards = functools.partial(folder.remove, path)
        return {"disk": nbytes, "disk_path": ours, "afterwards": afterwards}

    def close(self) -> None:
        """Nothing is left but under a name, unless the disk hangs: then the next one removes it."""
        self._agent.close()


def socket_of(agent: str | os.PathLike[str], **of_its_own: object) -> str:
    """Of a running agent, which has tiers of its own: of_its_own is all that only a manager's own
    agent is told, None where it was not said. Raises TypeError and ValueError."""
    socket = checks.socket_path(agent, "agent")
    for argument, value in of_its_own.items():
        if value is not None:
            raise ValueError(f"{argument} is {value!r}; {_ITS_OWN[argument]}: leave it out")
    return socket


def device_tier(
    capacity: float | str, device: torch.device, policy: str, first: int, last: int
) -> DeviceTier:
    for name, steps in (("first_steps", first), ("last_steps", last)):
        if type(steps) is not int or steps < 0:
            raise ValueError(f"{name} is {steps!r}; use a whole number from 0 on")
    there = _memory_of(device)
    less = "there is no GPU, and of plain memory there is less" if device.type == "cpu" else ""
    wanted = sizes.asked("gpu_memory", capacity).at_most(there, less or f"{device} has less")
    return DeviceTier(wanted.nbytes, device, _chooser(policy), HotSet(), first=first, last=last)


def _memory_of(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return own_tiers.machine_bytes()


def _chooser(policy: str) -> Chooser:
    names = [fixed.value for fixed in FIXED]
    if policy not in names:
        raise ValueError(f"policy is {policy!r}; use one of {', '.join(names)}")
    return chooser_of(PolicyName(policy), Reuse())


def device_of(given: str | torch.device | None) -> torch.device:
    """With its number, where there are several."""
    if given is None:
        given = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(given)
    except (RuntimeError, TypeError):
        raise ValueError(f"device is {given!r}; use cpu, cuda or cuda:N") from None
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"device is {str(device)!r}; use cpu, cuda or cuda:N")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device is {str(device)!r}, and torch finds no GPU here; use cpu")
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device
