"""How a manager begins and ends: closed, killed, forked, twice on one path, beside others."""

from __future__ import annotations

import gc
import inspect
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed here")

from onggi import BatchSizer, Client, KVCacheManager, SpaceSpec  # noqa: E402
from onggi_library import in_process  # noqa: E402
from onggi_library.context.context import TieredContext  # noqa: E402
from onggi_library.in_process import PREFIX, InProcessAgent  # noqa: E402
from onggi_library.manager.errors import Lost, Unreachable  # noqa: E402

MIB = 1 << 20
SMALL: dict[str, Any] = {"gpu_memory": "1MiB", "cpu_memory": "16MiB"}
PAGE = torch.arange(65_536, dtype=torch.int32)


@pytest.fixture(autouse=True)
def own_shared_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tests that run beside these have folders there, too."""
    with tempfile.TemporaryDirectory(prefix="onggi-test-", dir="/dev/shm") as folder:
        monkeypatch.setattr(in_process, "SHARED_MEMORY", Path(folder))
        yield


def folders() -> set[Path]:
    return set(in_process.SHARED_MEMORY.glob(f"{PREFIX}*"))


def test_close_leaves_nothing_in_memory_or_on_disk(tmp_path: Path) -> None:
    before = folders()
    (tmp_path / "other").write_text("somebody else's")
    manager = KVCacheManager(**SMALL, nvm_path=tmp_path, nvm_memory="64MiB")
    for step in range(40):
        manager.put(step, PAGE + step)
    manager.close()
    manager.close()
    assert folders() == before
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
    with pytest.raises(RuntimeError, match="this KVCacheManager is closed"):
        manager.get(1)


def test_who_waits_for_the_tiers_of_a_manager_that_was_closed_is_told_so() -> None:
    """A put or get in another thread that close() came in between of."""
    manager = KVCacheManager(**SMALL)
    manager.put(1, PAGE)
    manager._device.clear()
    manager._below.tiers.close()
    for call in (lambda: manager.put(2, PAGE), lambda: manager.get(1)):
        with pytest.raises(RuntimeError, match="this KVCacheManager is closed"):
            call()
    manager.close()


def test_a_second_manager_on_one_path_is_told_who_has_it(tmp_path: Path) -> None:
    with KVCacheManager(**SMALL, nvm_path=tmp_path, nvm_memory="64MiB") as first:
        first.put(1, PAGE)
        with pytest.raises(
            ValueError,
            match=rf"which process {os.getpid()} since .* uses; close the manager that this pro",
        ):
            KVCacheManager(**SMALL, nvm_path=tmp_path, nvm_memory="64MiB")
        assert torch.equal(first.get(1), PAGE)


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    before = folders()
    script = textwrap.dedent(
        f"""
        import time, torch
        from pathlib import Path
        from onggi import KVCacheManager
        from onggi_library import in_process
        in_process.SHARED_MEMORY = Path({str(in_process.SHARED_MEMORY)!r})
        manager = KVCacheManager(**{SMALL!r}, nvm_path={str(tmp_path)!r}, nvm_memory="64MiB")
        for step in range(100):
            manager.put(step, torch.full((65536,), step, dtype=torch.int32))
        print("there", flush=True)
        time.sleep(600)
        """
    )
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "there\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert len(folders() - before) == 1
    with KVCacheManager(**SMALL, nvm_path=tmp_path, nvm_memory="64MiB") as manager:
        assert len(folders() - before) == 1
        assert manager.stats().tiers[2].used_bytes == 0
        manager.put(1, PAGE)
        assert torch.equal(manager.get(1), PAGE)
    assert folders() == before


def test_what_nobody_closed_is_closed_at_the_end_of_the_interpreter(tmp_path: Path) -> None:
    """Two managers of an agent each, and a context and a manager of one that goes on."""
    agent = InProcessAgent(memory=32 * MIB, extent=2 * MIB)
    script = textwrap.dedent(
        f"""
        import torch
        from pathlib import Path
        from onggi import KVCacheManager
        from onggi_library import in_process
        from onggi_library.context.context import TieredContext
        in_process.SHARED_MEMORY = Path({str(in_process.SHARED_MEMORY)!r})
        own = {SMALL!r} | {{"nvm_path": {str(tmp_path)!r}, "nvm_memory": "64MiB"}}
        managers = [
            KVCacheManager(**own),
            KVCacheManager(**own, name="run-1"),
            KVCacheManager("1MiB", agent={str(agent.socket)!r}),
        ]
        for step in range(24):
            for manager in managers:
                manager.put(step, torch.full((65536,), step, dtype=torch.int32))
        managers[0].prefetch(range(8))
        context = TieredContext({str(agent.socket)!r}, layers=1, device_bytes="1MiB")
        context.append(0, torch.ones(1, 2, 4096, 64), torch.ones(1, 2, 4096, 64))
        print("there", flush=True)
        """
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, timeout=100
    )
    assert (done.returncode, done.stdout) == (0, "there\n"), done.stderr
    assert [line for line in done.stderr.splitlines() if not line.startswith("{")] == []
    assert folders() == {agent.socket.parent}
    client = Client(agent.socket, spaces=[SpaceSpec(b"f" * 16, 4096, 1)], deadline_s=5)
    assert client.attach(60)
    assert client.stats()["host_used_bytes"] == 0
    client.close()
    agent.close()
    assert [path.name for path in tmp_path.iterdir()] == ["onggi-library-run-1"]
    own: dict[str, Any] = SMALL | {"nvm_path": tmp_path, "nvm_memory": "64MiB"}
    with KVCacheManager(**own, name="run-1") as manager:
        assert manager.stats().lost_steps == 0
        assert [int(manager.get(step)[0]) for step in range(24)] == [*range(24)]


def forgotten(opened: list[KVCacheManager], path: Path) -> None:
    """Returns once nothing of them is left; the thread that brings up may have had the last one."""
    opened.clear()
    until_s = time.monotonic() + 60
    while [*folders(), *path.iterdir(), *bringing()] and time.monotonic() < until_s:
        time.sleep(0.01)
    gc.collect()  # their clients' sockets


def bringing() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "onggi-ahead"]


def test_one_that_nobody_has_any_more_ends_by_itself(tmp_path: Path) -> None:
    manager = KVCacheManager(**SMALL, nvm_path=tmp_path, nvm_memory="64MiB")
    for step in range(24):
        manager.put(step, PAGE + step)
    manager.prefetch(range(8))  # its thread lives on as long as the manager
    opened = [manager]
    del manager
    with warnings.catch_warnings(record=True, action="always") as told:
        forgotten(opened, tmp_path)
    assert "a KVCacheManager was not closed" in [str(one.message) for one in told]
    assert [*folders(), *tmp_path.iterdir()] == []


def test_an_argument_that_there_is_not_is_told_with_the_one_that_was_meant() -> None:
    for wrong, said in (
        (
            "gpu_mem",
            "has no argument 'gpu_mem'; did you mean gpu_memory? It takes gpu_memory, cpu_",
        ),
        ("nvme_path", "did you mean nvm_path? It takes"),
        ("quantize", "has no argument 'quantize'; it takes gpu_memory, cpu_memory, nvm_path, nvm_"),
    ):
        with pytest.raises(TypeError, match=re.escape(said)):
            KVCacheManager(**{wrong: 1})
    with pytest.raises(TypeError, match=r"^BatchSizer has no argument 'limit'; it takes target, m"):
        BatchSizer(1, limit=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^TieredContext has .*; did you mean device_bytes\?"):
        TieredContext("/s", layers=1, device_byte=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^Client has no argument 'space'; did you mean spaces\?"):
        Client("/s", space=[])  # type: ignore[call-arg]
    assert list(inspect.signature(BatchSizer).parameters) == ["target", "most"]


def test_a_forked_child_is_told_to_make_its_own() -> None:
    with KVCacheManager(**SMALL) as manager:
        manager.put(1, PAGE)
        out, said = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                manager.get(1)
            except RuntimeError as error:
                os.write(said, str(error).encode())
            manager.close()
            os._exit(0)
        os.waitpid(child, 0)
        told = os.read(out, 4096).decode()
        os.close(out)
        os.close(said)
        assert f"is process {os.getpid()}'s, and this is its child {child}; make one here" in told
        assert torch.equal(manager.get(1), PAGE)


def test_a_running_agent_serves_several_and_gets_its_room_back() -> None:
    agent = InProcessAgent(memory=32 * MIB, extent=2 * MIB)
    try:
        with (
            KVCacheManager(gpu_memory=0, agent=agent.socket) as one,
            KVCacheManager(gpu_memory=0, agent=agent.socket) as two,
        ):
            one.put(1, PAGE)
            two.put(1, PAGE + 1)
            assert torch.equal(one.get(1), PAGE)
            assert torch.equal(two.get(1), PAGE + 1)
            one.discard(1)
            assert torch.equal(two.get(1), PAGE + 1)
            assert two.stats().tiers[1].hits == 2
    finally:
        agent.close()


def test_a_value_that_a_shared_agent_gave_up_is_lost_and_said_to_be() -> None:
    agent = InProcessAgent(memory=8 * MIB, extent=MIB, policy="lru")
    try:
        with (
            KVCacheManager(gpu_memory=0, agent=agent.socket) as mine,
            KVCacheManager(gpu_memory=0, agent=agent.socket) as others,
        ):
            for step in ("a", "b", "c", "d", "e", "f", "g", "h"):  # 2 of 8 MiB
                mine.put(step, PAGE)
            for step in range(28):  # 7 MiB
                others.put(step, PAGE + step)
            with pytest.raises(Lost, match=r"step 'a' is lost: .* compute it again and put it"):
                mine.get("a")
            mine.put("a", PAGE + 7)
            assert torch.equal(mine.get("a"), PAGE + 7)
    finally:
        agent.close()


def test_where_no_agent_answers_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onggi_library.carrier.SILENT_S", 0.2)
    with pytest.raises(Unreachable, match="no agent answers at"):
        KVCacheManager(gpu_memory=0, agent=tmp_path / "agent.sock")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"cpu_memory": "1MiB"}, r"cpu_memory is '1MiB', .*; use at least 16777216 bytes"),
        ({"nvm_memory": 1}, r"nvm_memory is 1 without nvm_path; name a folder for what is"),
        ({"device": "meta"}, r"device is 'meta'; use cpu, cuda or cuda:N"),
        (
            {"gpu_memory": 1 << 20, "device": "cpu"},
            r"gpu_memory is 1048576, .*; .*memory there is less: use up to .*; numbers are GiB",
        ),
        ({"policy": "best"}, r"policy is 'best'; use one of worth, "),
        ({"first_steps": -1}, r"first_steps is -1; use a whole number from 0 on"),
        ({"agent": "/a"}, r"cpu_memory is '16MiB'; a running agent has memory of its own: leave"),
        (
            {"agent": "/a", "cpu_memory": None, "nvm_path": "/b"},
            r"nvm_path is '/b'; a running agent has a disk of its own: leave it out",
        ),
        ({"agent": "/a", "cpu_memory": None, "nvm_memory": 0}, r"nvm_memory is 0; a running"),
        ({"agent": "/a", "cpu_memory": None, "name": "n"}, r"name is 'n'; what is kept by name"),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_nothing(wrong: dict[str, Any], said: str) -> None:
    before = folders()
    with pytest.raises(ValueError, match=said):
        KVCacheManager(**SMALL | wrong)
    assert folders() == before


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_said() -> None:
    with pytest.raises(ValueError, match="device is 'cuda', and torch finds no GPU here; use cpu"):
        KVCacheManager(**SMALL | {"device": "cuda"})


def test_a_step_is_a_number_or_a_name() -> None:
    with (
        KVCacheManager(**SMALL) as manager,
        pytest.raises(TypeError, match=r"step is 1\.5, a float; use an int or a str"),
    ):
        manager.put(1.5, PAGE)  # type: ignore[arg-type]
