"""What is asked for in vain is refused by the caller's own names, before anything is made."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed here")

from onggi import KVCacheManager  # noqa: E402
from onggi_library import in_process, own_tiers  # noqa: E402
from onggi_library.in_process import PREFIX, InProcessAgent  # noqa: E402
from onggi_library.manager.sizes import asked  # noqa: E402
from onggi_sidecar.errors import StartRefused  # noqa: E402

GIB = 1 << 30
MIB = 1 << 20
SMALL: dict[str, Any] = {"gpu_memory": "1MiB", "cpu_memory": "16MiB"}


@pytest.fixture(autouse=True)
def nothing_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In a part of shared memory where no other test begins and ends agents meanwhile."""
    with tempfile.TemporaryDirectory(prefix="onggi-test-", dir="/dev/shm") as folder:
        monkeypatch.setattr(in_process, "SHARED_MEMORY", Path(folder))
        yield
        assert list(Path(folder).glob(f"{PREFIX}*")) == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            {"cpu_memory": "999999"},
            r"^cpu_memory is '999999', 999999 bytes \(976KiB\), since text without a unit is "
            r"bytes; use at least 16777216 bytes \(16MiB\)$",
        ),
        ({"cpu_memory": 0}, r"^cpu_memory is 0, 0 bytes; use at least 16777216 bytes"),
        ({"cpu_memory": -2}, r"^cpu_memory is -2; use a number of GiB, such as 0\.5, or"),
        ({"cpu_memory": "-2GiB"}, r"^cpu_memory is '-2GiB', which is negative"),
        ({"cpu_memory": "abc"}, r"^cpu_memory is 'abc', which is not a size; write a number and"),
        ({"cpu_memory": ""}, r"^cpu_memory is '', which is empty; write a size"),
        ({"cpu_memory": "64MB"}, r"^cpu_memory is '64MB', which has the unit 'MB', which is 2"),
        ({"cpu_memory": 64 << 20}, r"^cpu_memory is 67108864, .* use up to .*; numbers are GiB$"),
        ({"cpu_memory": "999999GiB"}, r"^cpu_memory is '999999GiB', .*this machine, or this cont"),
        ({"cpu_memory": "1EiB"}, r"^cpu_memory is '1EiB', .* use up to \d+ bytes"),
        (
            {"gpu_memory": "1EiB"},
            r"^gpu_memory is '1EiB', .*; .*memory there is less: use up to \d+ bytes",
        ),
        ({"gpu_memory": "64MB"}, r"^gpu_memory is '64MB', .*; write 64MiB or 64M; use a number"),
        ({"gpu_memory": -1}, r"^gpu_memory is -1; use a number of GiB"),
        ({"nvm_memory": "100TiB"}, r"^nvm_memory is '100TiB', .* more than a disk tier can be: "),
        (
            {"nvm_memory": "63TiB"},
            r"^nvm_memory is '63TiB', .*the file system of nvm_path '.*' has",
        ),
        ({"nvm_memory": "1MiB"}, r"^nvm_memory is '1MiB', .*; use at least 67108864 bytes"),
        ({"nvm_memory": 0}, r"^nvm_memory is 0, 0 bytes; use at least 67108864 bytes"),
        (
            {"nvm_memory": "1GB"},
            r"^nvm_memory is '1GB', .* 10\*\*9 to others; write 1GiB or 1G",
        ),
        ({"nvm_path": ""}, r"^nvm_path is ''; name a folder"),
        ({"nvm_path": "a\0b"}, r"^nvm_path is 'a\\x00b'; name a folder"),
        (
            {"nvm_path": "/proc/onggi"},
            r"^nvm_path is '/proc/onggi', whose file system has 0 bytes free, ",
        ),
        ({"first_steps": 1.5}, r"^first_steps is 1\.5; use a whole number from 0 on"),
        ({"policy": None}, r"^policy is None; use one of"),
        ({"lower": 8}, r"^lower is 8; use one of exact, int8"),
    ],
    ids=str,
)
def test_what_a_manager_cannot_have_is_named_as_it_was_written(
    tmp_path: Path, wrong: dict[str, Any], said: str
) -> None:
    given = SMALL | {"nvm_path": tmp_path / "nvm"} | wrong
    with pytest.raises(ValueError, match=said):
        KVCacheManager(**given)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"cpu_memory": []}, r"^cpu_memory is \[\], a list; use a number of GiB, such as"),
        ({"nvm_memory": [1], "nvm_path": "n"}, r"^nvm_memory is \[1\], a list; use a number of"),
        ({"nvm_path": 7}, "^nvm_path is 7, a int; use text or a path"),
        ({"nvm_path": "n", "name": 7}, "^name is 7, a int; use text"),
        ({"agent": 7}, "^agent is 7; use text or a path"),
    ],
    ids=str,
)
def test_so_is_what_is_of_the_wrong_type(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        KVCacheManager(**SMALL | wrong)
    assert not Path("n").exists()


def test_a_path_mistyped_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=rf"^nvm_path is '{tmp_path}/no/nvm': there is no folder {tmp_path}/no to"
    ):
        KVCacheManager(**SMALL, nvm_path=tmp_path / "no" / "nvm", nvm_memory="64MiB")
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize(
    ("below", "said"),
    [
        ("", "', where a file is in the way; name a"),
        ("deeper", "': .*/file is not a folder; name "),
    ],
)
def test_a_file_where_the_folder_should_be(tmp_path: Path, below: str, said: str) -> None:
    file = tmp_path / "file"
    file.write_text("somebody's")
    with pytest.raises(ValueError, match=rf"^nvm_path is '{tmp_path}/file.*{said}"):
        KVCacheManager(**SMALL, nvm_path=file / below, nvm_memory="64MiB")
    assert file.read_text() == "somebody's"


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "No space left on device; make room there, or use a folder on another disk"),
        (errno.EROFS, "Read-only file system; use a folder that uid"),
        (errno.EACCES, "Permission denied; use a folder that uid"),
    ],
)
def test_a_folder_that_nothing_can_be_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, said: str
) -> None:
    def refuse(**_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(own_tiers.tempfile, "TemporaryFile", refuse)
    with pytest.raises(
        ValueError, match=rf"^nvm_path is '{tmp_path}', which cannot be used: {said}"
    ):
        KVCacheManager(**SMALL, nvm_path=tmp_path, nvm_memory="64MiB")


def with_free(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr(own_tiers, "volume_room_bytes", lambda _: free)


def test_shared_memory_that_is_small_is_told_with_what_would_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As containers have it: 64 MiB unless they ask for more."""
    monkeypatch.setattr(in_process, "SHARED_MEMORY", Path("/dev/shm"))
    with_free(monkeypatch, 64 * MIB)
    with pytest.raises(
        ValueError, match=r"^cpu_memory is 4, .* \(4GiB\); it is taken in /dev/shm, "
    ):
        own_tiers.host_memory(asked("cpu_memory", 4))
    with pytest.raises(ValueError, match=r"--shm-size\)$") as refused:
        own_tiers.host_memory(asked("cpu_memory", "64MiB"))
    fits = int(str(refused.value).split("use up to ")[1].split()[0])
    assert 32 * MIB < fits < 64 * MIB
    settings = own_tiers.host_memory(asked("cpu_memory", str(fits)))
    assert settings == {"memory": fits, "extent": MIB}


def test_a_container_that_is_small_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_tiers, "memory_limit_bytes", lambda: 512 * MIB)
    with pytest.raises(ValueError, match=r"this container, has 536870912 bytes .* use up to"):
        own_tiers.host_memory(asked("memory", "512MiB", 1))
    with pytest.raises(
        ValueError, match=r"^gpu_memory is 1, .*.*memory there is less: use up to 536870912"
    ):
        KVCacheManager(gpu_memory=1, cpu_memory="16MiB", device="cpu")


def test_a_disk_that_is_nearly_full_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_free(monkeypatch, 900 * MIB)
    folder = tmp_path / "there"

    def taken(wanted: Any) -> int:
        return own_tiers.disk_bytes(wanted, "nvm_path", str(tmp_path), folder)

    with pytest.raises(ValueError, match=rf"^nvm_path is '{tmp_path}', whose file system has .*"):
        taken(None)
    assert taken(asked("nvm_memory", "900MiB")) == 900 * MIB
    with pytest.raises(ValueError, match=r"^nvm_memory is '901MiB', .* use up to 943718400 bytes"):
        taken(asked("nvm_memory", "901MiB"))
    with_free(monkeypatch, 100 * GIB)
    assert taken(None) == 90 * GIB
    with_free(monkeypatch, 2000 * GIB)
    assert taken(None) == 1024 * GIB


def test_what_a_name_has_taken_of_the_disk_counts_as_free_to_it(tmp_path: Path) -> None:
    (tmp_path / "kept").write_bytes(bytes(8 * MIB))
    empty = tmp_path / "empty"
    there = own_tiers.disk_bytes(None, "nvm_path", ".", tmp_path)
    other = own_tiers.disk_bytes(None, "nvm_path", ".", empty)
    assert there > other or there == own_tiers.DISK_DEFAULT_MAX


def test_a_disk_that_the_agent_cannot_use_is_not_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onggi_sidecar.agent.open_disk_in_time", nobody)
    with pytest.raises(StartRefused, match="cannot be used, as the log says; what is there stays"):
        InProcessAgent(memory=16 * MIB, extent=MIB, disk=64 * MIB, disk_path=tmp_path)


async def nobody(_: Any) -> None:
    return None


def test_what_is_prefetched_is_named_by_steps() -> None:
    with KVCacheManager(**SMALL) as manager:
        manager.put(1, torch.ones(4))
        assert manager.prefetch(iter([1, "nobody's"])) == 1
        assert manager.prefetch([2, "1"]) == 0
        for wrong, said in (
            (None, "^steps is None, a NoneType; use a list of steps"),
            (1.5, r"^steps is 1\.5, a float; use a list of steps$"),
            (1, r"^steps is 1, a int; use a list of steps, such as \[1\]$"),
            ("1", r"^steps is '1', a str; use a list of steps, such as \['1'\]$"),
            (b"\1", r"^steps is b'\\x01', a bytes; use a list of steps$"),
            ([1, None], r"^steps\[1\] is None, a NoneType; use an int or a str"),
        ):
            with pytest.raises(TypeError, match=said):
                manager.prefetch(wrong)  # type: ignore[arg-type]


class TestCache:
    """The same, by the names of an OnggiCache."""

    @pytest.fixture
    def make(self) -> Callable[..., Any]:
        transformers = pytest.importorskip("transformers", reason="transformers is not installed")
        from onggi_library.transformers import OnggiCache

        config = transformers.LlamaConfig(
            vocab_size=8, hidden_size=8, num_hidden_layers=1, num_attention_heads=1
        )
        return lambda **given: OnggiCache(config, **{"device_bytes": MIB, "model": "m"} | given)

    @pytest.mark.parametrize(
        ("wrong", "said"),
        [
            ({"memory": "64MB"}, r"^memory is '64MB', which has the unit 'MB', .*; write 64MiB"),
            ({"memory": -1}, r"^memory is -1; use a whole number of bytes, or \"512MiB\""),
            ({"memory": 64}, r"^memory is 64, 64 bytes; use at least 16777216 bytes"),
            ({"memory": "0"}, r"^memory is '0'; give the bytes"),
            ({"memory": "1EiB"}, r"^memory is '1EiB', .*use up to"),
            (
                {"memory": 16 * MIB, "disk": 64 * MIB},
                "^disk is .*; name a folder for it: disk_path",
            ),
            ({"memory": 16 * MIB, "disk_path": "d"}, "^disk is 0, 0 bytes; use at least"),
            ({"socket": "/s", "memory": 16 * MIB}, "^memory is 16777216; the agent at socket has"),
            ({"socket": "/s", "disk": "1GiB"}, "^disk is '1GiB'; the agent at socket has its own"),
            ({"socket": "/s", "disk_path": ""}, "^disk_path is ''; the agent at socket has its"),
            ({"socket": ""}, "^socket is ''; use a path"),
            ({"memory": 16 * MIB, "device_bytes": 0}, "^device_bytes is 0"),
            ({"memory": 16 * MIB, "device_bytes": "1GB"}, "^device_bytes is '1GB', which has"),
            ({"memory": 16 * MIB, "epsilon": float("nan")}, "^epsilon is nan"),
            ({"memory": 16 * MIB, "sinks": -1}, "^sinks is -1; use a whole number, 0 or more"),
        ],
        ids=str,
    )
    def test_a_wrong_value_is_named(self, make: Any, wrong: dict[str, Any], said: str) -> None:
        with pytest.raises(ValueError, match=said):
            make(**wrong)

    @pytest.mark.parametrize(
        ("wrong", "said"),
        [
            ({"memory": 0.5}, r"^memory is 0\.5, a float; use a whole number of bytes, or"),
            ({"memory": 16 * MIB, "disk_path": 7, "disk": 64 * MIB}, "^disk_path is 7, a int"),
            ({"memory": 16 * MIB, "device_bytes": None}, "^device_bytes is None, a NoneType"),
            ({"memory": 16 * MIB, "recent": "1"}, "^recent is '1'; use a whole number"),
            ({"memory": 16 * MIB, "label": 7}, "^label is 7; use a str"),
            ({"memory": 16 * MIB, "learned": {}}, "^learned is a dict; use a AttentionMap"),
            ({"memory": 16 * MIB, "epsilon": "0"}, "^epsilon is '0'; use a number"),
            (
                {"memory": 16 * MIB, "device_byte": 1},
                r"^OnggiCache has no argument 'device_byte'; did you mean device_bytes\? It takes",
            ),
        ],
        ids=str,
    )
    def test_a_wrong_type_is_named(self, make: Any, wrong: dict[str, Any], said: str) -> None:
        with pytest.raises(TypeError, match=said):
            make(**wrong)
