"""Docs that retell a table in the code must tell it as it is."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest

import onggi
from onggi.connectors.sglang import plugin as sglang_plugin
from onggi.connectors.sglang.options import Options as SGLangOptions
from onggi.connectors.vllm.options import Options
from onggi.connectors.vllm.tally import COUNTERS
from onggi_core.engine.session import TICKETS_MAX
from onggi_core.page import MOVES
from onggi_core.wire import frame
from onggi_operator.inject.outcome import SkipReason

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_diagram_of_a_pages_life_is_the_table() -> None:
    text = (DOCS / "architecture.md").read_text()
    drawn = re.findall(r"^  (\w+) --> (\w+): (\w+)$", text, re.MULTILINE)
    assert set(drawn) == {(s.name, to.name, event.name) for (s, event), to in MOVES.items()}


def test_the_protocol_page_has_the_codes_and_limits_of_the_code() -> None:
    text = (DOCS / "protocol.md").read_text()
    for status in frame.Status:
        fatal = r"\*fatal\*" if status in frame.FATAL else r"(?!\*fatal\*)"
        assert re.search(rf"^\| {status.value} \| {status.name} \| {fatal}", text, re.MULTILINE)
    headings = " ".join(line for line in text.splitlines() if line.startswith("### "))
    for op in frame.Op:
        assert f"{op.value} {op.name}" in headings
    for limit in (frame.KEYS_MAX, frame.SPACES_MAX, frame.OFFSETS_MAX, TICKETS_MAX):
        assert f"| {limit:,} |" in text
    assert f"{frame.PAYLOAD_MAX_BYTES:,}" in text


def test_the_vllm_page_names_every_metric_and_setting() -> None:
    text = (DOCS / "vllm.md").read_text()
    for counter, meaning in COUNTERS.items():
        assert f"| `vllm:onggi_{counter}_total` | {meaning} |" in text
    for setting in fields(Options):
        assert f"| `{setting.name}` |" in text


def test_the_sglang_page_has_the_flags_and_every_setting() -> None:
    text = (DOCS / "sglang.md").read_text()
    command = " ".join(text.replace("\\\n", " ").split())
    assert " ".join(sglang_plugin.FLAGS) in command
    for setting in fields(SGLangOptions):
        assert f"| `{setting.name}` |" in text


def test_the_agents_page_names_every_event_that_it_logs() -> None:
    agent = DOCS.parent / "sidecar/onggi_sidecar"
    call = re.compile(r"\b(?:event|warn|error)\(\s*\"([a-z_]+)\"")
    logged = {name for path in agent.rglob("*.py") for name in call.findall(path.read_text())}
    (line,) = [x for x in (DOCS / "agent.md").read_text().splitlines() if "Events: `" in x]
    named = set(re.findall(r"`([a-z_]+)`", line.partition("Events:")[2]))
    assert logged == named


@pytest.mark.parametrize("page", ["testing.md", "injection.md"])
def test_the_tests_that_a_page_names_are_there(page: str) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (DOCS / page).read_text())
    assert len(named) > 20
    for path, name in named:
        text = (DOCS.parent / path).read_text()
        assert re.search(rf"^(async )?def {name}\(", text, re.MULTILINE), f"{path}::{name}"


def test_the_tests_named_beside_vllms_own_are_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", (DOCS / "vllm-situations.md").read_text()))
    tests = (DOCS.parent / "tests").rglob("test_*.py")
    there = {name for file in tests for name in re.findall(r"def (test_\w+)", file.read_text())}
    assert len(named) > 50
    assert named - there == set()


def test_the_injection_page_has_every_reason_for_a_skip() -> None:
    text = (DOCS / "injection.md").read_text()
    assert {reason.value for reason in SkipReason if f"`{reason.value}`" not in text} == set()


def test_the_testing_page_lists_every_test_of_faults() -> None:
    listed = set(re.findall(r"^\| `(test_\w+\.py)` \|", (DOCS / "testing.md").read_text(), re.M))
    assert listed == {path.name for path in (DOCS.parent / "tests/faults").glob("test_*.py")}


def test_the_python_page_names_everything_public() -> None:
    text = (DOCS / "python.md").read_text()
    calls = {name for name, _ in inspect.getmembers(onggi.Client) if not name.startswith("_")}
    internal = {"showing", "note_loaded"}  # of the client's own parts
    wanted = {*onggi.__all__, *calls - internal}
    assert {name for name in wanted if not re.search(rf"\b{name}\b", text)} == set()
    for limit in (frame.KEYS_MAX, frame.SPACES_MAX):
        assert re.search(rf"\b{limit:,}\b", text)


def test_what_an_agent_takes_of_the_operators_memory_is_what_was_measured() -> None:
    measured = r"\| memory: nothing seen, 10,000 pods, 10,000 agents \| \| \d+, (\d+), (\d+) MiB \|"
    (row,) = re.findall(measured, (DOCS / "performance.md").read_text())
    without, with_them = map(int, row)
    each_kib = (with_them - without) * 1024 / 10_000
    for page in (DOCS / "operator.md", DOCS.parent / "charts/onggi/values.yaml"):
        (told,) = re.findall(
            r"(\d+) KiB (?:of the operator's memory|for each agent)", page.read_text()
        )
        assert abs(int(told) - each_kib) < each_kib / 20, page


def test_the_index_of_decisions_has_each_one_and_says_which_numbers_are_unused() -> None:
    folder = DOCS / "decisions"
    text = (folder / "README.md").read_text()
    rows = re.findall(r"^\| (\d{4}) \| \[(.+)\]\((\S+\.md)\) \| .+ \|$", text, re.MULTILINE)
    wanted = []
    for path in sorted(folder.glob("[0-9]*.md")):
        title = path.read_text().splitlines()[0].removeprefix("# ")
        wanted.append((path.name[:4], title.removeprefix(f"{path.name[:4]}: "), path.name))
    assert [(n, title.casefold(), name) for n, title, name in rows] == [
        (n, title.casefold(), name) for n, title, name in wanted
    ]
    numbers = {int(number) for number, _, _ in wanted}
    assert len(numbers) == len(wanted)
    unused = sorted(set(range(1, max(numbers) + 1)) - numbers)
    (told,) = re.findall(r"missing here \((.+?)\)", text)
    assert told == ", ".join(f"{number:04}" for number in unused)


def test_the_reasons_that_the_operators_page_helps_with_are_reasons() -> None:
    text = (DOCS / "operator.md").read_text()
    table = text.partition("## When something is wrong")[2].partition("\n## ")[0]
    rows = [line.split(" | ")[0] for line in table.splitlines() if line.startswith("| ")]
    named = [name for row in rows for name in re.findall(r"`([A-Z]\w+)`", row)]
    known = re.findall(r"^\| `(\w+)` \|", (DOCS / "api.md").read_text(), re.MULTILINE)
    assert len(named) > 10
    assert set(named) - set(known) == set()


def test_the_readme_leads_to_every_page() -> None:
    text = (DOCS.parent / "README.md").read_text()
    pages = [path.name for path in DOCS.glob("*.md")]
    assert [page for page in pages if f"](docs/{page})" not in text] == []
