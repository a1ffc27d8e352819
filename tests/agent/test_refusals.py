"""Every option of every command with wrong values: what is wrong, its value, and what is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from onggi_sidecar import cli
from onggi_sidecar.config import AgentConfig

SIZES = {
    "": "it is empty; write a size such as 16GiB",
    "much": "it is not a size; write a number and a unit, such as 16GiB",
    "-1GiB": "it is negative; a size is zero or more",
    "1GB": "it has the unit 'GB', which is 2**30 bytes to some and 10**9 to others; write 1GiB or",
    "1gib": "it has the unknown unit 'gib'; write 1GiB or 1G (powers of 1024, of 1000)",
    "1 jiffy": "it has the unknown unit 'jiffy'; units are KiB MiB GiB",
    "1e99": "it has an exponent beyond 18",
    "1e18E": "it has the unknown unit",
    "9999999Ei": "it is more than 9223372036854775807 bytes",
    "9" * 99: "it is longer than 64 characters",
    "1\0": "it has the unknown unit",
}
SHARES = dict.fromkeys(("0%", "100%", "120%", "-5%", "5.5%", "%", "a%"), "or 1% to 99% of the")
GROWTH = dict.fromkeys(("120%", "5.5%"), "; write 0 for the same as memory, or")
NO_SHARE = {"5%": "a share of the memory limit is for memory and memory_max alone; write"}
PATHS = {
    "": "it is empty; write",
    "a\0b": "it has a zero byte; write",
    "\ud800": "it has a character that no path can have; write",
}
SECONDS = dict.fromkeys(
    ("0", "-1", "601", "nan", "inf", "soon", "", "1s"),
    "is wrong; write seconds, more than 0 and up to 600",
)
HOSTS = dict.fromkeys(
    ("", "a b", "a..b", "x" * 64, "http://a", "a:b", "\ud800", "1.2.3.4\0", "a\n"),
    "it is neither an address nor a name; write an address or a host's name",
)
URLS = dict.fromkeys(
    ("operator:443", "ftp://a", "https://", "https://a:99999", "https://[::1", "https://a b"),
    "it is no address that begins with https://; write empty, or the operator's address",
)
WRONG: dict[str, dict[str, str]] = {
    "memory": {**SIZES, **SHARES, "1MiB": "write at least one extent, 67108864 bytes (64MiB)"},
    "memory_max": {**SIZES, **GROWTH, "512MiB": "write 0, or at least memory, 1073741824 bytes"},
    "extent": {**SIZES, **NO_SHARE, "3MiB": "a power of two", "4GiB": "at most 2GiB"},
    "hugepages": dict.fromkeys(("on", ""), "write Auto or Off"),
    "disk": {
        **SIZES,
        **NO_SHARE,
        "1MiB": "0 for none, or at least 16MiB",
        "65TiB": "at most 64TiB",
    },
    "disk_max": {**SIZES, **NO_SHARE, "1GiB": "write 0, or disk, 0 bytes, up to 8 times that"},
    "disk_path": PATHS,
    "disk_claim": {"mine": "write exclusive or shared", "": "write exclusive or shared"},
    "socket": {**PATHS, "/": "write the path of a file", "/" + "x" * 107: "at most 107 bytes long"},
    "http_host": HOSTS,
    "http_port": dict.fromkeys(
        ("http", "-1", "65536", "", "1.5"), "write a port up to 65535, 0 for any free one"
    ),
    "mode": dict.fromkeys(("actve", "On", ""), "write Active, Observe or Paused"),
    "operator_url": URLS,
    "operator_ca_file": PATHS,
    "token_file": PATHS,
    "shutdown_deadline_s": SECONDS,
    "policy": dict.fromkeys(
        ("best", ""), "write adaptive, or one of worth, worth-second-sight, hazard, lru, arc"
    ),
    "disk_retention_s": dict.fromkeys(
        ("-1", "1d", "soon", "nan", "inf", "315360001"),
        "is wrong; write 0 to keep them, or seconds up to 315360000",
    ),
    "io_deadline_s": SECONDS,
    "log_level": dict.fromkeys(("loud", ""), "write debug, info, warning or error"),
}
ANY_TEXT = {"pool", "namespace", "pod_name", "pod_uid", "node_name", "operator_ca"}

FLAGS = {flag.replace("-", "_") for flag, _ in cli.AGENT_FLAGS}


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line's signal handlers would stay with the test's process."""
    monkeypatch.setattr("onggi_sidecar.cli.signal.signal", lambda *_: None)
    monkeypatch.setattr("onggi_sidecar.process.run_agent", lambda *_: pytest.fail("it started"))


def test_no_setting_is_left_out() -> None:
    assert WRONG.keys() | ANY_TEXT == AgentConfig.model_fields.keys()


@pytest.mark.parametrize(
    ("field", "value", "right"),
    [(field, value, right) for field, values in WRONG.items() for value, right in values.items()],
)
def test_a_wrong_setting_is_told_with_its_value_and_what_is_right(
    field: str,
    value: str,
    right: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    if field in FLAGS:
        way, given = f"--{field.replace('_', '-')}", [f"--{field.replace('_', '-')}={value}"]
    else:
        way, given = f"ONGGI_AGENT_{field.upper()}", []
        if not value:
            return  # a variable that is empty counts as not set
        monkeypatch.setattr("onggi_sidecar.cli.os.environ", {way: value})
    assert cli.main(["agent", *given]) == cli.EXIT_CONFIG
    said = [line for line in capsys.readouterr().err.splitlines() if f": {field}: " in line]
    assert len(said) == 1
    shown = value if len(value) < 90 else value[:10]
    assert said[0].startswith(f"onggi agent: {field}: {shown!r}"[:40].rstrip("'"))
    assert f"({'in ' + way}) is wrong; " in said[0]
    assert right in said[0]


@pytest.mark.parametrize(
    ("arguments", "command", "says"),
    [
        ("agent --memry 1GiB", "agent", "there is no --memry; did you mean --memory?"),
        ("agent --memry=1GiB", "agent", "there is no --memry; did you mean --memory?"),
        ("agent -memory 1GiB", "agent", "there is no -memory; did you mean --memory?"),
        ("agent --disk_path /d", "agent", "there is no --disk_path; did you mean --disk-path?"),
        ("agent --mem 1GiB", "agent", "there is no --mem; did you mean --memory?"),
        ("agent --pool chat", "agent", "that setting has the variable ONGGI_AGENT_POOL"),
        ("agent --qwertz 1", "agent", "there is no --qwertz; there are --config, --memory, "),
        ("agent 1GiB", "agent", "'1GiB' was not expected"),
        ("agent --memory", "agent", "argument --memory: expected one argument"),
        ("install-client", "install-client", "the following arguments are required: FOLDER"),
        ("install-client a b", "install-client", "'b' was not expected"),
        ("install-client a --force", "install-client", "there is no --force"),
        ("install-client --force", "install-client", "there is no --force"),
        ("replay", "replay", "the following arguments are required: TRACE"),
        ("replay --sizs 1K", "replay", "there is no --sizs; did you mean --sizes?"),
        ("agent --memory --dsk 1GiB", "agent", "there is no --dsk; did you mean --disk?"),
        ("replay t --sizs 1K", "replay", "there is no --sizs; did you mean --sizes?"),
        ("replay t u", "replay", "'u' was not expected"),
        ("version --long", "version", "there is no --long; there are no options"),
    ],
)
def test_what_a_command_does_not_know_is_told_with_its_own_usage_and_the_nearest_option(
    arguments: str, command: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments.split())
    assert ended.value.code == cli.EXIT_CONFIG
    said = capsys.readouterr().err
    assert said.startswith(f"usage: onggi {command} ")
    assert f"onggi {command}: error: " in said
    assert says in said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("--memory 1GiB", "--memory belongs to a command: onggi agent --memory ..."),
        ("--disk=1GiB agent", "--disk belongs to a command: onggi agent --disk ..."),
        ("--verison", "there is no --verison; did you mean --version?"),
        ("--qwertz", "there is no --qwertz; begin with a command: agent, install-client, doctor"),
    ],
)
def test_an_option_in_the_place_of_a_command_is_told_where_it_belongs(
    arguments: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments.split()) == cli.EXIT_CONFIG
    assert capsys.readouterr().err.startswith(f"onggi: {says}")


def test_no_command_at_all_is_answered_with_what_there_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main([]) == cli.EXIT_CONFIG
    said = capsys.readouterr().err
    assert "Keeps the KV cache" in said
    assert all(f"\n    {command} " in said for command in ("agent", "doctor", "replay"))


def test_a_misspelt_variable_is_told_beside_the_setting_that_is_missing_for_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onggi_sidecar.cli.os.environ", {"ONGGI_AGENT_DISKPATH": "/var/tmp"})
    assert cli.main(["agent", "--disk", "1GiB"]) == cli.EXIT_CONFIG
    assert capsys.readouterr().err.splitlines() == [
        "onggi agent: disk_path: missing or at its default; name a folder, since disk is set: "
        "--disk-path FOLDER",
        "onggi agent: ONGGI_AGENT_DISKPATH is no variable of the agent's and was not read; did you"
        " mean ONGGI_AGENT_DISK_PATH?",
    ]


@pytest.mark.parametrize(
    ("flag", "value", "right"),
    [
        ("--sizes", "", "should be tokens such as 4.7M"),
        ("--sizes", "4.7MB", "tokens such as 4.7M: a number, and K, M or G for powers of 1000"),
        ("--sizes", "1Ki", "tokens such as 4.7M: a number, and K, M or G for powers of 1000"),
        ("--sizes", "1K,,2K", "should be tokens such as 4.7M"),
        ("--sizes", "-1K", "should be tokens such as 4.7M"),
        ("--sizes", "9" * 400, "should be tokens such as 4.7M"),
        ("--sizes", "9999G", "should be at least a block's 512 tokens and at most 1000000000000"),
        ("--sizes", "100", "should be at least a block's 512 tokens"),
        ("--policies", "", "should be of belady, adaptive, lru"),
        ("--policies", "LRU", "should be of belady, adaptive, lru"),
        ("--block-tokens", "0", "should be a whole number from 1 to 1000000000000"),
        ("--block-tokens", "many", "should be a whole number from 1"),
        ("--block-tokens", "1.5", "should be a whole number from 1"),
        ("--jobs", "-1", "should be a whole number from 1 to 1024"),
        ("--jobs", "9" * 5000, "should be a whole number from 1 to 1024"),
        ("--out", "/nowhere/at/all.svg", "should be in a folder that exists"),
        ("--out", "/proc/self", "a folder; should be a file, such as /proc/self/rates.svg"),
    ],
)
def test_a_wrong_option_of_a_replay_is_told_before_any_work(
    flag: str, value: str, right: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["replay", "/nowhere.jsonl", f"{flag}={value}"]) == cli.EXIT_CONFIG
    said = capsys.readouterr().err
    assert said.startswith(f"onggi replay: {flag} ")
    assert right in said


@pytest.mark.parametrize("given", ["a file", "below a file"])
def test_a_folder_for_the_client_that_is_none_is_named(given: str, tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("")
    folder = place if given == "a file" else place / "client"
    with pytest.raises(SystemExit) as ended:
        cli.main(["install-client", str(folder)])
    assert str(ended.value.code).startswith(f"install-client: {place} is not a folder; name one")


def test_a_number_where_a_file_should_have_text_is_told_to_be_put_in_quotes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text("pool: 7\nmemroy: 1GiB\n")
    assert cli.main(["agent", "--config", str(file)]) == cli.EXIT_CONFIG
    said = capsys.readouterr().err
    assert "pool: 7 (in " in said
    assert "it is no text; put it in quotes; write the pool's name" in said
    assert "no such field; did you mean memory? there are memory, memory_max" in said
