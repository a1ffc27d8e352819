"""Where "now" comes from: the machine's monotonic clock, shared by all its processes.

Every class here takes its clock as an argument and this is the default, so a test moves time
itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Seconds from a fixed point; never goes back."""

monotonic: Clock = time.monotonic
