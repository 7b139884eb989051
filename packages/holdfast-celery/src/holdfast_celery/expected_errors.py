"""Errors that a task may fail with as a matter of course (`throws=`): the worker logs them, but not as errors."""

from __future__ import annotations

import logging

from holdfast_celery.exceptions import is_recorded_as

Errors = tuple[type[BaseException], ...]

_expected: dict[str, Errors] = {}


class ExpectedErrors(logging.Filter):
    """Makes what the worker says of a task's expected failure an information."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the level of a record that says so; all records are kept."""
        name = str(getattr(record, "type", "")).rpartition(":")[2]
        if getattr(record, "event", "") == "job_failed" and is_recorded_as(
            str(getattr(record, "error", "")), _expected.get(name, ())
        ):
            record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
        return True


_FILTER = ExpectedErrors()


def log_as_expected(task: str, errors: Errors) -> None:
    """Log these errors of a task as information."""
    if errors:
        _expected[task] = errors
        logging.getLogger("holdfast").addFilter(_FILTER)
