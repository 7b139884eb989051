"""Events as records of the logger `holdfast`, with their fields as attributes; and records as JSON lines.

Routine events of single jobs have a logger of their own, `holdfast.jobs`, so that they can be enabled alone.
"""

from __future__ import annotations

import json
import logging
import re
from datetime import UTC, datetime
from typing import Any

from holdfast.core.events import CATALOGUE, Event

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}

HANDLED = frozenset(CATALOGUE)
IGNORED: frozenset[str] = frozenset()

JOBS = "holdfast.jobs"
"""The logger of `ROUTINE`; set to DEBUG it writes a line per job, whatever the level of `holdfast`."""

ROUTINE = frozenset(
    name for name, each in CATALOGUE.items() if each.level == "debug" and "job_id" in each.fields
)

_PLAIN = re.compile(r"[\w.:/@+*,-]+", re.ASCII)
_STANDARD_FIELDS = {
    *logging.LogRecord("", 0, "", 0, "", None, None).__dict__,
    "asctime",
    "message",
    "taskName",
}


class LoggingObserver:
    """Writes each event as one record at its level; `record.event` is its name.

    A logger that is passed in gets all of them, routine events included.
    """

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._logger = logger or logging.getLogger("holdfast")
        jobs = logger or logging.getLogger(JOBS)
        self._targets = {
            name: (jobs if name in ROUTINE else self._logger, LEVELS[spec.level])
            for name, spec in CATALOGUE.items()
        }

    def wants(self, name: str) -> bool:
        """Return whether a record of this event would be written now; see `core.events.Observer`."""
        logger, level = self._target(name)
        return logger.isEnabledFor(level)

    def observe(self, event: Event) -> None:
        """See `core.events.Observer`."""
        logger, level = self._target(event.name)
        if logger.isEnabledFor(level):
            logger.log(level, "%s", _format(event), extra={"event": event.name, **event.fields})

    def _target(self, name: str) -> tuple[logging.Logger, int]:
        return self._targets.get(name) or (self._logger, logging.INFO)


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message and every field given with the record."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, in ASCII; fields without a value are omitted."""
        moment = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {
            name: value
            for name, value in record.__dict__.items()
            if name not in _STANDARD_FIELDS and value is not None
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def _format(event: Event) -> str:
    fields = (f" {name}={_value(value)}" for name, value in event.fields.items())
    return event.name + "".join(fields)


def _value(value: object) -> str:
    """Quote what is not a plain word, so that an error's text can neither break nor forge a line."""
    if isinstance(value, list | tuple):
        text = ",".join(map(str, value))
    elif isinstance(value, dict):
        text = ",".join(f"{name}:{each}" for name, each in value.items())
    else:
        text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)
