"""Any nested tensors become one row of bytes and come back; what cannot is refused by its path."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

torch: Any = pytest.importorskip("torch", reason="torch is not installed here")

from onggi_library.manager.pages import PAGE_MAX, UNIT, cut, keys_of  # noqa: E402
from onggi_library.manager.values import DEPTH_MAX, flatten, pack, unpack  # noqa: E402

DTYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.bool,
    torch.complex64,
    torch.complex128,
]


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 5), max_size=4))
    seed = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    count = torch.empty(shape, dtype=dtype).nbytes
    top = 2 if dtype is torch.bool else 256
    row = torch.randint(0, top, (count,), dtype=torch.uint8, generator=seed)
    made = row.view(dtype).view(shape) if count else torch.empty(shape, dtype=dtype)
    return made.permute(draw(st.permutations(range(len(shape))))) if shape else made


values = st.recursive(
    tensors(),
    lambda below: st.one_of(
        st.lists(below, min_size=1, max_size=3),
        st.lists(below, min_size=1, max_size=3).map(tuple),
        st.dictionaries(st.one_of(st.integers(), st.text(max_size=3)), below, min_size=1),
    ),
    max_leaves=6,
)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        alike = one.dtype is other.dtype and one.shape == other.shape
        return alike and (
            not one.numel()
            or torch.equal(one.reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8))
        )
    if type(one) is not type(other) or len(one) != len(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    return all(map(same, one, other))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(values)
def test_a_value_comes_back_from_its_row_of_bytes(kv: Any) -> None:
    form, leaves = flatten(kv)
    row = torch.full((cut(form.nbytes).nbytes,), 7, dtype=torch.uint8)
    pack(leaves, form, row)
    assert same(unpack(form, row), kv)
    assert flatten(kv)[0] == form, "the same value has the same form"


@given(st.integers(0, 64 * PAGE_MAX))
def test_pages_hold_the_value_and_little_more(nbytes: int) -> None:
    pages = cut(nbytes)
    assert pages.nbytes >= nbytes
    assert pages.page_bytes % UNIT == 0
    assert UNIT <= pages.page_bytes <= PAGE_MAX
    assert pages.nbytes - nbytes <= max(nbytes // 8, UNIT * pages.pages)


def test_there_are_few_sizes_of_pages() -> None:
    assert len({cut(nbytes).page_bytes for nbytes in range(0, 2 * PAGE_MAX, 512)}) == 48


def test_no_two_pages_have_one_name() -> None:
    names = [key for serial in (1, 2, 65_535, 65_536) for key in keys_of(serial, 300, 5)]
    assert len(set(names)) == len(names)
    assert {len(name) for name in names} == {16}


@pytest.mark.parametrize(
    ("kv", "said"),
    [
        ([torch.ones(2), "text"], r"kv\[1\] is a str; use a torch.Tensor, or a tuple"),
        ({"k": (torch.ones(3), 4)}, r"kv\['k'\]\[1\] is a int; use a torch.Tensor"),
        ([], r"kv is \[\], without a tensor in it"),
        (torch.ones(3).to_sparse(), r"kv is torch.sparse_coo; use a dense tensor"),
        (torch.ones(3, device="meta"), r"kv is on meta; use a tensor on a cpu or cuda"),
        (torch.ones(2, dtype=torch.complex64).conj(), r"kv is a lazy conjugate; use resolve_conj"),
    ],
)
def test_what_cannot_be_kept_is_named_with_what_would_be_right(kv: Any, said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        flatten(kv)


def test_a_value_too_deep_is_refused() -> None:
    kv: Any = torch.ones(1)
    for _ in range(DEPTH_MAX + 1):
        kv = [kv]
    with pytest.raises(ValueError, match="nested deeper than 32"):
        flatten(kv)
