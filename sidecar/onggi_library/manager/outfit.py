"""What a manager is made of, from what its caller said."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from onggi_core.policy.choosers import Chooser
from onggi_core.policy.names import FIXED, PolicyName, chooser_of
from onggi_core.policy.reuse import Reuse
from onggi_core.quantity import spell_bytes
from onggi_library.in_process import InProcessAgent
from onggi_library.manager import folder, sizes
from onggi_library.manager.device import DeviceTier
from onggi_library.manager.hot import HotSet


class OwnAgent:
    """An agent in this process, and its folder for as long as it lives."""

    def __init__(
        self,
        cpu_memory: float | str,
        nvm_path: str | os.PathLike[str] | None,
        nvm_memory: float | str | None,
        name: str | None,
    ) -> None:
        memory = sizes.at_least("cpu_memory", cpu_memory, sizes.CPU_MIN)
        extent = sizes.extent_of(memory)
        settings: dict[str, Any] = {"memory": memory // extent * extent, "extent": extent}
        self._path: Path | None = None
        self.kept: Path | None = None
        """The folder of the steps that outlive the process."""
        if name is not None and nvm_path is None:
            raise ValueError(f"name is {name!r} without nvm_path; what is to be kept lies there")
        if nvm_path is not None:
            path = Path(nvm_path).absolute()
            if nvm_memory is not None:
                settings["disk"] = sizes.at_least("nvm_memory", nvm_memory, sizes.NVM_MIN)
            if name is None:
                self._path, settings["disk_path"] = path, folder.make_empty(path)
            else:
                self.kept = settings["disk_path"] = folder.of_name(path, name)
            settings["disk"] = settings.get("disk") or sizes.nvm_default(path)
        elif nvm_memory is not None:
            raise ValueError(f"nvm_memory is {nvm_memory!r} without nvm_path; name a folder for it")
        self._agent = InProcessAgent(policy=PolicyName.LRU, **settings)
        self.socket = str(self._agent.socket)

    def close(self) -> None:
        self._agent.close()
        if self._path is not None:
            folder.remove(self._path)


def device_tier(
    capacity: float | str, device: torch.device, policy: str, first: int, last: int
) -> DeviceTier:
    for name, steps in (("first_steps", first), ("last_steps", last)):
        if type(steps) is not int or steps < 0:
            raise ValueError(f"{name} is {steps!r}; use a whole number from 0 on")
    nbytes = sizes.size("gpu_memory", capacity)
    if nbytes > (there := _memory_of(device)):
        has = f"{device} has {spell_bytes(there)}"
        raise ValueError(f"gpu_memory is {capacity!r}, {spell_bytes(nbytes)}; {has}: use less")
    return DeviceTier(nbytes, device, _chooser(policy), HotSet(), first=first, last=last)


def _memory_of(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


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
