"""Steps under a name: there for the next process, whole or gone, and one manager's at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed here")

from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from onggi import KVCacheManager  # noqa: E402
from onggi_library.manager import journal  # noqa: E402
from onggi_library.manager.errors import DoesNotFit  # noqa: E402
from onggi_library.manager.forms import form_of, written  # noqa: E402
from onggi_library.manager.journal import Journal, Known  # noqa: E402
from onggi_library.manager.values import flatten  # noqa: E402

SMALL: dict[str, Any] = {"gpu_memory": "1MiB", "cpu_memory": "16MiB", "nvm_memory": "96MiB"}
MIB = 1 << 20
ROOT = Path(__file__).resolve().parents[2]


def named(path: Path | str, **settings: Any) -> KVCacheManager:
    return KVCacheManager(**SMALL | {"nvm_path": path, "name": "run-1"} | settings)


def value(step: int, version: int = 0) -> Any:
    """256 KiB that no other step or version has."""
    return torch.full((65_536,), step * 1000 + version, dtype=torch.int32)


def test_what_was_put_is_there_for_the_next_manager_of_the_name(tmp_path: Path) -> None:
    with named(tmp_path) as first:
        for step in range(60):
            first.put(step, value(step))
        first.put("prompt", {"k": [value(7)], 3: None, "v": (torch.zeros(0, 4),)})
        first.put(5, value(5, 1))
        first.discard(6)
    for _ in range(2):
        with named(tmp_path) as later:
            assert len(later) == 60
            assert later.stats().lost_steps == 0
            assert 6 not in later
            for step in (*range(5), *range(7, 60)):
                assert torch.equal(later.get(step), value(step))
            assert torch.equal(later.get(5), value(5, 1))
            found = later.get("prompt")
            assert list(found) == ["k", 3, "v"]
            assert torch.equal(found["k"][0], value(7))
            assert found["v"][0].shape == (0, 4)


def test_names_and_managers_without_one_live_beside_each_other(tmp_path: Path) -> None:
    with named(tmp_path) as one:
        one.put(1, value(1))
    with (
        named(tmp_path, name="run-2") as other,
        KVCacheManager(**SMALL, nvm_path=tmp_path) as nameless,
    ):
        assert len(other) == len(nameless) == 0
        other.put(1, value(2))
        nameless.put(1, value(3))
    with named(tmp_path) as one, named(tmp_path, name="run-2") as other:
        assert torch.equal(one.get(1), value(1))
        assert torch.equal(other.get(1), value(2))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "onggi-library-run-1",
        "onggi-library-run-2",
    ]


def test_the_second_at_once_is_told_who_the_first_is(tmp_path: Path) -> None:
    with named(tmp_path) as first:
        first.put(1, value(1))
        with pytest.raises(ValueError, match=rf"run-1', which process {os.getpid()} since .* uses"):
            named(tmp_path)
        assert torch.equal(first.get(1), value(1))


CHILD = """
import torch
from random import Random
from tests.library.test_manager_named import named, value
dice, version = Random({seed}), 0
manager = named({path!r})
while True:
    step, version = dice.randrange(40), version + 1
    if dice.random() < 0.2 and step in manager:
        print("begin", step, -1, flush=True)
        manager.discard(step)
        print("done", step, -1, flush=True)
    else:
        print("begin", step, version, flush=True)
        manager.put(step, value(step, version))
        print("done", step, version, flush=True)
"""


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_after_a_kill_each_step_has_what_it_was_last_given_or_is_gone(
    tmp_path: Path, seed: int
) -> None:
    script = CHILD.format(seed=seed, path=str(tmp_path))
    child = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert child.stdout is not None
    try:
        told = [child.stdout.readline() for _ in range(Random(seed).randrange(100, 300))]
    finally:
        child.send_signal(signal.SIGKILL)
    told += child.stdout.read().splitlines(keepends=True)
    child.wait()
    child.stdout.close()
    done, under_way = dict[int, int](), (0, 0)
    for line in told:
        if line.endswith("\n"):  # the last one may be cut short
            said, step, version = line.split()
            under_way = int(step), int(version)
            if said == "done":
                done[int(step)] = int(version)
    with named(tmp_path) as manager:
        lost = [step for step, version in done.items() if version > 0 and step not in manager]
        assert len(manager) + len(lost) > 10
        for step in map(int, manager):
            allowed = {done.get(step, -1), under_way[1] if under_way[0] == step else -1} - {-1}
            found = manager.get(step)
            assert any(torch.equal(found, value(step, version)) for version in allowed)
        assert len(lost) <= manager.stats().lost_steps + 1, "and the one that was under way"
        manager.put(1, value(1, 999))
        assert torch.equal(manager.get(1), value(1, 999))


def test_room_comes_back_from_life_to_life(tmp_path: Path) -> None:
    """96 MiB of disk, and 40 of them put in each of six lives."""
    for life in range(6):
        with named(tmp_path) as manager:
            for step in list(manager):
                assert torch.equal(manager.get(step), torch.full((MIB,), life - 1).int())
                manager.discard(step)
            for step in range(10):
                manager.put(step, torch.full((MIB,), life).int())
    with named(tmp_path) as manager:
        with pytest.raises(DoesNotFit):
            put_many(manager, 30)
        assert torch.equal(manager.get(3), torch.full((MIB,), 5).int())


def put_many(manager: KVCacheManager, count: int) -> None:
    for number in range(count):
        manager.put(f"more {number}", torch.zeros(MIB, dtype=torch.int32))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"name": "../etc"}, r"name is '../etc'; use up to 64 letters"),
        ({"name": ""}, r"name is ''; use up to 64"),
        ({"nvm_path": None, "nvm_memory": None}, "name is 'run-1' without nvm_path"),
        (
            {"nvm_path": None, "nvm_memory": None, "cpu_memory": None, "agent": "/a"},
            "name is 'run-1'; what is kept by name is in nvm_path, and not in a running agent",
        ),
    ],
)
def test_what_cannot_be_named_is_refused(tmp_path: Path, wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        named(tmp_path, **wrong)


def test_what_lies_there_otherwise_or_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with named(tmp_path) as manager, pytest.raises(ValueError, match=r"has the key \(1, 2\)"):
        manager.put(1, {(1, 2): value(1)})
    with pytest.raises(ValueError, match="with lower='exact'; this is version 1 with lower='int8'"):
        named(tmp_path, lower="int8")
    (tmp_path / "onggi-library-run-1" / journal.NAME).write_bytes(b"nothing that was ever written")
    with pytest.raises(ValueError, match="cannot be read; remove"):
        named(tmp_path)


def test_int8_has_its_own_names_too(tmp_path: Path) -> None:
    rows = torch.arange(64 * 512).reshape(64, 512) / 64
    with named(tmp_path, lower="int8") as manager:
        manager.put(1, rows)
    with named(tmp_path, lower="int8") as manager:
        assert float((manager.get(1) - rows).abs().max()) <= float(rows.max()) / 127


def test_forms_are_the_same_when_they_are_read_again() -> None:
    tree = {"k": [(torch.zeros(2, 3), None), torch.zeros(())], 7: {None: torch.ones(1).bool()}}
    form = flatten(tree)[0]
    assert form_of(written(form)) == form


steps = st.one_of(st.integers(0, 9), st.sampled_from(["a", "b"]))


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(calls=st.lists(st.tuples(st.sampled_from("pd"), steps), max_size=60), cut=st.floats(0, 1))
def test_a_journal_cut_anywhere_tells_what_was_so_at_some_moment(
    tmp_path: Path, calls: list[tuple[str, Any]], cut: float
) -> None:
    forms = [flatten(torch.zeros(n))[0] for n in (1, 2)]
    known = Known(5, "exact", [(1, 77)])
    written_down = Journal(tmp_path, known)
    moments: list[dict[Any, int]] = [{}]
    whole = (tmp_path / journal.NAME).stat().st_size
    for serial, (what, step) in enumerate(calls, 1):
        now = dict(moments[-1])
        if what == "p":
            written_down.begin(serial, forms[serial % 2])
            written_down.put(step, serial)
            now[step] = serial
        elif step in now:
            written_down.discard(step)
            del now[step]
        moments.append(now)
    written_down.close()
    path = tmp_path / journal.NAME
    size = path.stat().st_size
    os.truncate(path, whole + int((size - whole) * cut))
    found = journal.read(tmp_path, "exact")
    assert found is not None
    assert found.root == 5
    assert found.steps in moments
    assert all(serial in found.begun for serial in found.steps.values())
    assert cut < 1 or found.steps == moments[-1]


def test_a_journal_is_written_anew_before_it_grows_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "SLACK_RECORDS", 20)
    form = flatten(torch.zeros(1))[0]
    written_down = Journal(tmp_path, Known(5, "exact", [(1, 77)]))
    sizes = []
    for serial in range(1, 500):
        written_down.begin(serial, form)
        written_down.put(serial % 3, serial)
        sizes.append((tmp_path / journal.NAME).stat().st_size)
    written_down.close()
    assert max(sizes) < 3000
    found = journal.read(tmp_path, "exact")
    assert found is not None
    assert found.steps == {0: 498, 1: 499, 2: 497}
