"""Identity: equal where it must be, different wherever the bytes could be."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onggi_core.errors import BadRequest
from onggi_core.identity import ROOT, block_key, block_keys, differing, fingerprint

FIELDS = {
    "model": "llama",
    "revision": "abc",
    "dtype": "bfloat16",
    "kv_dtype": "auto",
    "layout": "LBNHC",
    "block_tokens": 16,
    "layers": 32,
    "heads": 8,
    "head_size": 128,
    "rope": "base=10000",
    "tp": "0/2",
    "engine": "vllm-1",
    "tenant": "team-a",
}
ids = st.lists(st.integers(0, 2**32 - 1), max_size=40)


def test_a_fingerprint_is_the_same_in_every_process_and_version() -> None:
    """Written out, because a change of this value turns every stored block into a miss."""
    assert fingerprint(FIELDS).hex() == "88f9b3809112675b4ae95ad8f1a4f193"


def test_block_keys_are_the_same_in_every_process_and_version() -> None:
    keys = block_keys(range(7), 3, {1: [("lora", "tone")]})
    assert [key.hex() for key in keys] == [
        "5ed489eade21b6750a3f85328cdacb20",
        "7f634f327ab32e5248810d3b1ce41939",
    ]


@pytest.mark.parametrize("field", sorted(FIELDS))
def test_one_changed_field_changes_the_fingerprint(field: str) -> None:
    changed = {**FIELDS, field: 7 if isinstance(FIELDS[field], str) else "x"}
    assert fingerprint(changed) != fingerprint(FIELDS)
    assert differing(FIELDS, changed) == (field,)


def test_the_order_of_fields_does_not_matter_and_a_missing_one_does() -> None:
    assert fingerprint(dict(reversed(FIELDS.items()))) == fingerprint(FIELDS)
    less = {k: v for k, v in FIELDS.items() if k != "rope"}
    assert fingerprint(less) != fingerprint(FIELDS)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "fields is {}; name at least the model"),
        ({"layers": 1.5}, "fields[layers] is 1.5; use text or a whole number"),
        ({"tied": True}, "fields[tied] is True; use text or a whole number"),
    ],
)
def test_fields_that_have_no_one_spelling_are_refused(fields, said) -> None:
    with pytest.raises(BadRequest) as error:
        fingerprint(fields)
    assert str(error.value) == said


@pytest.mark.parametrize("parent", ["p" * 10_000, list(range(10_000)), bytes(10_000)])
def test_a_long_wrong_value_is_shown_in_part(parent) -> None:
    with pytest.raises(BadRequest, match=r"^parent is .*; use 16 bytes$") as error:
        block_keys([1], 1, parent=parent)
    assert len(str(error.value)) < 130


@given(ids, st.integers(1, 9))
def test_only_full_blocks_have_keys(tokens, block_tokens) -> None:
    assert len(block_keys(tokens, block_tokens)) == len(tokens) // block_tokens


@given(ids, st.integers(1, 9), st.data())
def test_a_changed_token_changes_its_block_and_all_after_it(tokens, size, data) -> None:
    keys = block_keys(tokens, size)
    if not keys:
        return
    where = data.draw(st.integers(0, len(keys) * size - 1))
    other = list(tokens)
    other[where] = (other[where] + 1) % 2**32
    changed = block_keys(other, size)
    assert keys[: where // size] == changed[: where // size]
    assert not set(keys[where // size :]) & set(changed[where // size :])


@given(ids, st.integers(1, 9), st.integers(0, 40))
def test_keys_can_be_computed_in_pieces(tokens, size, cut) -> None:
    cut = min(cut, len(tokens)) // size * size
    first = block_keys(tokens[:cut], size)
    rest = block_keys(tokens[cut:], size, parent=first[-1] if first else ROOT)
    assert first + rest == block_keys(tokens, size)


def test_a_salt_on_the_first_block_changes_every_block() -> None:
    plain, salted = block_keys(range(9), 3), block_keys(range(9), 3, {0: [("cache_salt", "a")]})
    other = block_keys(range(9), 3, {0: [("cache_salt", "b")]})
    assert len({*plain, *salted, *other}) == 9


def test_extras_cannot_spell_each_other_or_tokens() -> None:
    variants = [
        block_key(ROOT, b"abcd", [("a", "bc")]),
        block_key(ROOT, b"abcd", [("ab", "c")]),
        block_key(ROOT, b"abcd", [("a", "b"), ("c", "")]),
        block_key(ROOT, b"abcd"),
        block_key(ROOT, b"", [("abcd", "")]),
        block_key(ROOT, b"abcdabcd"),
    ]
    assert len(set(variants)) == len(variants)


@pytest.mark.parametrize("wrong", [-1, 2**32, 1.5])
def test_an_id_that_is_no_uint32_is_named(wrong) -> None:
    with pytest.raises(BadRequest) as error:
        block_keys([1, wrong], 2)
    assert error.value.value == wrong


def test_a_process_with_another_hash_seed_agrees() -> None:
    script = "from onggi_core.identity import *; print(block_keys([1,2],2)[0].hex())"
    seen = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert seen == {block_keys([1, 2], 2)[0].hex() + "\n"}


def test_a_fingerprint_of_no_mapping_is_refused() -> None:
    with pytest.raises(BadRequest, match="use a mapping of names to values"):
        fingerprint("x")  # type: ignore[arg-type]
