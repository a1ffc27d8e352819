"""nvm_path: one manager's at a time, and of no use to the next, whose names are others; but for the
folders of managers with a name."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from onggi_sidecar import claims
from onggi_sidecar.disk.folder import LOCK_NAME
from onggi_sidecar.disk.segment import segment_number
from onggi_sidecar.disk.table import TABLE_NAME
from onggi_sidecar.holder import read_holder

NAME: Final = "onggi-library"
"""Of the folder in nvm_path that is ours: what else lies beside it is not looked at."""
_NAMES: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")


def of_manager(nvm_path: Path, name: str | None) -> Path:
    """The folder of a manager, with or without a name. Raises TypeError and ValueError for what is
    no name."""
    if name is None:
        return nvm_path / NAME
    if not isinstance(name, str):
        raise TypeError(f"name is {name!r:.60}, a {type(name).__name__}; use text")
    if not _NAMES.fullmatch(name):
        raise ValueError(f"name is {name!r}; use up to 64 letters, digits, and . _ - in between")
    return nvm_path / f"{NAME}-{name}"


def make_empty(nvm_path: Path) -> Path:
    """The folder to use, without what an earlier manager left in it. Raises ValueError where one
    that lives uses it, and OSError where it cannot be written to."""
    folder = of_manager(nvm_path, None)
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder, nvm_path):
        _clear(folder)
    return folder


def of_name(nvm_path: Path, name: str) -> Path:
    """The folder that managers of this name use one after the other. Raises TypeError and
    ValueError for what is no name, and ValueError where one that lives uses it, and OSError where
    it cannot be written to."""
    folder = of_manager(nvm_path, name)
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder, folder):
        return folder


def remove(nvm_path: Path) -> None:
    """The folder, once nobody uses it."""
    folder = nvm_path / NAME
    with _locked(folder, nvm_path):
        _clear(folder)
        (folder / LOCK_NAME).unlink()
    with contextlib.suppress(OSError):  # another manager came, or somebody else's files are there
        folder.rmdir()


def _clear(folder: Path) -> None:
    for left in folder.iterdir():
        if left.name == TABLE_NAME or segment_number(left) is not None:
            left.unlink()


@contextlib.contextmanager
def _locked(folder: Path, nvm_path: Path) -> Iterator[None]:
    lock = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o660)
    try:
        claims.claim(lock)
        yield
    except BlockingIOError:
        holder = read_holder(lock)
        mine = holder.startswith(f"process {os.getpid()} ")
        raise ValueError(
            f"nvm_path is {str(nvm_path)!r}, which {holder} uses; "
            f"{'close the manager that this process has there, or ' if mine else ''}"
            "give each manager a folder of its own"
        ) from None
    finally:
        claims.release(lock)
