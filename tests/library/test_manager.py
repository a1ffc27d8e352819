"""KVCacheManager as a caller sees it: what was put comes back bit for bit, or an exception does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed here")

from onggi import KVCacheManager  # noqa: E402
from onggi_core.quantity import format_size  # noqa: E402
from onggi_library.manager.errors import DoesNotFit  # noqa: E402

MIB = 1 << 20
SMALL: dict[str, Any] = {"gpu_memory": "4MiB", "cpu_memory": "32MiB"}


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[KVCacheManager]:
    with KVCacheManager(**SMALL, nvm_path=tmp_path, nvm_memory="192MiB") as made:
        yield made


@pytest.fixture
def tight(tmp_path: Path) -> Iterator[KVCacheManager]:
    with KVCacheManager(
        gpu_memory="4MiB", cpu_memory="16MiB", nvm_path=tmp_path, nvm_memory="64MiB"
    ) as made:
        yield made


def value(step: int, nbytes: int = 256 * 1024) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of a step, different in every byte from those of others."""
    made = torch.Generator().manual_seed(step)
    row = torch.randint(0, 256, (nbytes,), dtype=torch.uint8, generator=made)
    return row[: nbytes // 2].view(torch.bfloat16), row[nbytes // 2 :].view(torch.bfloat16)


def same(found: Any, wanted: Any) -> bool:
    pairs = zip(found, wanted, strict=True)
    return all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in pairs)


def put_all(manager: KVCacheManager, steps: int, nbytes: int) -> None:
    for step in range(steps):
        manager.put(step, value(step, nbytes))


def test_the_structure_comes_back_with_its_dtypes_and_shapes(manager: KVCacheManager) -> None:
    kv = {
        "layers": [(torch.randn(2, 3, 5), torch.randn(2, 3, 5, dtype=torch.float16))],
        7: torch.tensor(True),
        "none": None,
        "empty": torch.empty(0, 4),
    }
    manager.put("prompt", kv)
    found = manager.get("prompt")
    assert list(found) == ["layers", 7, "none", "empty"]
    assert type(found["layers"]) is list
    assert type(found["layers"][0]) is tuple
    for mine, yours in zip(found["layers"][0], kv["layers"][0], strict=True):
        assert mine.dtype is yours.dtype
        assert torch.equal(mine, yours)
    assert found[7].shape == ()
    assert found[7].item() is True
    assert found["none"] is None
    assert found["empty"].shape == (0, 4)


def test_a_value_is_the_managers_own_from_put_on_and_the_callers_from_get_on(
    manager: KVCacheManager,
) -> None:
    kv = torch.ones(1000)
    manager.put(1, kv)
    kv.zero_()
    first = manager.get(1)
    assert first.sum() == 1000
    first.zero_()
    assert manager.get(1).sum() == 1000


def test_many_times_more_than_the_device_and_host_hold_comes_back(manager: KVCacheManager) -> None:
    """128 MiB through 4 MiB of device and 32 MiB of host memory, read in an order of its own."""
    steps = 512
    for step in range(steps):
        manager.put(step, value(step))
    order = [*range(steps)]
    Random(1).shuffle(order)
    for step in order:
        assert same(manager.get(step), value(step)), step
    stats = manager.stats()
    device, host, disk = stats.tiers
    assert device.used_bytes <= device.capacity_bytes == 4 * MIB
    assert host.used_bytes <= host.capacity_bytes == 32 * MIB
    assert device.hits + host.hits + disk.hits == stats.gets == steps
    assert disk.hits > steps // 2
    assert device.hits


def test_first_and_last_steps_stay_on_the_device(tmp_path: Path) -> None:
    with KVCacheManager(
        **SMALL, nvm_path=tmp_path, nvm_memory="64MiB", first_steps=2, last_steps=4
    ) as manager:
        for step in range(100):
            manager.put(step, value(step))
        for step in (50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63):
            manager.get(step)
        before = manager.stats().tiers[0].hits
        for step in (0, 1, 96, 97, 98, 99):
            assert same(manager.get(step), value(step))
        assert manager.stats().tiers[0].hits == before + 6


def test_what_was_fetched_ahead_is_on_the_device(manager: KVCacheManager) -> None:
    for step in range(200):
        manager.put(step, value(step))
    wanted = [*range(100, 108)]
    assert manager.prefetch([*wanted, "nobody"]) == len(wanted)
    manager._ahead.wait_until_idle()
    before = manager.stats()
    for step in wanted:
        assert same(manager.get(step), value(step))
    after = manager.stats()
    assert after.tiers[0].hits == before.tiers[0].hits + len(wanted)
    assert after.ahead_bytes == len(wanted) * 256 * 1024
    assert after.awaited_bytes == before.awaited_bytes
    assert after.hidden_share == 1.0


def test_a_sweep_is_learned_and_what_comes_next_is_brought_up_unasked(
    manager: KVCacheManager,
) -> None:
    """16 MiB through 4 MiB of device."""
    put_all(manager, 64, 256 * 1024)
    assert manager.stats().learned.next_right == 0.0
    for _ in range(3):
        before = manager.stats()
        for step in range(64):
            assert same(manager.get(step), value(step))
            manager._ahead.wait_until_idle()
    after = manager.stats()
    assert after.tiers[0].hits - before.tiers[0].hits == 64, "the last sweep waited for nothing"
    assert after.awaited_bytes == before.awaited_bytes
    assert after.learned.next_right > 0.9
    assert after.learned.after_right > 0.9
    assert after.learned.hot is None, "not a window of gets yet"
    assert "guessed right: 100% of the next steps" in str(after)


def test_a_step_put_again_has_the_new_value_and_the_old_ones_room_is_free(
    tight: KVCacheManager,
) -> None:
    """64 MiB of disk hold 6 times 32 MiB, if the old ones go."""
    for turn in range(6):
        for part in range(8):
            tight.put(part, value(100 * turn + part, 4 * MIB))
    assert len(tight) == 8
    for part in range(8):
        assert same(tight.get(part), value(500 + part, 4 * MIB))


def test_a_discarded_step_is_gone_and_its_room_is_there(tight: KVCacheManager) -> None:
    for turn in range(4):
        for step in range(12):
            tight.put(step, value(1000 * turn + step, 4 * MIB))
        for step in range(12):
            tight.discard(step)
            assert step not in tight
        with pytest.raises(KeyError):
            tight.get(0)
    assert len(tight) == 0
    assert tight.stats().kept_bytes == 0


def test_what_does_not_fit_is_refused_before_anything_is_dropped(tight: KVCacheManager) -> None:
    with pytest.raises(DoesNotFit, match=r"a value of 4194304 bytes .* discard steps, or") as no:
        put_all(tight, 100, 4 * MIB)
    kept = len(tight)
    assert kept >= 12  # of the 16 that 64 MiB would hold
    assert no.value.value_bytes == 4 * MIB
    assert no.value.room_bytes < 4 * MIB
    for step in range(kept):
        assert same(tight.get(step), value(step, 4 * MIB))
    tight.discard(0)
    tight.put("again", value(7, 4 * MIB))
    assert same(tight.get("again"), value(7, 4 * MIB))


def test_values_of_many_sizes_live_beside_each_other(manager: KVCacheManager) -> None:
    sizes = [2, 4096, 5000, 70_002, 300_000, MIB, 3 * MIB + 2, 9 * MIB]
    for step, nbytes in enumerate(sizes * 4):
        manager.put(step, value(step, nbytes - nbytes % 4 + 4))
    for step, nbytes in enumerate(sizes * 4):
        assert same(manager.get(step), value(step, nbytes - nbytes % 4 + 4)), nbytes


def test_threads_put_get_and_discard_at_once(manager: KVCacheManager) -> None:
    wrong: list[BaseException] = []

    def work(number: int) -> None:
        rng = Random(number)
        try:
            for turn in range(60):
                step = f"{number}/{rng.randrange(12)}"
                match rng.randrange(4):
                    case 0 | 1:
                        manager.put(step, value(number * 1000 + turn))
                        assert same(manager.get(step), value(number * 1000 + turn))
                    case 2:
                        manager.prefetch([f"{number}/{n}" for n in range(12)])
                    case _ if step in manager:
                        manager.discard(step)
        except BaseException as fault:  # noqa: BLE001  whatever it is, it is shown
            wrong.append(fault)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_without_a_disk_the_host_tier_is_all_there_is() -> None:
    with KVCacheManager(**SMALL) as manager:
        with pytest.raises(DoesNotFit):
            put_all(manager, 200, 256 * 1024)
        kept = len(manager)
        assert kept > 100
        for step in range(kept):
            assert same(manager.get(step), value(step))


@pytest.mark.parametrize("lower", ["exact", "int8"])
def test_a_callers_inference_mode_is_over_when_its_with_is(lower: str) -> None:
    """What was made there is written to afterwards, by the caller and by a thread."""
    with KVCacheManager(**SMALL | {"gpu_memory": "1MiB"}, lower=lower) as manager:
        with torch.inference_mode():
            for step in range(6):
                manager.put(step, torch.full((65_536,), float(step)))
            first = manager.get(0)
        for step in range(6, 12):
            manager.put(step, torch.full((65_536,), float(step)))
        manager.prefetch(range(6))
        first.add_(1)
        assert [float(manager.get(step)[-1]) for step in range(12)] == [*map(float, range(12))]


def test_the_picture_shows_each_tier(manager: KVCacheManager) -> None:
    for step in range(8):
        manager.put(step, value(step))
    manager.get(1)
    shown = str(manager.stats())
    assert "8 steps, 2MiB" in shown
    assert "device [###" in shown
    assert "1 hit\n" in shown
    assert "0 hits\n" in shown
    assert shown.count("[") == 3
    stats = manager.stats()
    assert 0 < stats.books_bytes < MIB
    assert 0 < stats.index_bytes < 50 * MIB
    assert f"index: {format_size(stats.books_bytes)}B here, " in shown
    assert "index: " in stats.svg()
    assert manager.stats().svg().count("<rect") == 6
    assert stats._repr_svg_() == stats.svg()
