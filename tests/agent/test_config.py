"""Configuration: who wins, and what each wrong field is told."""

import re
from pathlib import Path

import pytest

from onggi_core.heartbeat import Mode
from onggi_sidecar import others
from onggi_sidecar.agreement import RUNNING, idle_settings
from onggi_sidecar.config import AgentConfig, ConfigRefused, load_config
from onggi_sidecar.disk.folder import Claim

GIB = 1024**3


def lines(flags: dict[str, str], environment: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigRefused) as refused:
        load_config(flags, environment or {})
    return refused.value.lines


def test_the_defaults_are_those_of_the_documentation() -> None:
    config = load_config({}, {})
    assert (config.memory, config.disk, config.extent) == (GIB, 0, 64 * 1024**2)
    assert config.socket == Path("/run/onggi/agent.sock")
    assert (config.http_host, config.http_port) == ("127.0.0.1", 9464)
    assert (config.mode, config.disk_claim) == (Mode.ACTIVE, Claim.EXCLUSIVE)
    assert (config.shutdown_deadline_s, config.io_deadline_s) == (10.0, 2.0)


def test_flags_win_over_environment_over_file(tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text("memory: 1GiB\nextent: 1MiB\nmode: Observe\nio_deadline_s: 5\n")
    environment = {
        "ONGGI_CONFIG": str(file),
        "ONGGI_AGENT_MEMORY": "2Gi",
        "ONGGI_AGENT_EXTENT": "2Mi",
    }
    config = load_config({"memory": "3GiB"}, environment)
    assert config.memory == 3 * GIB
    assert config.extent == 2 * 1024**2
    assert config.mode is Mode.OBSERVE
    assert config.io_deadline_s == 5.0


def test_an_empty_variable_counts_as_not_set() -> None:
    assert load_config({}, {"ONGGI_AGENT_OPERATOR_URL": "", "ONGGI_AGENT_DISK": ""}).disk == 0


@pytest.mark.parametrize(
    ("field", "value", "right"),
    [
        ("memory", "1GB", "2**30 bytes to some and 10**9 to others; write 1GiB or 1G"),
        ("memory", "-1", "is negative; a size is zero or more"),
        ("memory", "1MiB", "write at least one extent, 67108864 bytes (64MiB)"),
        ("memory", "0%", "write a size such as 1GiB, or 1% to 99% of the container's memory limit"),
        ("memory", "100%", "or 1% to 99%"),
        ("memory_max", "512MiB", "write 0, or at least memory, 1073741824 bytes (1GiB)"),
        ("disk_max", "1GiB", "write 0, or disk, 0 bytes, up to 8 times that"),
        ("extent", "3MiB", "write a power of two of at least 1MiB"),
        ("extent", "4KiB", "write a power of two of at least 1MiB"),
        ("disk", "1MiB", "write 0 for none, or at least 16MiB"),
        ("disk_claim", "mine", "write exclusive or shared"),
        ("http_port", "70000", "write a port up to 65535, 0 for any free one"),
        ("mode", "actve", "write Active, Observe or Paused"),
        ("log_level", "loud", "write debug, info, warning or error"),
        ("io_deadline_s", "0", "write seconds, more than 0 and up to 600"),
        (
            "operator_url",
            "operator:443",
            "it is no address that begins with https://; write empty, or the operator's",
        ),
        ("socket", "/" + "x" * 120, "write the path of a file, at most 107 bytes long"),
    ],
)
def test_a_wrong_field_is_named_with_its_value_and_what_is_right(
    field: str, value: str, right: str
) -> None:
    line = lines({field: value})[0]
    assert line.startswith(f"{field}: {value!r} (in --{field.replace('_', '-')}) is wrong; ")
    assert right in line


def test_fields_that_do_not_go_together_are_all_told() -> None:
    wrong = {"memory": "1", "extent": "3", "disk": "5"}
    told = [line.partition(":")[0] for line in lines(wrong)]
    assert told == ["extent", "memory", "disk", "disk_path"]


def test_fields_that_are_wrong_by_themselves_hide_none_of_those_that_disagree(
    tmp_path: Path,
) -> None:
    """They were told first, and the others at the next start."""
    wrong = {"memory": "much", "memory_max": "512MiB", "extent": "3MiB", "disk": "5", "mode": "on"}
    told = [line.partition(":")[0] for line in lines(wrong, {"ONGGI_AGENT_MEMROY": "1"})]
    assert told == ["memory", "mode", "extent", "disk", "disk_path"]
    unread = lines({"config": str(tmp_path / "none.yaml"), "http_port": "http", "disk": "1GiB"})
    assert [line.partition(":")[0] for line in unread] == ["config", "http_port"]  # disk_path may
    # stand in the file


def test_a_disk_folder_is_made_in_one_that_is_there(tmp_path: Path) -> None:
    """A path mistyped was made, parents and all, and filled a disk that nobody meant."""
    disk = {"disk": "1GiB", "disk_path": str(tmp_path / "nvem" / "my tier")}
    (line,) = lines(disk)
    assert line == (
        f"disk_path: '{tmp_path}/nvem/my tier' (in --disk-path) is wrong; there is no folder "
        f"{tmp_path}/nvem to make it in; correct it, or make it: mkdir -p '{tmp_path}/nvem/my tier'"
    )
    assert load_config({**disk, "disk": "0"}, {}).disk == 0  # nothing is put there
    assert load_config(disk, {}, context=RUNNING).disk == GIB  # it runs, so it had its reason
    (tmp_path / "nvem").mkdir()
    assert load_config(disk, {}).disk_path == tmp_path / "nvem" / "my tier"
    assert lines({"disk": "1GiB", "disk_path": str(tmp_path / "file" / "x" / "y")})
    (tmp_path / "file").write_text("")
    (line,) = lines({"disk": "1GiB", "disk_path": str(tmp_path / "file" / "x")})
    assert "file is not a folder" in line


def test_a_size_is_told_once_what_to_write() -> None:
    (line,) = lines({"memory": "1GB"})
    assert line.count("write") == 1


def test_more_extents_than_the_arenas_header_has_room_for_are_refused() -> None:
    (line,) = lines({"memory": "1TiB", "extent": "1MiB"})
    assert "write a larger one, so that memory has at most 523264 of them" in line


@pytest.mark.parametrize(
    ("given", "limit", "memory", "said"),
    [
        ("60%", 4 * GIB, 2576980377, "memory is 60% of the container's memory limit of 4294967296"),
        (" 5 % ", 4 * GIB, 214748364, "memory is 5% of"),
        ("60%", None, GIB, "but there is none, so it is the default, 1073741824 bytes"),
        ("2GiB", 4 * GIB, 2 * GIB, ""),
    ],
)
def test_memory_may_be_a_share_of_the_containers_limit(
    given: str, limit: int | None, memory: int, said: str
) -> None:
    """Sized by the node inside a limited container: Comfy-Org/ComfyUI#14938."""
    config = load_config({"memory": given}, {}, lambda: limit)
    assert config.memory == memory
    assert said in config.memory_said


def test_a_share_of_no_limit_for_growing_alone_is_told_too() -> None:
    config = load_config({"memory_max": "50%"}, {}, lambda: None)
    assert config.arena_bytes_max == GIB
    assert config.memory_said == (
        "memory_max was asked for as 50% of the container's memory limit, but there is none, "
        "so it is as memory; write a size, such as 1GiB, to choose"
    )


def test_words_are_taken_in_any_case(tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text("hugepages: Off\ndisk_claim: Shared\n")  # which YAML reads as false
    config = load_config(
        {"config": str(file), "mode": "observe"},
        {"ONGGI_AGENT_LOG_LEVEL": "INFO", "ONGGI_AGENT_POLICY": "LRU"},
    )
    assert (config.mode, config.hugepages.value) == (Mode.OBSERVE, "Off")
    assert (config.log_level.value, config.policy.value) == ("info", "lru")
    assert config.disk_claim is Claim.SHARED


def test_what_an_agent_may_grow_to_is_at_least_what_it_begins_with() -> None:
    config = load_config({"memory": "1GiB", "disk": "1GiB", "disk_path": "/d"}, {})
    assert (config.arena_bytes_max, config.disk_bytes_max) == (GIB, GIB)
    grown = {"memory_max": "50%", "disk_max": "8GiB", "disk": "1GiB", "disk_path": "/d"}
    config = load_config(grown, {}, lambda: 8 * GIB)
    assert (config.arena_bytes_max, config.disk_bytes_max) == (4 * GIB, 8 * GIB)


def test_every_wrong_field_has_its_line() -> None:
    found = lines({"memory": "much", "mode": "on"}, {"ONGGI_AGENT_HTTP_PORT": "http"})
    assert [line.split(":")[0] for line in found] == ["memory", "http_port", "mode"]
    assert "(in ONGGI_AGENT_HTTP_PORT)" in found[1]


def test_a_disk_without_a_folder_is_refused() -> None:
    (line,) = lines({"disk": "1GiB"})
    assert line == (
        "disk_path: missing or at its default; name a folder, since disk is set: --disk-path FOLDER"
    )


@pytest.mark.parametrize(
    ("field", "value", "read"),
    [
        ("memory", "1", "without a unit it is 1 byte; write at least one extent"),
        ("memory", "4096", "without a unit it is 4096 bytes; write at least one extent"),
        ("disk", "64", "without a unit it is 64 bytes; write 0 for none, or at least 16MiB"),
        ("extent", " 4 ", "without a unit it is 4 bytes; write a power of two"),
        ("memory", "16777216", "is wrong; write at least one extent"),
        ("memory", "16MiB", "is wrong; write at least one extent"),
        ("disk_max", "0.5GiB", "is wrong; write 0, or disk"),
    ],
)
def test_a_size_without_a_unit_is_told_how_it_was_read(field: str, value: str, read: str) -> None:
    line = next(line for line in lines({field: value}) if line.startswith(field))
    assert read in line
    assert ("without a unit" in line) == ("without a unit" in read)


def test_a_sockets_folder_is_made_in_one_that_is_there(tmp_path: Path) -> None:
    socket = {"socket": str(tmp_path / "nodir" / "onggi" / "agent.sock")}
    (line,) = lines(socket)
    assert line == (
        f"socket: '{tmp_path}/nodir/onggi/agent.sock' (in --socket) is wrong; its folder is not "
        f"there; there is no folder {tmp_path}/nodir to make it in; correct it, or make it: mkdir "
        f"-p {tmp_path}/nodir/onggi"
    )
    assert load_config(socket, {}, context=RUNNING)  # it runs, so it had its reason
    (tmp_path / "nodir").mkdir()
    assert load_config(socket, {}).socket.parent == tmp_path / "nodir" / "onggi"
    assert load_config({"socket": "agent.sock"}, {}).socket == Path("agent.sock")


@pytest.mark.parametrize(
    ("given", "idle"),
    [
        ({"disk_path": "/d"}, "disk_path has no effect without disk: there is no disk tier; say"),
        ({"disk_path": "/d", "disk_claim": "shared"}, "disk_path and disk_claim have no effect"),
        ({"disk_retention_s": "60"}, "disk_retention_s has no effect without disk"),
        ({"disk_path": "/d", "disk": "0"}, ""),  # as pools without room for one are given
        ({"disk_path": "/d", "disk": "1GiB"}, ""),
        ({}, ""),
    ],
)
def test_settings_of_a_disk_that_is_not_asked_for_are_told(
    given: dict[str, str], idle: str
) -> None:
    told = idle_settings(load_config(given, {}))
    assert [sentence[: len(idle)] for sentence in told] == ([idle] if idle else [])


THEIRS = {
    "LMCache": "chunk_size: 256\nlocal_cpu: true\nmax_local_cpu_size: 20\nremote_url: null\n",
    "Mooncake": '{"metadata_server": "P2PHANDSHAKE", "protocol": "tcp", "device_name": ""}',
}


@pytest.mark.parametrize("name", THEIRS)
def test_a_file_of_another_cache_is_told_in_one_sentence(tmp_path: Path, name: str) -> None:
    file = tmp_path / "theirs.yaml"
    file.write_text(THEIRS[name])
    (line,) = lines({"config": str(file)})
    assert line.startswith(f"config: {file} looks like a configuration of {name} (")
    assert line.endswith("what takes the place of each setting stands in docs/migration.md")


def test_the_names_of_other_caches_are_those_of_the_page_about_them() -> None:
    page = (Path(__file__).parents[2] / "docs" / "migration.md").read_text()
    named = set(re.findall(r"`([a-z0-9_]+\*?)", page))
    for name in others.LMCACHE | others.MOONCAKE:
        family = {f"{name[:end]}*" for end in range(4, len(name))}
        assert name in named or family & named, name
    assert not (others.LMCACHE | others.MOONCAKE) & AgentConfig.model_fields.keys()


def test_names_that_are_none_are_told_with_one_list_of_those_that_are(tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text("memroy: 1GiB\nqwertz: 1\nchunk_size: 256\nextent: 4MiB\ndisk: 0\n")
    told = lines({"config": str(file)})
    assert [line.partition(":")[0] for line in told] == ["memroy", "qwertz", "chunk_size"]
    assert [", ".join(AgentConfig.model_fields) in line for line in told] == [True, False, False]


def test_an_operator_without_an_identity_is_refused() -> None:
    (line,) = lines({"operator_url": "https://o:8443"})
    assert line.startswith("pool, namespace, pod_name: ")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("memroy: 1GiB\n", "memroy: '1GiB' (in "),
        ("- a\n", "should hold fields"),
        ("a: [\n", "is not YAML"),
    ],
)
def test_a_wrong_file_is_told_by_name(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text(text)
    (line,) = lines({"config": str(file)})
    assert said in line


def test_a_missing_file_is_told_by_name(tmp_path: Path) -> None:
    (line,) = lines({"config": str(tmp_path / "none.yaml")})
    assert line.endswith("none.yaml: No such file or directory")


def test_each_field_has_words_for_what_is_right() -> None:
    assert all(field.description for field in AgentConfig.model_fields.values())
