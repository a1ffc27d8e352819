"""Times as people write them in a pool: `90s`, `5m`, `1h30m`."""

import re
from typing import Final

_PART: Final = re.compile(r"([0-9]+)(h|m|s)", re.ASCII)
_SECONDS: Final = {"h": 3600, "m": 60, "s": 1}


def duration_s(text: str) -> int:
    """Seconds. Raises ValueError for what the schema would have refused."""
    parts = _PART.findall(text)
    if not parts or "".join(map("".join, parts)) != text:
        raise ValueError(f"{text!r} is not a time such as 30s, 5m or 1h30m")
    return sum(int(count) * _SECONDS[unit] for count, unit in parts)
