"""Which weights an adapter (LoRA) stands for: its name is not enough.

An adapter may be reloaded in place, under its name and path, with other weights; old blocks must
then not be found, and new ones not be taken for old. So its version is part of the key: what its
files held when this engine first used this load of it. Where that cannot be learnt, the adapter's
requests are not cached, and that is said once.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any, Final

from onggi.connectors.vllm.guard import log
from onggi_core.identity import Extra

ADAPTERS_MAX: Final = 4096
"""Loads of adapters remembered; past it the memory is emptied and files are looked at anew."""

_SUFFIXES: Final = (".safetensors", ".bin", ".pt", ".json")


class Adapters:
    """Remembers a version for each load of an adapter. Of the scheduler; not thread-safe."""

    def __init__(self) -> None:
        self._versions: dict[tuple[int, str, str], str] = {}

    def extras(self, lora: Any) -> tuple[Extra, ...] | None:
        """Extras for requests of this adapter (vLLM's LoRARequest, or None for the base model).
        None: its version cannot be learnt, do not cache."""
        if lora is None:
            return ()
        load = (lora.lora_int_id, lora.lora_name, lora.lora_path)
        if load not in self._versions or getattr(lora, "load_inplace", False):
            if len(self._versions) >= ADAPTERS_MAX:
                self._versions.clear()
            self._versions[load] = _version(lora.lora_path)
            if not self._versions[load]:
                log.warning(
                    "onggi: the files of adapter %s are not at %s; its requests are not cached",
                    lora.lora_name,
                    lora.lora_path,
                )
        version = self._versions[load]
        if not version:
            return None
        return (
            ("lora_name", lora.lora_name),
            ("lora_path", lora.lora_path),
            ("lora_version", version),
        )


def _version(path: str) -> str:
    """Of the files in an adapter's folder: names, sizes and times of change. Empty: unknown."""
    try:
        with os.scandir(path) as entries:
            files = sorted(
                (e.name, e.stat().st_size, e.stat().st_mtime_ns)
                for e in entries
                if e.name.endswith(_SUFFIXES) and e.is_file()
            )
    except OSError:
        return ""
    if not files:
        return ""
    return hashlib.sha256(repr(files).encode()).hexdigest()[:32]
