"""How a manager begins and ends: closed, killed, forked, twice on one path, beside others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed here")

from onggi import KVCacheManager  # noqa: E402
from onggi_library import in_process  # noqa: E402
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
        with pytest.raises(ValueError, match=rf"which process {os.getpid()} since .* uses; give"):
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
        ({"agent": "/a", "nvm_path": "/b"}, r"nvm_path is '/b'; a running agent has a disk"),
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
