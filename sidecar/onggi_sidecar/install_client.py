"""`onggi install-client FOLDER`: the client's files, where an engine's Python will find them.

The folder goes on the engine's PYTHONPATH; the metadata beside the packages is what makes vLLM and
SGLang see their plugins there, without pip and without a change to an image. The engine brings its
own Python, 3.10 to 3.13, so only sources are copied, no compiled files.
"""

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from onggi_sidecar.parents import lacks_parent

PACKAGES: Final = ("onggi", "onggi_core")
"""What runs inside an engine. The agent and the operator stay behind."""

PLUGIN_GROUPS: Final = ("vllm.general_plugins", "sglang.srt.plugins")
"""Entry points that an engine reads. The others, such as our command line, need packages that are
not copied."""

_INSTALLER: Final = "onggi install-client\n"
"""By which a client that this put there is known."""
_OTHERS_SHOWN: Final = 3

_WORLD_READS: Final = stat.S_IRUSR | stat.S_IWUSR | stat.S_IRGRP | stat.S_IROTH
_WORLD_ENTERS: Final = _WORLD_READS | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH
"""The engine runs as any user, and a volume's own group helps only some of them."""


def install_client(folder: Path) -> str:
    """Put the client into `folder`, over an older one if there is one; a sentence that says so.

    Everything is written beside its place first and renamed into it, so an engine that starts
    meanwhile sees the old client or the new one. Raises SystemExit with a sentence if the folder
    cannot be written or this installation is not whole.
    """
    try:
        found = distribution("onggi")
    except PackageNotFoundError:
        raise SystemExit("install-client: the onggi distribution is not installed here") from None
    if folder.exists() and not folder.is_dir():
        raise SystemExit(f"install-client: {folder} is not a folder; name one")
    if not folder.exists() and (why := lacks_parent(folder.absolute())):
        raise SystemExit(f"install-client: {why}")
    try:
        folder.mkdir(exist_ok=True)  # a volume is there already
        note = _look_around(folder)
        with _workspace(folder) as workspace:
            parts = [_copy_package(name, workspace) for name in PACKAGES]
            parts.append(_write_metadata(found, workspace))
            for other in folder.glob("onggi-*.dist-info"):
                if other.name != parts[-1].name:
                    other.rename(workspace / f"older-{other.name}")
            for part in parts:
                _swap_in(part, folder / part.name, workspace)
    except OSError as refused:
        why = refused.strerror or str(refused)
        raise SystemExit(
            f"install-client: {folder} cannot be written as uid {os.getuid()}, gid {os.getgid()}: "
            f"{why} ({refused.filename}); name a folder, or mount a volume, that it may write"
        ) from refused
    return f"client {found.version} is in {folder}{note}"


def _look_around(folder: Path) -> str:
    """Packages of ours that something else put there (a checkout, pip) are not to be replaced.
    Other files stay as they are; what to say of them, since they come on the engine's path too."""
    leftovers = list(folder.glob(".onggi-*"))  # of a run that was killed half way
    ours = [one for one in folder.glob("onggi-*.dist-info") if _is_ours(one)]
    there = [name for name in PACKAGES if (folder / name).exists()]
    if there and not (leftovers or ours):
        raise SystemExit(
            f"install-client: {folder / there[0]} is there and was not put there by install-client;"
            " name an empty folder"
        )
    known = {*PACKAGES, "lost+found", *(one.name for one in (*leftovers, *ours))}
    others = sorted(one.name for one in folder.iterdir() if one.name not in known)
    if not others:
        return ""
    shown = ", ".join(others[:_OTHERS_SHOWN]) + (", ..." if others[_OTHERS_SHOWN:] else "")
    return (
        f"; other files are there too ({shown}), which come on the engine's Python path with it: an"
        " empty folder is better"
    )


def _is_ours(metadata: Path) -> bool:
    installer = metadata / "INSTALLER"
    return installer.is_file() and installer.read_text() == _INSTALLER


@contextmanager
def _workspace(folder: Path) -> Iterator[Path]:
    """A folder on the same filesystem, so that a rename is all that is left to do. One that an
    earlier, killed run left behind is removed."""
    for leftover in folder.glob(".onggi-*"):
        shutil.rmtree(leftover)
    workspace = folder / f".onggi-{os.getpid()}"
    workspace.mkdir()
    try:
        yield workspace
    finally:
        shutil.rmtree(workspace)


def _copy_package(name: str, workspace: Path) -> Path:
    spec = find_spec(name)  # finds the folder of a top-level package without importing it
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"install-client: package {name} is not part of this installation")
    target = workspace / name
    skipped = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")
    shutil.copytree(spec.submodule_search_locations[0], target, ignore=skipped)
    _open_to_all(target)
    return target


def _write_metadata(found: Distribution, workspace: Path) -> Path:
    target = workspace / f"onggi-{found.version}.dist-info"
    target.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: onggi\nVersion: {found.version}\n"
    (target / "METADATA").write_text(metadata)
    lines: list[str] = []
    for group in PLUGIN_GROUPS:
        lines.append(f"[{group}]")
        lines += [f"{p.name} = {p.value}" for p in found.entry_points if p.group == group]
    (target / "entry_points.txt").write_text("\n".join(lines) + "\n")
    (target / "INSTALLER").write_text(_INSTALLER)
    _open_to_all(target)
    return target


def _open_to_all(folder: Path) -> None:
    folder.chmod(_WORLD_ENTERS)
    for path in folder.rglob("*"):
        path.chmod(_WORLD_ENTERS if path.is_dir() else _WORLD_READS)


def _swap_in(new: Path, place: Path, workspace: Path) -> None:
    if place.exists():
        place.rename(workspace / f"old-{place.name}")
    new.rename(place)
