"""Sizes as people write them: Kubernetes quantities, and `1GiB` where a command line is read.

Two readers because two kinds of people type: `parse_quantity` holds to the Kubernetes grammar, so
that a size means the same in a pool, an annotation and a container's limit; `parse_size` also takes
`GiB` and friends for command lines and files, where they are what people expect. `GB` is refused by
both: half of those who write it mean GiB, and a silent 7 % is worse than a question.
"""

import re
from fractions import Fraction
from math import ceil
from typing import Final

QUANTITY_BYTES_MAX: Final = 2**63 - 1
"""What Kubernetes itself can hold (int64); a larger size is a typing error."""

TEXT_CHARS_MAX: Final = 64
"""No sensible size is longer; keeps hostile input from becoming large integers."""

EXPONENT_MAX: Final = 18
"""10**18 is the largest power of ten in an int64; past it the exponent alone is out of range."""

DIGITS_MAX: Final = 40
"""Of a size before its point: with more it is beyond an int64 in the smallest unit there is."""

_NUMBER: Final = re.compile(r"(?P<sign>[+-]?)(?P<digits>\d+\.?\d*|\.\d+)(?P<suffix>.*)", re.ASCII)
_EXPONENT: Final = re.compile(r"[eE][+-]?\d{1,9}", re.ASCII)
_STORED_EXPONENT: Final = re.compile(r"[eE][+-]?\d{1,18}", re.ASCII)
_BINARY: Final = {f"{unit}i": 1024 ** (i + 1) for i, unit in enumerate("KMGTPE")}
_DECIMAL: Final = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{unit: Fraction(1000 ** (i + 1)) for i, unit in enumerate("kMGTPE")},
}
_SIZE_ONLY: Final = {f"{suffix}B": scale for suffix, scale in _BINARY.items()} | {"B": 1}


class QuantityError(ValueError):
    """Text that is not a size. `text` is what was given, `reason` what is wrong with it."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(f"{text[:TEXT_CHARS_MAX]!r} {reason}")
        self.text = text
        self.reason = reason


def parse_quantity(text: str) -> int:
    """Whole bytes of a Kubernetes quantity (`16Gi`, `16G`, `17179869184`, `1.5Gi`, `1e9`).

    A fraction of a byte is rounded up, as Kubernetes does. Raises QuantityError for anything else:
    a negative size, a unit that is not Kubernetes' own, a size over int64.
    """
    return _parse(text, sizes_too=False)


def exact_quantity(text: str) -> Fraction:
    """A Kubernetes quantity without rounding, for cores (`100m`) and for comparing.

    Raises QuantityError as `parse_quantity` does, but for the upper bound.
    """
    return _exact(text, sizes_too=False)


def capped_quantity(text: str) -> int:
    """Whole bytes of a quantity that the API server has taken, rounded up: of any length, and with
    an exponent far beyond an int64 (`1e21`), which anybody may write who may make a pod. What is
    more than an int64 holds is as much as that. Raises QuantityError for what it would refuse."""
    match = _NUMBER.fullmatch(text)
    if match is None or match["sign"] == "-":
        return parse_quantity(text)  # says what is wrong
    whole, _, part = match["digits"].partition(".")
    whole, power, suffix = whole.lstrip("0"), 0, match["suffix"]
    if _STORED_EXPONENT.fullmatch(suffix):
        power, suffix = int(suffix[1:]), ""
    if not whole and not part.strip("0"):
        return 0
    if len(whole) + power > DIGITS_MAX or power < -DIGITS_MAX:
        return QUANTITY_BYTES_MAX if power > -DIGITS_MAX else 1
    exact = Fraction(f"{whole or 0}.{part[:DIGITS_MAX]}0") * Fraction(10) ** power
    size_bytes = ceil(exact * _scale(text, match["digits"][:DIGITS_MAX], suffix, sizes_too=False))
    return min(max(1, size_bytes), QUANTITY_BYTES_MAX)


def parse_size(text: str) -> int:
    """Whole bytes of a Kubernetes quantity or of `KiB`, `MiB`, `GiB`, `TiB`, `B` forms.

    Raises QuantityError as `parse_quantity` does.
    """
    return _parse(text.strip(), sizes_too=True)


def _parse(text: str, *, sizes_too: bool) -> int:
    exact = _exact(text, sizes_too=sizes_too)
    whole = -(-exact.numerator // exact.denominator)
    if whole > QUANTITY_BYTES_MAX:
        raise QuantityError(text, f"is more than {QUANTITY_BYTES_MAX} bytes")
    return whole


def _exact(text: str, *, sizes_too: bool) -> Fraction:
    such = "16GiB" if sizes_too else "16Gi"
    if not text:
        raise QuantityError(text, f"is empty; write a size such as {such}")
    if len(text) > TEXT_CHARS_MAX:
        raise QuantityError(text, f"is longer than {TEXT_CHARS_MAX} characters")
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise QuantityError(text, f"is not a size; write a number and a unit, such as {such}")
    if match["sign"] == "-":
        raise QuantityError(text, "is negative; a size is zero or more")
    suffix = match["suffix"].strip() if sizes_too else match["suffix"]
    digits = match["digits"].removesuffix(".")
    return Fraction(digits) * _scale(text, digits, suffix, sizes_too=sizes_too)


def _scale(text: str, digits: str, suffix: str, *, sizes_too: bool) -> Fraction:
    if suffix in _DECIMAL:
        return _DECIMAL[suffix]
    if suffix in _BINARY:
        return Fraction(_BINARY[suffix])
    if sizes_too and suffix in _SIZE_ONLY:
        return Fraction(_SIZE_ONLY[suffix])
    if _EXPONENT.fullmatch(suffix):
        exponent = int(suffix[1:])
        if abs(exponent) > EXPONENT_MAX:
            raise QuantityError(text, f"has an exponent beyond {EXPONENT_MAX}")
        return Fraction(10) ** exponent
    raise QuantityError(text, _unit_hint(digits, suffix, "B" if sizes_too else ""))


def _unit_hint(digits: str, suffix: str, end: str) -> str:
    """end: of the units of powers of 1024, as they are written where the text was read."""
    first = suffix[:1].upper()
    if not first or first not in "KMGTPE":
        binary = " ".join(f"{unit}{end}" for unit in _BINARY)
        units = f"units are {binary} (powers of 1024) and k M G T P E (powers of 1000)"
        return f"has the unknown unit {suffix!r}; {units}"
    power = "KMGTPE".index(first) + 1
    decimal = "k" if first == "K" else first
    right = f"write {digits}{first}i{end} or {digits}{decimal}"
    if suffix[1:] in ("B", "b"):
        meant = f"2**{10 * power} bytes to some and 10**{3 * power} to others"
        return f"has the unit {suffix!r}, which is {meant}; {right}"
    return f"has the unknown unit {suffix!r}; {right} (powers of 1024, of 1000)"


def format_quantity(size_bytes: int) -> str:
    """The shortest exact Kubernetes quantity: whole binary units where they fit, else bytes."""
    for suffix, scale in reversed(_BINARY.items()):
        if size_bytes and size_bytes % scale == 0:
            return f"{size_bytes // scale}{suffix}"
    return str(size_bytes)


def format_size(size_bytes: int) -> str:
    """A rounded size to read (`1.5Gi`), at most one decimal; never to be parsed for exactness."""
    for suffix, scale in reversed(_BINARY.items()):
        if size_bytes >= scale:
            whole, tenth = divmod(size_bytes * 10 // scale, 10)
            return f"{whole}.{tenth}{suffix}" if tenth and whole < 100 else f"{whole}{suffix}"
    return str(size_bytes)


def spell_bytes(size_bytes: int) -> str:
    """A size in a sentence: exact, and rounded to read where that says more (`1073741824 bytes
    (1GiB)`)."""
    if size_bytes < 1024:
        return f"{size_bytes} bytes"
    return f"{size_bytes} bytes ({format_size(size_bytes)}B)"
