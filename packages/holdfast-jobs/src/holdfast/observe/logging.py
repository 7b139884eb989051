"""Events as records of the logger `holdfast`, with their fields as attributes; and records as JSON lines.

Routine events of single jobs have a logger of their own, `holdfast.jobs`, so that they can be enabled alone.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from holdfast.core import events
from holdfast.core.events import Event, EventSpec
from holdfast.core.ids import short_id
from holdfast.extensions import rows
from holdfast.observe.context import JobContextFilter

CATALOGUE: dict[str, EventSpec] = {
    **events.CATALOGUE,
    **{each.name: each for each in rows("events")},
}
"""Every event, those of extensions included."""

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}

JOBS = "holdfast.jobs"
"""The logger of `ROUTINE`; set to DEBUG it writes a line per job, whatever the level of `holdfast`."""

ROUTINE = frozenset(
    name for name, each in CATALOGUE.items() if each.level == "debug" and "job_id" in each.fields
)

OUTCOMES = {
    name: each.warning_outcomes for name, each in CATALOGUE.items() if each.warning_outcomes
}
"""The outcomes with which an event is a warning, whatever its level is otherwise."""

_PLAIN = re.compile(r"[\w.:/@+*,-]+", re.ASCII)
_STANDARD_FIELDS = {
    *logging.LogRecord("", 0, "", 0, "", None, None).__dict__,
    "asctime",
    "message",
    "taskName",
    # uvicorn's message once more, with colours.
    "color_message",
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
        return logger.isEnabledFor(logging.WARNING if name in OUTCOMES else level)

    def observe(self, event: Event) -> None:
        """See `core.events.Observer`."""
        logger, level = self._target(event.name)
        if event.fields.get("outcome") in OUTCOMES.get(event.name, ()):
            level = logging.WARNING
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


def log_json(level: str) -> None:
    """Have the whole process write JSON lines to stderr: records, with the job they are about, warnings and crashes."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    handler.addFilter(JobContextFilter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)
    sys.excepthook = _log_crash
    threading.excepthook = lambda crash: _log_crash(
        crash.exc_type, crash.exc_value or crash.exc_type(), crash.exc_traceback
    )


def json_level() -> str | None:
    """Return the level from which this process logs JSON, if it does."""
    root = logging.getLogger()
    is_json = any(isinstance(each.formatter, JsonFormatter) for each in root.handlers)
    return logging.getLevelName(root.level) if is_json else None


def _log_crash(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if issubclass(kind, Exception):
        logging.getLogger("holdfast").critical("%s", error, exc_info=(kind, error, trace))


class PrettyFormatter(logging.Formatter):
    """Lines for people: local time, the event in words, short ids, and an error on lines of its own."""

    def __init__(self, colour: bool = False) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and below it what does not fit into one."""
        time = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        words, below = self._words(record)
        if record.exc_info:
            below = f"{below}\n{self.formatException(record.exc_info)}".strip("\n")
        level = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        style = _STYLES.get(record.levelno, "")
        lines = [f"{self._paint(time, _DIM)} {self._paint(f'{level}{words}', style)}"]
        lines += [self._paint(f"{'':9}{each}", style) for each in _printable(below).splitlines()]
        return "\n".join(lines)

    def _words(self, record: logging.LogRecord) -> tuple[str, str]:
        """Return an event as one line, and its error; any other record as its message."""
        event = getattr(record, "event", None)
        if not isinstance(event, str) or event not in CATALOGUE:
            first, _, rest = record.getMessage().partition("\n")
            return _printable(first), rest
        fields = {name: getattr(record, name, None) for name in CATALOGUE[event].fields}
        error = str(fields.pop("error", None) or "")
        about = [str(fields.pop(each, None) or "") for each in ("type", "cycle", "runner")]
        parts = [event.replace("_", " "), *filter(None, about)]
        parts += [
            f"{name.removesuffix('_ms')}={_short(name, value)}"
            for name, value in fields.items()
            if value is not None and name not in _UNINTERESTING
        ]
        return _printable(" ".join(parts)), error

    def _paint(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self._colour and style else text


_DIM = "2"
_STYLES = {logging.DEBUG: _DIM, logging.WARNING: "33", logging.ERROR: "31", logging.CRITICAL: "31"}
_UNINTERESTING = frozenset({"worker", "run_id", "chain_id", "fence", "trace", "fingerprint"})


def _short(name: str, value: object) -> str:
    if name.endswith("_ms"):
        return f"{value}ms"
    text = _value(value)
    return short_id(text) if name.endswith("_id") else text


def _printable(text: str) -> str:
    """Escape what a terminal would obey."""
    return "".join(
        each if each.isprintable() or each == "\n" else ascii(each)[1:-1] for each in text
    )


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
