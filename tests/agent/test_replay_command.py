"""`onggi replay` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onggi_sidecar import replay_command
from onggi_sidecar.cli import main
from onggi_sidecar.replay_command import BLOCK_TOKENS, SIZES


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
    assert f"default: {BLOCK_TOKENS}" in said
    assert SIZES in said.replace("\n", "").replace(" ", "")
    assert '{"timestamp": 27482, "hash_ids": [46, 47, 48]}' in said
