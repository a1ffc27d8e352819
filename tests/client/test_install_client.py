"""The client's files as an engine finds them."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest

from onggi_sidecar.install_client import install_client


def run(folder: Path, code: str) -> str:
    """Output of a clean interpreter with the folder on its path."""
    env = {"PYTHONPATH": str(folder), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], env=env, capture_output=True, text=True, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_client_imports_from_the_folder_alone(tmp_path: Path) -> None:
    install_client(tmp_path)
    found = run(tmp_path, "import onggi, onggi_core; print(onggi.__file__)")
    assert found == str(tmp_path / "onggi" / "__init__.py")
    assert not (tmp_path / "onggi_sidecar").exists()


def test_what_installs_it_needs_no_package_either() -> None:
    """It is run where an agent is not: by an engine's interpreter, in these tests too."""
    sources = Path(install_client.__code__.co_filename).parents[1]
    code = "import onggi_sidecar.install_client as one; print(one.__file__)"
    assert run(sources, code) == str(sources / "onggi_sidecar" / "install_client.py")


def test_the_plugins_are_found_by_their_metadata(tmp_path: Path) -> None:
    install_client(tmp_path)
    (found,) = distributions(path=[str(tmp_path)])
    assert found.metadata["Name"] == "onggi"
    assert [(p.group, p.name, p.value) for p in found.entry_points] == [
        ("vllm.general_plugins", "onggi", "onggi.connectors.vllm.plugin:register"),
        ("sglang.srt.plugins", "onggi", "onggi.connectors.sglang.plugin:register"),
    ]


def test_everybody_can_read_it_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        install_client(tmp_path / "opt")
    finally:
        os.umask(before)
    for path in (tmp_path / "opt").rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o755 if path.is_dir() else 0o644), path


def test_a_folder_mistyped_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(
        SystemExit, match=rf"there is no folder {tmp_path}/no to make it in; .*mkdir"
    ):
        install_client(tmp_path / "no" / "folder")
    assert not (tmp_path / "no").exists()


def test_again_gives_the_same_and_an_older_one_goes(tmp_path: Path) -> None:
    install_client(tmp_path)
    first = {p.relative_to(tmp_path): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    (tmp_path / "onggi" / "removed_in_this_version.py").write_text("")
    (tmp_path / "onggi-0.0.1.dist-info").mkdir()
    (tmp_path / ".onggi-1234").mkdir()
    (tmp_path / "somebody_elses.py").write_text("kept")
    install_client(tmp_path)
    after = {p.relative_to(tmp_path): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    assert after == {**first, Path("somebody_elses.py"): b"kept"}
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit, match="file is not a folder"):
        install_client(tmp_path / "file")


def test_packages_that_something_else_put_there_are_kept(tmp_path: Path) -> None:
    """A checkout, or what pip installed."""
    (tmp_path / "onggi").mkdir()
    (tmp_path / "onggi" / "mine.py").write_text("kept")
    metadata = tmp_path / "onggi-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "INSTALLER").write_text("pip\n")
    with pytest.raises(SystemExit, match="was not put there by install-client"):
        install_client(tmp_path)
    assert (tmp_path / "onggi" / "mine.py").read_text() == "kept"
    (tmp_path / ".onggi-1234").mkdir()  # a run of ours was killed half way
    install_client(tmp_path)
    assert not (tmp_path / "onggi" / "mine.py").exists()


def test_other_files_in_the_folder_are_told(tmp_path: Path) -> None:
    assert install_client(tmp_path).endswith(f"is in {tmp_path}")
    assert install_client(tmp_path).endswith(f"is in {tmp_path}")
    for name in "abcd":
        (tmp_path / name).write_text("")
    assert "other files are there too (a, b, c, ...)" in install_client(tmp_path)
