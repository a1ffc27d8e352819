"""The command line's manners."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from agent_process import REPOSITORY, SMALL, AgentProcess, StartAgent

import onggi as onggi_client
from onggi_sidecar import cli
from onggi_sidecar.agent_help import EXIT_CODES, MEANS, agent_help
from onggi_sidecar.cli import AGENT_FLAGS, COMMANDS, EXIT_PIPE
from onggi_sidecar.config import AgentConfig

SIGNALLED_IN_A_CALLBACK = """
import os, signal, sys, weakref
from onggi_sidecar.cli import main

class Mark:
    pass

class Signalling:
    def find_spec(self, name, path=None, target=None):
        if name == "onggi_sidecar.config":
            mark = Mark()
            seen = weakref.ref(mark, lambda _: os.kill(os.getpid(), signal.{signal}))
            del mark

sys.meta_path.insert(0, Signalling())
sys.exit(main(["agent", "--memory", "wrong"]))
"""
"""What is raised in a callback of the garbage collector's is swallowed, and importing runs such."""

DOCS = Path(__file__).resolve().parents[2] / "docs"


def onggi(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "onggi_sidecar", *arguments],
        env={"PYTHONPATH": str(REPOSITORY / "sidecar"), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_version_is_printed_either_way() -> None:
    flag, command = onggi("--version"), onggi("version")
    assert flag.returncode == command.returncode == 0
    assert flag.stdout == command.stdout
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*\n", flag.stdout)


def test_the_help_has_every_setting_with_default_and_variable_and_the_exit_codes() -> None:
    said = onggi("agent", "--help")
    assert said.returncode == 0
    assert MEANS.keys() == AgentConfig.model_fields.keys()
    for name in AgentConfig.model_fields:
        assert f"  {name} = " in said.stdout
        assert f"ONGGI_AGENT_{name.upper()}" in said.stdout
    for flag, metavar in AGENT_FLAGS:
        assert f"--{flag} {metavar}," in said.stdout
    assert "  memory = 1GiB\n" in said.stdout
    assert "  extent = 64MiB\n" in said.stdout
    assert "  memory_max = (as memory)\n" in said.stdout
    for code, meaning in EXIT_CODES.items():
        assert f"  {code:<3} {meaning}\n" in said.stdout


def test_the_agents_page_has_every_setting_and_exit_code() -> None:
    text = (DOCS / "agent.md").read_text()
    for name in AgentConfig.model_fields:
        assert f"`{name}`" in text
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)] == [*EXIT_CODES]


def test_every_flag_is_a_field_of_the_configuration() -> None:
    assert {flag.replace("-", "_") for flag, _ in AGENT_FLAGS} < AgentConfig.model_fields.keys()
    assert "FOLDER" in agent_help({"disk_path": "FOLDER"})


def test_a_command_that_is_none_is_refused_with_those_that_are() -> None:
    said = onggi("fly")
    assert said.returncode == 2
    assert all(command in said.stderr for command in COMMANDS)
    assert "Traceback" not in said.stderr
    said = onggi("agnet")
    assert said.returncode == 2
    assert said.stderr == "onggi: there is no agnet; did you mean agent?\n"


@pytest.mark.parametrize("signal", ["SIGTERM", "SIGINT"])
def test_an_agent_ends_when_it_is_told_to_while_it_loads_its_libraries(signal: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SIGNALLED_IN_A_CALLBACK.format(signal=signal)],
        env={"PYTHONPATH": str(REPOSITORY / "sidecar"), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_an_arena_that_would_lie_on_a_disk_is_warned_of(tmp_path: Path) -> None:
    """The kernel writes such an arena to the disk, page by page."""
    agent = AgentProcess(tmp_path, *SMALL)
    try:
        said = agent.wait_for("arena_not_in_memory")["message"]
        assert f"{tmp_path} is on a disk" in said
        agent.wait_for("listening")
        assert agent.end() == 0
    finally:
        agent.clean_up()


def test_an_arena_in_memory_is_not(start: StartAgent) -> None:
    agent = start()
    agent.wait_for("listening")
    assert not agent.said("arena_not_in_memory")


@pytest.mark.parametrize("what", ["a file", "a folder"])
def test_a_refused_start_leaves_no_lock_behind(
    start: StartAgent, memory_folder: Path, what: str
) -> None:
    socket = memory_folder / "agent.sock"
    if what == "a file":
        socket.write_text("mine")
    else:
        socket.mkdir()
    agent = start()
    assert agent.wait() == 1
    right = "is not a socket; remove it" if what == "a file" else "is a folder; name a file in it"
    assert f"agent.sock {right}" in agent.said("start_refused")[0]["message"]
    assert [path.name for path in memory_folder.iterdir()] == ["agent.sock"]


def test_a_second_agent_on_the_socket_is_told_who_has_it(
    start: StartAgent, memory_folder: Path
) -> None:
    first = start()
    first.wait_for("listening")
    second = start()
    assert second.wait() == 1
    said = second.said("start_refused")[0]["message"]
    assert re.search(rf"agent.sock: process {first.process.pid} since 20\d\d-", said)
    assert (memory_folder / "agent.sock.lock").exists()
    assert first.end() == 0


def test_a_reader_that_has_enough_is_no_fault() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "onggi_sidecar", "version"]
    ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, timeout=60)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (EXIT_PIPE, b"")


def test_an_empty_folder_is_not_this_one() -> None:
    ended = onggi("install-client", "")
    assert ended.returncode == 2
    assert "argument FOLDER: it is empty; name a folder (. for this one)" in ended.stderr


def test_an_agents_own_broken_pipe_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(_: object) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(cli, "_agent", breaks)
    with pytest.raises(BrokenPipeError):
        cli.main(["agent"])


@pytest.mark.parametrize("arguments", [(), ("--help",), ("--memroy", "1GiB")])
def test_without_its_extra_the_agent_says_how_to_install_it(arguments: tuple[str, ...]) -> None:
    """-S: nothing but the standard library, as after a plain `pip install .`."""
    ended = subprocess.run(
        [sys.executable, "-S", "-m", "onggi_sidecar", "agent", *arguments],
        env={"PYTHONPATH": str(REPOSITORY / "sidecar"), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == cli.EXIT_REFUSED == 1
    assert ended.stderr.startswith(f"{cli.NEEDS_EXTRA}; here is no ")
    assert ended.stderr.count("\n") == 1
    assert "pip install 'onggi[agent]'" in ended.stderr


@pytest.mark.parametrize("missing", ["onggi_core.nothing", None])
def test_a_part_of_onggis_own_that_is_missing_is_a_fault(
    monkeypatch: pytest.MonkeyPatch, missing: str | None
) -> None:
    def lacks(_: object) -> int:
        raise ModuleNotFoundError(name=missing)

    monkeypatch.setattr(cli, "_agent", lacks)
    with pytest.raises(ModuleNotFoundError):
        cli.main(["agent"])


@pytest.mark.parametrize(
    ("missing", "right"),
    [
        ("torch", "pip install torch"),
        ("xxhash", "pip install 'onggi[agent]' (from a checkout: pip install '.[agent]')"),
    ],
)
def test_the_library_says_how_to_install_what_it_lacks(
    monkeypatch: pytest.MonkeyPatch, missing: str, right: str
) -> None:
    def lacks(_: str) -> None:
        raise ModuleNotFoundError(name=missing)

    monkeypatch.setattr("onggi.import_module", lacks)
    with pytest.raises(ImportError) as told:
        _ = onggi_client.KVCacheManager
    said = f"KVCacheManager needs {missing}, which is not installed here: {right}"
    assert str(told.value) == said
