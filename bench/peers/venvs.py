"""Peers' own Python environments, made once and kept in a cache folder, with versions pinned.

A peer's libraries never meet Onggi's: each has a folder, and is made anew when its list changes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
ENGINE_LIST: Final = ROOT / "e2e" / "engine" / "requirements.txt"
LISTS: Final = {name: Path(__file__).with_name(f"{name}.txt") for name in ("mooncake", "lmcache")}
PACKAGES: Final = ("fio", "redis-server", "libibverbs1", "libnuma1", "libcurl4")
"""Debian's: two peers, and what Mooncake's library is linked to."""
PYTHON: Final = "3.11"
INSTALL_S: Final = 1200.0


class CannotInstall(Exception):
    """A peer is not here and cannot be made to be. The message says why."""


def cache_folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("ONGGI_BENCH_DIR") or Path(home) / "onggi-bench")


def python_of(peer: str) -> Path:
    """Its interpreter, installed if need be. Raises CannotInstall."""
    lists = [ENGINE_LIST, LISTS[peer]] if peer in LISTS else [ENGINE_LIST]
    stamp = hashlib.sha256(b"".join(path.read_bytes() for path in lists)).hexdigest()
    folder = cache_folder() / peer
    complete = folder / ".complete"
    if not complete.exists() or complete.read_text() != stamp:
        print(f"installing {peer} into {folder}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        _uv("venv", "--quiet", "--python", PYTHON, str(folder))
        named = [argument for path in lists for argument in ("-r", str(path))]
        target = ["--python", str(folder / "bin/python")]
        _uv("pip", "install", "--quiet", "--no-deps", "--compile-bytecode", *target, *named)
        complete.write_text(stamp)
    return folder / "bin/python"


def libraries_of(peer: str) -> str:
    """LD_LIBRARY_PATH for libraries that came as Python packages."""
    packages = cache_folder() / peer / "lib" / f"python{PYTHON}" / "site-packages"
    return str(packages / "nvidia" / "cuda_runtime" / "lib")


def install_packages() -> str:
    """Debian's packages, as root. What is missing in the end; empty if nothing is."""
    missing = _missing_packages()
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        print(f"installing Debian packages: {' '.join(missing)}", flush=True)
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        for command in (["update"], ["install", "-y", "--no-install-recommends", *missing]):
            subprocess.run(["apt-get", "-qq", *command], env=quiet, check=False)
        missing = _missing_packages()
    return f"as root: apt-get install {' '.join(missing)}" if missing else ""


def _missing_packages() -> list[str]:
    if not shutil.which("dpkg-query"):
        return list(PACKAGES)
    query = ["dpkg-query", "-W", "-f", "${db:Status-Status}"]
    return [
        name
        for name in PACKAGES
        if subprocess.run([*query, name], capture_output=True, text=True).stdout != "installed"
    ]


def _uv(*arguments: str) -> None:
    beside = Path(sys.executable).with_name("uv")
    uv = str(beside) if beside.exists() else shutil.which("uv")
    if uv is None:
        raise CannotInstall("uv is not installed (make puts it into .venv)")
    quiet = {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}
    try:
        done = subprocess.run(
            [uv, *arguments], env=quiet, capture_output=True, text=True, timeout=INSTALL_S
        )
    except subprocess.TimeoutExpired as late:
        raise CannotInstall(f"uv {arguments[0]} took more than {INSTALL_S:.0f} s") from late
    if done.returncode:
        raise CannotInstall(f"uv {' '.join(arguments[:2])}: {done.stderr.strip()[-600:]}")
