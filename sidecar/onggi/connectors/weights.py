"""Which weights a model has: other weights under the same name must not find old blocks.

A name says nothing about content, and neither does a path. In order: what the user declares; the
commit that the hub's files came from; the content of a local folder's files.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from typing import Any, Final

WHOLE_MAX_BYTES: Final = 1024 * 1024 * 1024
"""Weights up to this are read whole: half a second of SHA-256, once at start."""

SAMPLES: Final = 256
SAMPLE_BYTES: Final = 4096
"""Of each larger file this many stretches, evenly spread, are read, with its size and time of
change. Two trainings of a model differ in nearly every number; the time catches the rest."""

_SUFFIXES: Final = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".json")

_NOT_SHAPING: Final = frozenset(
    {
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab.json",
        "chat_template.json",
    }
)
"""Sampling defaults, and how text becomes token ids: blocks are found by the ids themselves."""

_CHUNK_BYTES: Final = 1024 * 1024


class WeightsUnknown(Exception):
    """It cannot be learnt which weights these are. The message says what to set."""


def revision(model: str, commit: str | None, declared: str) -> str:
    """A text that differs when the weights differ. Raises WeightsUnknown, or OSError if the
    folder cannot be read.

    model: name or path as the engine has it. commit: the hub's, if the engine knows it. declared:
    the user's own word, which goes first.
    """
    if declared:
        return f"declared:{declared}"
    if os.path.isdir(model):
        return f"files:{_digest(_files(model))}"
    if os.path.isfile(model):
        return f"files:{_digest([model])}"
    if commit:
        return f"commit:{commit}"
    raise WeightsUnknown(
        f"the weights of {model} are neither a local folder nor of a known commit; "
        "set ONGGI_MODEL_REVISION to a text that changes whenever they do"
    )


def _files(folder: str) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(
            entry.path
            for entry in entries
            if entry.name.endswith(_SUFFIXES) and entry.name not in _NOT_SHAPING and entry.is_file()
        )


def _digest(paths: list[str]) -> str:
    if not paths:
        raise WeightsUnknown("the model's folder holds no weights; set ONGGI_MODEL_REVISION")
    whole = sum(os.stat(path).st_size for path in paths) <= WHOLE_MAX_BYTES
    digest = hashlib.sha256()
    for path in paths:
        stat = os.stat(path)
        digest.update(f"{os.path.basename(path)} {stat.st_size}".encode())
        if not whole:
            digest.update(f" {stat.st_mtime_ns}".encode())
        for part in _whole(path) if whole else _sampled(path, stat.st_size):
            digest.update(part)
    return digest.hexdigest()[:32]


def _whole(path: str) -> Iterator[Any]:
    buffer = bytearray(_CHUNK_BYTES)
    with open(path, "rb", buffering=0) as file:
        while size := file.readinto(buffer):
            yield memoryview(buffer)[:size]


def _sampled(path: str, size: int) -> Iterator[bytes]:
    with open(path, "rb", buffering=0) as file:
        for number in range(SAMPLES):
            file.seek(max(0, size - SAMPLE_BYTES) * number // (SAMPLES - 1))
            yield file.read(SAMPLE_BYTES)
