"""Logs as one JSON object a line, so that a cluster's collector needs no rule for them."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final

_PLAIN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
VALUE_CHARS_MAX: Final = 2000
"""A field that is longer says nothing more; keeps one bad object from flooding the log."""


class JsonFormatter(logging.Formatter):
    """Time, level, logger, message and whatever was given as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage()[:VALUE_CHARS_MAX],
        }
        for name, value in vars(record).items():
            if name not in _PLAIN and isinstance(value, (str, int, float, bool, type(None))):
                fields[name] = value[:VALUE_CHARS_MAX] if isinstance(value, str) else value
        if record.exc_info:
            fields["fault"] = self.formatException(record.exc_info)[-VALUE_CHARS_MAX:]
        return json.dumps(fields)


def set_up(level: str) -> None:
    """Send everything to stderr at `level`; libraries that narrate their calls, at warning."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in ("aiohttp.access", "kopf", "asyncio"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # It warns that it has no signals to take: it shall not have them.
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)
