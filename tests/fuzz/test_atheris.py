"""The same targets for longer, led by coverage."""

from __future__ import annotations

import importlib.util
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fuzz.targets import TARGETS

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 30
"""A target; libFuzzer looks at the clock, the test at its verdict alone."""
MEMORY_MIB = 1024
"""Beyond what this process has had at most: the kernel counts that as the child's own peak."""
BYTES_MAX = 2048
"""Of an input: room for every sample, and fast."""


@pytest.mark.parametrize(
    ("missing", "target", "says"),
    [
        ("atheris", "config_file", "atheris is not installed: pip install -e '.[fuzz]'"),
        ("", "config", "target is 'config'; name one of "),
        ("", "", "target is ''; name one of "),
    ],
)
def test_what_keeps_the_fuzzer_from_starting_is_a_sentence(
    missing: str, target: str, says: str
) -> None:
    if not missing and importlib.util.find_spec("atheris") is None:
        pytest.skip("atheris is not installed: pip install 'onggi[fuzz]', CPython 3.11 to 3.13")
    script = (
        f"import runpy, sys; sys.modules[{missing!r}] = None; sys.argv[1:] = {target.split()!r}; "
        "runpy.run_module('tests.fuzz', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].startswith(says)
    assert "Traceback" not in done.stderr


@pytest.mark.soak
@pytest.mark.timeout(SECONDS * 20)
@pytest.mark.parametrize("name", TARGETS)
def test_nothing_that_atheris_thinks_of_breaks_a_reader(name: str, tmp_path: Path) -> None:
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("atheris is not installed: pip install 'onggi[fuzz]', CPython 3.11 to 3.13")
    inherited_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    limits = (
        f"-max_total_time={SECONDS}",
        f"-rss_limit_mb={inherited_mib + MEMORY_MIB}",
        f"-max_len={BYTES_MAX}",
        "-timeout=60",
    )
    command = [sys.executable, "-m", "tests.fuzz", name, *limits, f"-artifact_prefix={tmp_path}/"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    crashes = {path.name: path.read_bytes()[:500] for path in tmp_path.iterdir()}
    assert done.returncode == 0, f"{crashes}\n{done.stderr[-3000:]}"
    assert "Done " in done.stderr
