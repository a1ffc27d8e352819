"""Structured logs: one line on stderr for each event that matters, JSON unless a person watches.

Everything goes through the standard library's logging, so that what aiohttp and others say comes
out in the same shape.
"""

import datetime as dt
import json
import logging
import sys
from typing import Any, Final

LOG: Final = logging.getLogger("onggi")
_FIELDS: Final = "onggi_fields"


def event(name: str, sentence: str, *, level: int = logging.INFO, **fields: Any) -> None:
    """Log one event. name: a stable word to search for; fields: its numbers, units in the name."""
    LOG.log(level, sentence, extra={_FIELDS: {"event": name, **fields}})


def warn(name: str, sentence: str, **fields: Any) -> None:
    event(name, sentence, level=logging.WARNING, **fields)


def error(name: str, sentence: str, **fields: Any) -> None:
    event(name, sentence, level=logging.ERROR, **fields)


class JsonLines(logging.Formatter):
    """time, level, event, message, then the event's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        at = dt.datetime.fromtimestamp(record.created, dt.timezone.utc)
        line: dict[str, Any] = {
            "time": at.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.name,
            "message": record.getMessage(),
        }
        line |= getattr(record, _FIELDS, {})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class PlainLines(logging.Formatter):
    """The same for a terminal: when by the wall clock, the sentence, then the event's figures."""

    def format(self, record: logging.LogRecord) -> str:
        at = dt.datetime.fromtimestamp(record.created).astimezone()
        fields = dict(getattr(record, _FIELDS, {}))
        event = fields.pop("event", record.name)
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        figures = " ".join([event, *(f"{name}={value}" for name, value in fields.items())])
        line = f"{at:%H:%M:%S}  {level}{record.getMessage()}  [{figures}]"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def set_up_logging(level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PlainLines() if sys.stderr.isatty() else JsonLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
