"""KVCacheManager with int8 below the device: exact on it, close below, told by how much."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed here")

from tests.library.tiered_kit import noise  # noqa: E402

from onggi import KVCacheManager  # noqa: E402
from onggi_library.manager.below import Int8  # noqa: E402
from onggi_library.manager.values import flatten, pack, unpack  # noqa: E402

SMALL: dict[str, Any] = {"gpu_memory": "1MiB", "cpu_memory": "32MiB", "lower": "int8"}


def there_and_back(value: Any) -> tuple[Any, int, int]:
    """A value after the way down and up, its bytes, and those below."""
    form, tensors = flatten(value)
    row = torch.zeros(form.nbytes, dtype=torch.uint8)
    pack(tensors, form, row)
    coding = Int8()
    below = coding.down(form, row)
    back = coding.up(form, below, lambda nbytes: torch.zeros(nbytes, dtype=torch.uint8))
    return unpack(form, back), form.nbytes, coding.nbytes(form)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_each_channel_of_each_head_keeps_its_own_precision(dtype: Any) -> None:
    value = noise(1, 2, 3, 100, 8).to(dtype)
    value[:, 1] *= 1000
    value[..., 3] *= 1e-3
    back, nbytes, below = there_and_back({"k": value, "small": noise(2, 5).to(dtype)})
    step = value.double().abs().amax(dim=-2, keepdim=True) / 127
    near = step * 0.51 + value.double().abs() * torch.finfo(dtype).eps
    assert bool(((back["k"].double() - value.double()).abs() <= near).all())
    assert torch.equal(back["small"], noise(2, 5).to(dtype)), "a vector is kept as it is"
    assert below < 0.6 * nbytes


def test_a_single_token_is_kept_as_it_is_since_scales_would_be_longer() -> None:
    value = [noise(1, 1, 8, 1, 128).bfloat16(), torch.empty(0, 4)]
    back, nbytes, below = there_and_back(value)
    assert torch.equal(back[0], value[0])
    assert back[1].shape == (0, 4)
    assert below == nbytes


def test_values_are_exact_on_the_device_and_close_below_it() -> None:
    value = noise(1, 2, 8, 256, 64).bfloat16()
    with KVCacheManager(**SMALL, first_steps=1, last_steps=0) as manager:
        for step in range(8):
            manager.put(step, value + step)
        assert torch.equal(manager.get(0), value), "it never left the device"
        off = (manager.get(3).double() - (value + 3).double()).norm() / (value + 3).double().norm()
        assert 0 < float(off) < 0.02
        stats = manager.stats()
        assert stats.rounding is not None
        print(f"values of bfloat16: {stats.rounding.relative:.2%} off (root mean square)")
        assert 0 < stats.rounding.relative < 0.02
        assert stats.rounding.error_max > 0
        assert "int8 below the device is off by" in str(stats)
        assert stats.kept_bytes < 0.6 * 8 * value.numel() * 2


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.bool, torch.float8_e5m2])
def test_what_cannot_be_rounded_is_refused_and_nothing_is_kept(dtype: Any) -> None:
    with KVCacheManager(**SMALL) as manager:
        with pytest.raises(ValueError, match=r"a tensor of kv is .*, and lower is 'int8': it"):
            manager.put(1, torch.zeros(4, 64).to(dtype))
        with pytest.raises(FloatingPointError, match="lower='exact' to keep them"):
            manager.put(1, torch.full((64, 4), float("nan")))
        assert 1 not in manager
        assert manager.stats().kept_bytes == 0


def test_it_is_off_unless_asked_for() -> None:
    with KVCacheManager(gpu_memory=0, cpu_memory="16MiB") as manager:
        manager.put(1, noise(1, 100, 100))
        assert torch.equal(manager.get(1), noise(1, 100, 100))
        assert manager.stats().rounding is None
    with pytest.raises(ValueError, match="lower is 'int4'; use one of exact, int8"):
        KVCacheManager(lower="int4")
