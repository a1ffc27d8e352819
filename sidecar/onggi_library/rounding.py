"""int8 with a scale for each channel: half of bfloat16's bytes, for tiers where bytes count.

A channel is one place in the last dimension; its scale is that of the largest of its values over
the dimension before (tokens). Keys have channels that are far larger than others, and rounding all
of them alike would leave nothing of the small ones (as in Liu et al., "KIVI", 2024). What rounding
does to the values is measured, of each value that is rounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import torch

EXACT: Final = "exact"
INT8: Final = "int8"
LOWER: Final = (EXACT, INT8)
"""How numbers lie in the tiers below the device."""
STEPS: Final = 127
"""From zero to the largest value, either way."""
ROUNDED: Final = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@dataclass(slots=True)
class Rounding:
    """Of all values that were rounded so far."""

    error_max: float = 0.0
    """The greatest distance of a value from what it was."""
    error_squares: float = 0.0
    value_squares: float = 0.0

    @property
    def relative(self) -> float:
        """The errors' root mean square, as a share of the values'."""
        return (self.error_squares / self.value_squares) ** 0.5 if self.value_squares else 0.0


def check_lower(lower: str) -> None:
    """Raises ValueError."""
    if lower not in LOWER:
        raise ValueError(f"lower is {lower!r}; use one of {', '.join(LOWER)}")


def check_dtype(what: str, dtype: Any) -> None:
    """Raises ValueError for values that are not to be rounded."""
    if dtype not in ROUNDED:
        names = ", ".join(str(one).removeprefix("torch.") for one in ROUNDED)
        raise ValueError(
            f"{what} is {str(dtype).removeprefix('torch.')}, and lower is 'int8': it rounds "
            f"{names} only; use lower='exact'"
        )


def round_off(values: Any, rounding: Rounding) -> tuple[Any, Any]:
    """values [.., tokens, channels]; int8 of that shape, and float32 scales [.., 1, channels].
    Raises FloatingPointError for values without a size."""
    exact = values.float()
    largest = exact.abs().amax(dim=-2, keepdim=True)
    if not bool(torch.isfinite(largest).all()):
        raise FloatingPointError(
            "values to be rounded to int8 are infinite, not a number, or beyond float32; use "
            "lower='exact' to keep them"
        )
    scales = largest / STEPS
    # back again the largest of all numbers would be a bit more than itself, which is infinite
    scales = torch.where(torch.isfinite(scales * STEPS), scales, scales.nextafter(scales * 0))
    rounded = torch.where(scales > 0, exact / scales, 0.0).round_().clamp_(-STEPS, STEPS)
    off = (rounded * scales).to(values.dtype).float().sub_(exact)
    rounding.error_max = max(rounding.error_max, float(off.abs().max()))
    rounding.error_squares += float(off.square().sum())
    rounding.value_squares += float(exact.square().sum())
    return rounded.to(torch.int8), scales


def give_back(rounded: Any, scales: Any, into: Any) -> None:
    """The values, as far as rounding left them, into a tensor of their shape."""
    torch.mul(rounded, scales, out=into)
