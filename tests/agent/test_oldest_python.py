"""Which Python the command needs, and who says so on an older one."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
import tomllib

from onggi_sidecar.__main__ import OLDEST, refusal

ROOT: Final = Path(__file__).resolve().parents[2]


def test_an_older_python_is_refused_by_what_it_is_and_what_is_needed() -> None:
    said = refusal((3, 10))
    assert said.startswith("onggi: needs Python 3.11 or newer, and this is 3.10; only the client")


@pytest.mark.parametrize("version", [(3, 11), (3, 13), (4, 0)])
def test_a_newer_one_is_not(version: tuple[int, int]) -> None:
    assert refusal(version) == ""


def test_pip_and_the_readme_say_the_same() -> None:
    oldest = ".".join(map(str, OLDEST))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={oldest}"
    assert f"Python: {oldest} or newer" in (ROOT / "README.md").read_text()
