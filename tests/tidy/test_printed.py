"""Whatever a guide prints for its reader to type is run by some test, as it is printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]

COMMANDS: Final = {
    "docs/vllm.md": {
        "OnggiConnector": "tests/client/test_vllm_page.py",
        "OnggiOffloadingConnector": "tests/client/test_vllm_page.py",
    },
    "docs/sglang.md": {"python -m sglang.launch_server": "tests/client/test_sglang_engine.py"},
    "docs/transformers.md": {},
    "docs/library.md": {},
    "README.md": {
        "onggi agent": "tests/agent/test_readme.py",
        "onggi install-client": "tests/client/test_vllm_page.py",
    },
}
"""By page: words of a command there -> the test that runs it, which chooses it by these words."""
PROGRAMS: Final = {
    "docs/transformers.md": {"generate(": "tests/library/test_transformers_ways.py"},
    "docs/library.md": {"": "tests/library/test_library_page.py"},
    "docs/policies.md": {"": "tests/agent/test_replay_command.py"},
    "README.md": {
        "from onggi import Client": "tests/agent/test_readme.py",
        "from onggi import KVCacheManager": "tests/library/test_library_page.py",
    },
}
"""Programs, by page and words of theirs."""
TYPED: Final = re.compile(r"(?m)^ +(?:python -m|onggi) ")
"""By which a block that is a command of ours, or an engine's, is known."""


def blocks(page: str) -> list[str]:
    """Set as code by four spaces, outside of programs."""
    text = re.sub(r"(?ms)^```.*?^```", "", (ROOT / page).read_text())
    found = re.findall(r"(?m)(?:^    .*\n)+", text)
    return [one for one in found if TYPED.search(one) and "replay TRACE" not in one]


@pytest.mark.parametrize("page", COMMANDS)
def test_each_command_of_a_guide_is_run_by_a_test(page: str) -> None:
    of_test = COMMANDS[page]
    run = [[words for words in of_test if re.search(rf"\b{words}\b", one)] for one in blocks(page)]
    assert sorted(run) == [[words] for words in sorted(of_test)]
    for words, test in of_test.items():
        assert words in (ROOT / test).read_text()
        assert Path(page).name in (ROOT / test).read_text()


@pytest.mark.parametrize("page", PROGRAMS)
def test_each_program_of_a_guide_is_run_by_a_test(page: str) -> None:
    programs = re.findall(r"(?ms)^```python\n(.*?)^```", (ROOT / page).read_text())
    assert programs
    for program in programs:
        (test,) = [test for words, test in PROGRAMS[page].items() if words in program]
        assert Path(page).name in (ROOT / test).read_text()
        assert "exec(" in (ROOT / test).read_text()
