"""What no linter sees: the shape of the tree itself."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "onggi_core": ROOT / "sidecar/onggi_core",
    "onggi_sidecar": ROOT / "sidecar/onggi_sidecar",
    "onggi": ROOT / "sidecar/onggi",
    "onggi_library": ROOT / "sidecar/onggi_library",
    "onggi_operator": ROOT / "operator/onggi_operator",
}
LINES_MAX = 300
"""A file longer than this holds more than one idea."""
TEST_LINES_MAX = 450
"""A test file mirrors one module, sentence by sentence, and may take longer."""
FUNCTION_LINES_MAX = 80


def sources() -> list[Path]:
    roots = [*PACKAGES.values(), ROOT / "tests", ROOT / "e2e", ROOT / "bench", ROOT / "examples"]
    return sorted(path for root in roots for path in root.rglob("*.py"))


def names(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_operator_is_a_bare_folder() -> None:
    """With an __init__.py it would shadow the standard library's `operator` at the root."""
    assert not (ROOT / "operator/__init__.py").exists()
    done = subprocess.run(
        [sys.executable, "-c", "import collections, operator; print(operator.__file__)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert not done.stdout.startswith(str(ROOT))


def test_tests_are_no_packages() -> None:
    assert not list((ROOT / "tests").rglob("__init__.py"))


@pytest.mark.parametrize("path", sources(), ids=names)
def test_files_and_functions_stay_small(path: Path) -> None:
    text = path.read_text()
    testing = path.is_relative_to(ROOT / "tests")
    assert len(text.splitlines()) <= (TEST_LINES_MAX if testing else LINES_MAX)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < FUNCTION_LINES_MAX, node.name


@pytest.mark.parametrize(
    "path", [p for r in PACKAGES.values() for p in sorted(r.rglob("__init__.py"))], ids=names
)
def test_each_package_begins_with_a_signpost(path: Path) -> None:
    doc = ast.get_docstring(ast.parse(path.read_text()))
    assert doc, "say what lives here, who may import it, and what does not belong"


def test_the_core_imports_only_the_standard_library() -> None:
    allowed = set(sys.stdlib_module_names) | {"onggi_core"}
    for path in PACKAGES["onggi_core"].rglob("*.py"):
        for name in imported(path):
            assert name in allowed, f"{names(path)} imports {name}"


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def interpreters() -> list[str]:
    """Other CPythons on this machine that an engine may bring, by what is on PATH or in pyenv."""
    found = []
    for minor in (10, 11, 12, 13):
        places = [Path(p) / f"python3.{minor}" for p in os.environ["PATH"].split(os.pathsep)]
        places += sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python"))
        for place in places:
            works = (
                place.exists()
                and not subprocess.run(
                    [place, "-c", f"import sys; sys.exit(sys.version_info[1] != {minor})"],
                    capture_output=True,
                ).returncode
            )
            if works:
                found.append(str(place))
                break
    return found


@pytest.mark.parametrize("python", interpreters())
def test_client_and_core_import_on_the_engines_python(python: str) -> None:
    """Every module but the engines' own connectors, with nothing installed."""
    modules = [
        ".".join(path.relative_to(ROOT / "sidecar").with_suffix("").parts)
        for name in ("onggi_core", "onggi")
        for path in sorted(PACKAGES[name].rglob("*.py"))
        if "connectors" not in path.parts and "torch" not in path.name
    ]
    script = "import importlib, sys\nfor m in sys.argv[1:]: importlib.import_module(m)"
    done = subprocess.run(
        [
            python,
            "-I",
            "-c",
            f"import sys; sys.path.insert(0, {str(ROOT / 'sidecar')!r})\n{script}",
            *modules,
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_every_interpreter_that_engines_bring_was_tried() -> None:
    missing = [m for m in (10, 11, 12, 13) if not any(f"3.{m}" in p for p in interpreters())]
    if missing:
        pytest.skip(f"no CPython 3.{missing} here; the client was imported on the others")


def test_the_project_speaks_of_itself_alone() -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split("\0")
    words = ["/wo" + "rk/", "../sha" + "red/", "pypi." + "org", "files.python" + "hosted"]
    for name in filter(None, tracked):
        path = ROOT / name
        if path.is_file() and path.suffix not in {".sum", ".png"}:
            text = path.read_text(errors="replace")
            for word in words:
                if word == "../sha" + "red/" and name.startswith("tests/"):
                    continue
                assert word not in text, f"{name} says {word}"
