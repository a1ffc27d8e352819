"""What a manager with a name, and its values, make of a world that does not help: a disk that is
full for a moment, children that were forked, keys that are equal and not the same."""

from __future__ import annotations

import errno
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed here")

from onggi import KVCacheManager  # noqa: E402
from onggi_library.context.context import TieredContext  # noqa: E402
from onggi_library.in_process import InProcessAgent  # noqa: E402
from onggi_library.manager import journal  # noqa: E402
from onggi_library.manager.forms import form_of, written  # noqa: E402
from onggi_library.manager.journal import Journal, Known  # noqa: E402
from onggi_library.manager.values import flatten  # noqa: E402

MIB = 1 << 20
SMALL: dict[str, Any] = {"gpu_memory": "1MiB", "cpu_memory": "16MiB", "nvm_memory": "96MiB"}
VALUE = torch.arange(65_536, dtype=torch.int32)


def named(path: Path, **settings: Any) -> KVCacheManager:
    return KVCacheManager(**SMALL | {"nvm_path": path, "name": "run-1"} | settings)


def full(_: int, __: bytes) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def takes_a_part(fd: int, packed: bytes, real: Callable[[int, bytes], int] = os.write) -> int:
    return real(fd, packed[:5])


@pytest.mark.parametrize("write", [full, takes_a_part])
def test_a_disk_that_is_full_for_a_moment_costs_that_call_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Any
) -> None:
    other = torch.ones(7)
    with named(tmp_path) as manager:
        manager.put("before", VALUE)
        kept = manager.stats().kept_bytes
        with monkeypatch.context() as now:
            now.setattr(journal.os, "write", write)
            with pytest.raises(OSError):
                manager.put("meanwhile", other)
            with pytest.raises(OSError):
                manager.put("meanwhile", VALUE + 1)
            with pytest.raises(OSError):
                manager.discard("before")
        assert list(manager) == ["before"]
        assert manager.stats().kept_bytes == kept
        manager.put("after", other)
        manager.put("later", VALUE + 2)
        assert torch.equal(manager.get("before"), VALUE)
    with named(tmp_path) as manager:
        assert sorted(map(str, manager)) == ["after", "before", "later"]
        assert torch.equal(manager.get("after"), other)
        assert torch.equal(manager.get("later"), VALUE + 2)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: "x" * journal.RECORD_BYTES_MAX, "take .* bytes; a manager with a name writes"),
        (lambda: 10**5000, "digits"),
    ],
)
def test_a_step_that_cannot_be_written_down_is_refused_and_hides_no_other(
    tmp_path: Path, make: Callable[[], Any], said: str
) -> None:
    with named(tmp_path) as manager:
        manager.put(1, VALUE)
        kept = manager.stats().kept_bytes
        with pytest.raises(ValueError, match=said):
            manager.put(make(), VALUE)
        assert manager.stats().kept_bytes == kept
        manager.put(2, VALUE + 2)
    with named(tmp_path) as manager:
        assert sorted(map(int, manager)) == [1, 2]
        assert torch.equal(manager.get(2), VALUE + 2)


def test_a_journal_that_was_closed_writes_into_nobody_elses_file(tmp_path: Path) -> None:
    form, _ = flatten(VALUE)
    known = Known(1, "exact", [(1, 2)])
    notes = Journal(tmp_path, known)
    notes.begin(1, form)
    notes.close()
    with (tmp_path / "others").open("wb") as others:  # gets the number that is free
        for late in (
            lambda: notes.put("step", 1),
            lambda: notes.begin(2, form),
            lambda: notes.discard("step"),
        ):
            with pytest.raises(RuntimeError, match="this KVCacheManager is closed"):
                late()
        assert os.fstat(others.fileno()).st_size == 0


def test_a_journal_that_speaks_of_what_it_never_said_is_refused_in_words(tmp_path: Path) -> None:
    head = ["v", journal.VERSION, 1, "exact"]
    for wrong in (["b", 1, 7], ["p", 1, "step"], ["?"]):
        packed = journal._packed(head) + journal._packed(["l", 1, 2]) + journal._packed(wrong)
        (tmp_path / journal.NAME).write_bytes(packed)
        with pytest.raises(ValueError, match=r"steps cannot be read; remove "):
            journal.read(tmp_path, "exact")


@pytest.fixture
def child() -> Iterator[Callable[[], None]]:
    """Forks one that lives until the test is over."""
    wait, end = os.pipe()
    made: list[int] = []

    def fork() -> None:
        pid = os.fork()
        if pid == 0:
            os.close(end)
            os.read(wait, 1)
            os._exit(0)
        made.append(pid)

    yield fork
    os.close(end)
    os.close(wait)
    for pid in made:
        os.waitpid(pid, 0)


@pytest.mark.parametrize("name", ["run-1", None])
def test_a_worker_that_was_forked_does_not_keep_its_parents_folder(
    tmp_path: Path, child: Callable[[], None], name: str | None
) -> None:
    for life in range(3):
        with named(tmp_path, name=name) as manager:
            manager.put("life", torch.tensor(life))
            child()
            assert int(manager.get("life")) == life
    with named(tmp_path, name=name) as manager:
        assert len(manager) == (name is not None)


PARENT = """
import os, sys, time, torch
from pathlib import Path
from tests.library.test_manager_attacked import VALUE, named
manager = named(Path(sys.argv[1]))
manager.put(1, VALUE)
manager._below.tiers.wait_until_written()
if os.fork() == 0:
    sys.stdin.read()
    os._exit(0)
print("there", flush=True)
time.sleep(600)
"""


def test_a_worker_that_outlives_a_killed_parent_does_not_keep_its_folder(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).resolve().parents[2],
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    with parent.stdin, parent.stdout:  # the worker ends with its input
        assert parent.stdout.readline() == "there\n"
        parent.kill()
        parent.wait()
        with named(tmp_path) as manager:
            assert torch.equal(manager.get(1), VALUE)


def test_keys_that_are_equal_and_not_the_same_come_back_as_they_were(tmp_path: Path) -> None:
    keys = [1, True, 1.0, 0, False, 0.0, -0.0, (1, 2), (True, 2.0)]
    with KVCacheManager(**SMALL, nvm_path=tmp_path) as manager:
        for step, key in enumerate(keys):
            manager.put(step, {key: VALUE})
        assert [repr(next(iter(manager.get(step)))) for step in range(len(keys))] == [
            repr(key) for key in keys
        ]
    for key in keys[:7]:
        form, _ = flatten({key: VALUE})
        assert form_of(written(form)) == form


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_the_largest_of_all_numbers_is_rounded_to_a_number(dtype: Any) -> None:
    most = min(torch.finfo(dtype).max, torch.finfo(torch.float32).max)
    value = torch.full((1, 64, 64), -most, dtype=dtype)
    value[0, 3, 5] = 1
    with KVCacheManager(gpu_memory=0, cpu_memory="16MiB", lower="int8") as manager:
        manager.put(1, value)
        found = manager.get(1)
    assert torch.isfinite(found).all()
    assert torch.allclose(found.double(), value.double(), rtol=1e-2, atol=most / 100)


def test_an_answer_that_does_not_come_is_not_taken_for_a_page_that_is_gone() -> None:
    """Another thread attaches, or the machine has no time: that says nothing of what is kept."""
    agent = InProcessAgent(memory=32 * MIB, extent=2 * MIB)
    try:
        with KVCacheManager(gpu_memory=0, agent=agent.socket) as manager:
            manager.put(1, VALUE)
            carrier = manager._below.tiers._carrier
            (client,) = manager._below.tiers._clients.values()
            (serial, form) = manager._steps.find(1)
            keys = manager._below.tiers._keys(serial, manager._below.cut(form))
            client._link._attaching.acquire()  # by another thread
            client._link._session.channel.close("lost")
            later = threading.Timer(0.3, client._link._attaching.release)
            later.start()
            assert not carrier.lost(client, keys)
            later.join()
            assert carrier.lost(client, [b"nobody's key 16b"])
    finally:
        agent.close()


def test_a_forked_child_is_told_that_a_context_is_its_parents() -> None:
    """It has no thread that brings pieces, and would wait for ever."""
    agent = InProcessAgent(memory=32 * MIB, extent=2 * MIB)
    try:
        with TieredContext(
            agent.socket, layers=1, device_bytes=100_000, sinks=32, recent=64, block_tokens=16
        ) as context:
            keys = torch.randn(1, 2, 800, 32)
            context.append(0, keys, keys)
            queries = torch.randn(1, 2, 1, 32)
            before = context.attend(0, queries)
            out, said = os.pipe()
            child = os.fork()
            if child == 0:
                try:
                    context.attend(0, queries)
                except RuntimeError as told:
                    os.write(said, str(told).encode())
                os._exit(0)
            os.waitpid(child, 0)
            told = os.read(out, 4096).decode()
            os.close(out)
            os.close(said)
            assert f"is process {os.getpid()}'s, and this is its child {child}; make one" in told
            assert torch.allclose(context.attend(0, queries), before, atol=1e-5)
    finally:
        agent.close()


def test_an_end_closes_every_file_so_that_the_disk_has_its_room_again(tmp_path: Path) -> None:
    """A file that was removed takes its room until nobody has it open."""
    for name in ("run-1", None):
        with named(tmp_path, name=name) as manager:
            manager.put(1, VALUE)
            manager._below.tiers.wait_until_written()
            assert open_below(tmp_path)
        assert open_below(tmp_path) == []


def test_a_program_that_makes_managers_again_and_again_runs_out_of_nothing() -> None:
    def one_life() -> int:
        with KVCacheManager(gpu_memory=0, cpu_memory="16MiB") as manager:
            manager.put(1, VALUE)
        del manager
        gc.collect()
        return len(open_files())

    one_life()  # what is made once a process
    assert one_life() >= one_life()


def open_below(path: Path) -> list[str]:
    there = [os.readlink(f"/proc/self/fd/{fd}") for fd in open_files()]
    return [one for one in there if one.startswith(str(path))]


def open_files() -> list[str]:
    """Without the one that was open for looking."""
    return [fd for fd in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{fd}")]
