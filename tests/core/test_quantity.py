"""Sizes mean what Kubernetes says they mean, and everything else is refused in a sentence."""

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onggi_core.quantity import (
    QUANTITY_BYTES_MAX,
    QuantityError,
    capped_quantity,
    exact_quantity,
    format_quantity,
    format_size,
    parse_quantity,
    parse_size,
)

GI = 1024**3


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("17179869184", 17_179_869_184),
        ("16Gi", 17_179_869_184),
        ("16G", 16_000_000_000),
        ("1.5Gi", 1_610_612_736),
        (".5Ki", 512),
        ("5.", 5),
        ("+1Ki", 1024),
        ("0", 0),
        ("1e9", 10**9),
        ("1E3", 1000),
        ("1E", 10**18),
        ("12e-1", 2),
        ("100m", 1),
        ("1k", 1000),
        ("1Ti", 1024**4),
    ],
)
def test_a_kubernetes_quantity_is_read_as_kubernetes_reads_it(text: str, size_bytes: int) -> None:
    assert parse_quantity(text) == size_bytes
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("16GB", "unit 'GB', which is 2**30 bytes to some and 10**9 to others; write 16Gi or 16G"),
        (
            "1.5mb",
            "unit 'mb', which is 2**20 bytes to some and 10**6 to others; write 1.5Mi or 1.5M",
        ),
        ("16g", "unknown unit 'g'; write 16Gi or 16G (powers of 1024, of 1000)"),
        ("1K", "unknown unit 'K'; write 1Ki or 1k (powers of 1024, of 1000)"),
        ("-1", "negative"),
        ("lots", "not a size"),
        ("", "empty"),
        ("1 Gi", "unknown unit"),
        ("1e99", "exponent"),
        ("10Ei", "more than"),
        ("1" * 65, "longer than 64"),
        ("1Gi\n", "not a size"),
        ("١Gi", "not a size"),
        ("1GiB", "unknown unit"),
    ],
)
def test_anything_else_is_refused_with_what_would_be_right(text: str, says: str) -> None:
    with pytest.raises(QuantityError, match=re.escape(says)):
        parse_quantity(text)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("1GiB", GI), (" 4 GiB ", 4 * GI), ("64MiB", 64 * 1024**2), ("512B", 512), ("1Gi", GI)],
)
def test_a_command_line_may_say_gib(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


def test_gigabytes_are_refused_on_a_command_line_too() -> None:
    with pytest.raises(QuantityError, match=r"16GiB or 16G$"):
        parse_size("16GB")


@pytest.mark.parametrize("text", ["16gib", "16 g", "16gb", "16Gib"])
def test_what_is_right_on_a_command_line_is_spelt_as_people_write_it_there(text: str) -> None:
    with pytest.raises(QuantityError, match="; write 16GiB or 16G") as wrong:
        parse_size(text)
    assert "Gi " not in str(wrong.value)


@given(st.integers(min_value=0, max_value=QUANTITY_BYTES_MAX))
def test_formatting_is_exact(size_bytes: int) -> None:
    assert parse_quantity(format_quantity(size_bytes)) == size_bytes


@given(st.text(max_size=80))
def test_no_text_breaks_the_parser(text: str) -> None:
    try:
        size_bytes = parse_size(text)
    except QuantityError:
        return
    assert 0 <= size_bytes <= QUANTITY_BYTES_MAX


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0"), (1023, "1023"), (1536, "1.5Ki"), (GI, "1Gi"), (int(2.75 * GI), "2.7Gi")],
)
def test_a_size_for_people_has_at_most_one_decimal(size_bytes: int, text: str) -> None:
    assert format_size(size_bytes) == text


@pytest.mark.parametrize(("text", "cores"), [("100m", "1/10"), ("2", "2"), ("0.5", "1/2")])
def test_cores_are_not_rounded(text: str, cores: str) -> None:
    assert exact_quantity(text) == Fraction(cores)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0", 0),
        ("1.5Gi", 3 * GI // 2),
        ("+1Gi", GI),
        ("1m", 1),
        ("1073741824001m", 1073741825),
        ("1e9", 10**9),
        ("7Ei", 7 * 2**60),
        ("8Ei", QUANTITY_BYTES_MAX),
        ("10e18", QUANTITY_BYTES_MAX),
        ("1e21", QUANTITY_BYTES_MAX),
        ("1e9999", QUANTITY_BYTES_MAX),
        ("1e999999999999", QUANTITY_BYTES_MAX),
        ("9" * 60, QUANTITY_BYTES_MAX),
        ("9" * 9000, QUANTITY_BYTES_MAX),
        ("0" * 9000 + "7", 7),
        ("0e9999", 0),
        ("1e-9999", 1),
        ("5000000e-6", 5),
        ("0." + "0" * 9000 + "1Ki", 1),
        (".5Ki", 512),
    ],
)
def test_what_the_api_server_has_taken_is_read_whatever_its_size(
    text: str, size_bytes: int
) -> None:
    assert capped_quantity(text) == size_bytes


@pytest.mark.parametrize("text", ["", "-1", "lots", "16GB", "1e", "1e+", "1Gi "])
def test_what_it_would_refuse_is_refused_here_too(text: str) -> None:
    with pytest.raises(QuantityError):
        capped_quantity(text)
