"""`onggi replay` as a user runs it."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import pytest

from onggi_sidecar import replay_command
from onggi_sidecar.cli import main
from onggi_sidecar.replay_command import BLOCK_TOKENS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "talk.jsonl"
    lines = [
        json.dumps({"timestamp": n, "hash_ids": [0, n % 7 + 1, 100 + n % 3]}) for n in range(60)
    ]
    path.write_text("\n".join(lines))
    return path


def test_a_table_and_a_picture(trace: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "rates.svg"
    flags = ["--sizes", "2.5K,10K", "--policies", "belady,adaptive,lru", "--jobs", "1"]
    assert main(["replay", str(trace), *flags, "--out", str(out)]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].replace(" ", "") == "|tokens|belady|adaptive|lru|"
    assert [line.split()[1] for line in printed[2:]] == ["2.5", "10", "sum"]
    assert out.read_text().startswith("<svg")


def test_json(trace: Path, capsys) -> None:
    flags = ["--sizes", "10K", "--policies", "lru", "--jobs", "1", "--json"]
    assert main(["replay", str(trace), *flags]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["requests"], found["blocks_asked"], found["block_tokens"]) == (60, 180, 512)
    assert 0 < found["hit_rate"]["lru"][0] < 1


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--sizes", "4.7X"], "--sizes has '4.7X', should be tokens such as 4.7M"),
        (["--sizes", "100"], "--sizes has '100', should be at least a block's 512 tokens"),
        (["--sizes", "4GB"], "--sizes has '4GB', should be tokens such as 4.7M"),
        (["--sizes", "4GiB"], "--sizes has '4GiB', which are bytes; say --token-bytes too"),
        (
            ["--sizes", "4KiB", "--token-bytes", "1KiB"],
            "--sizes has '4KiB', which is 4 tokens, should be at least a block's 512 tokens",
        ),
        (["--token-bytes", "0"], "--token-bytes is '0', should be what one token takes"),
        (["--token-bytes", "2GiB"], "--token-bytes is '2GiB', should be what one token takes"),
        (["--token-bytes", "1KB"], "--token-bytes: '1KB' has the unit 'KB'"),
        (["--sizes", "1e6"], "--sizes has '1e6', should be tokens such as 4.7M"),
        (["--out", "r.png"], "--out is r.png, should end in .svg, which is what is drawn: r.svg"),
        (["--policies", "lru,fifo"], "--policies has 'fifo', should be of belady, adaptive, lru"),
        (["--block-tokens", "0"], "--block-tokens is '0', should be a whole number from 1"),
        (
            ["--out", "/nowhere/at/all.svg", "--sizes", "1K", "--policies", "lru"],
            "--out is /nowhere",
        ),
    ],
)
def test_a_wrong_flag_is_a_sentence(trace: Path, capsys, flags: list[str], says: str) -> None:
    assert main(["replay", str(trace), "--jobs", "1", *flags]) == 2
    assert capsys.readouterr().err.startswith(f"onggi replay: {says}")


def test_sizes_may_be_written_small(trace: Path, capsys) -> None:
    flags = ["--sizes", "10k,0.01m", "--policies", "lru", "--jobs", "1", "--json"]
    assert main(["replay", str(trace), *flags]) == 0
    assert json.loads(capsys.readouterr().out)["capacity_tokens"] == [10_000]


def test_sizes_may_be_bytes_and_are_shown_as_both(trace: Path, capsys) -> None:
    sizes = ["--sizes", "96MiB,1GiB,10K", "--token-bytes", "56KiB"]
    flags = [*sizes, "--policies", "lru", "--jobs", "1"]
    assert main(["replay", str(trace), *flags]) == 0
    rows = [
        [cell.strip() for cell in line.split("|")] for line in capsys.readouterr().out.split("\n")
    ]
    assert [row[1:3] for row in rows[:-1]] == [
        ["tokens", "size"],
        ["---", "---"],
        ["1.75 K", "96 MiB"],
        ["10 K", "547 MiB"],
        ["18.7 K", "1 GiB"],
        ["sum", ""],
    ]
    assert main(["replay", str(trace), *flags, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["capacity_tokens"] == [1755, 10_000, 18_724]
    assert found["capacity_bytes"] == [each * 56 * 1024 for each in found["capacity_tokens"]]


def test_without_sizes_they_are_parts_of_what_the_trace_has(tmp_path: Path, capsys) -> None:
    path = tmp_path / "talk.jsonl"
    path.write_text("\n".join(json.dumps({"timestamp": 0, "hash_ids": [n]}) for n in range(300)))
    flags = ["--policies", "lru", "--jobs", "1", "--json", "--block-tokens", "16"]
    assert main(["replay", str(path), *flags]) == 0
    sizes = json.loads(capsys.readouterr().out)["capacity_tokens"]
    assert sizes == [16 * blocks for blocks in (3, 10, 30, 100, 300)]


def test_the_largest_of_its_own_sizes_finds_all_that_comes_again(trace: Path, capsys) -> None:
    flags = ["--policies", "belady,adaptive,lru", "--jobs", "1", "--json"]
    assert main(["replay", str(trace), *flags]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["capacity_tokens"] == [512, 3 * 512, 11 * 512]
    assert len({rates[-1] for rates in found["hit_rate"].values()}) == 1


def test_it_says_how_far_it_is_beside_the_table(
    trace: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_command, "TELL_EVERY_S", 0.001)
    flags = ["--sizes", "10K", "--policies", "lru", "--jobs", "1", "--json"]
    assert main(["replay", str(trace), *flags]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["requests"] == 60
    assert printed.err.startswith("onggi replay: 0 of 1 runs are done after 0 s\n")


def test_a_wrong_line_is_named_with_its_file(tmp_path: Path, capsys) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"timestamp": 1, "hash_ids": [1]}\n{"timestamp": 2}\n')
    assert main(["replay", str(path)]) == 2
    says = f"onggi replay: {path}: line 2: hash_ids is None, should be a list"
    assert capsys.readouterr().err.startswith(says)


def test_a_file_that_is_not_there(tmp_path: Path, capsys) -> None:
    assert main(["replay", str(tmp_path / "none.jsonl")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_the_help_has_the_defaults_and_the_format_of_a_line(capsys) -> None:
    with pytest.raises(SystemExit):
        main(["replay", "--help"])
    said = capsys.readouterr().out
    assert f"default: {BLOCK_TOKENS}" in " ".join(said.split())
    assert "a third and all of the trace's different blocks" in " ".join(said.split())
    assert '{"timestamp": 27482, "hash_ids": [46, 47, 48]}' in said


def recorder() -> str:
    (program,) = re.findall(r"(?ms)^```python\n(.*?)^```", (ROOT / "docs/policies.md").read_text())
    return str(program)


def test_the_printed_program_makes_a_trace_of_a_vllms_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    prompts = [list(range(100)), list(range(50)), [7], list(range(40, 90))]
    lines = [
        f"DEBUG 11-30 17:40:02 [request_logger.py:54] Request cmpl-{n} details: prompt: 'a\\nb"
        f" prompt_token_ids: [0], prompt_embeds', prompt_token_ids: {tokens}, prompt_embeds shape:"
        " None.\nINFO 11-30 17:40:02 [request_logger.py:66] Received request\n"
        for n, tokens in enumerate(prompts)
    ]
    Path("vllm.log").write_text("".join(lines))
    exec(recorder(), {})
    ids = [json.loads(line)["hash_ids"] for line in Path("mine.jsonl").read_text().splitlines()]
    assert [len(each) for each in ids] == [6, 3, 3]  # the third has no full block
    assert ids[1] == ids[0][:3]
    assert not {*ids[2]} & {*ids[0]}
    flags = ["--block-tokens", "16", "--policies", "lru", "--jobs", "1", "--json"]
    assert main(["replay", "mine.jsonl", *flags]) == 0
    assert json.loads(capsys.readouterr().out)["hit_rate"]["lru"][-1] == round(3 / 12, 4)


@pytest.mark.engine
def test_a_vllm_logs_what_the_printed_program_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    vllms = pytest.importorskip(
        "vllm.entrypoints.serve.utils.request_logger", reason="vLLM is not installed here"
    )
    monkeypatch.setattr(vllms.logger, "propagate", True)
    with caplog.at_level(logging.DEBUG, logger=vllms.logger.name):
        logger = vllms.RequestLogger(max_log_len=None)
        logger.log_inputs("one", "some words", list(range(33)), None, None, None)
    monkeypatch.chdir(tmp_path)
    Path("vllm.log").write_text("".join(f"{message}\n" for message in caplog.messages))
    exec(recorder(), {})
    (line,) = Path("mine.jsonl").read_text().splitlines()
    assert len(json.loads(line)["hash_ids"]) == 2
