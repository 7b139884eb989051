"""Celery's exceptions by their names, and a task's own exception as it is recorded and read again."""

from __future__ import annotations

import builtins
import re
import sys
import traceback
from datetime import UTC, datetime
from typing import Any

from holdfast.core.duration import milliseconds
from holdfast.core.errors import (
    ChainCancelled,
    ChainFailed,
    CircularWait,
    HoldfastError,
    Permanent,
    WaitTimeout,
    words_of,
)
from holdfast.core.instants import to_instant
from holdfast.core.sealing import SEALED_TEXT
from holdfast.worker.processes import ChildError, ChildFailure
from holdfast.worker.resolve_outcome import format_places, format_stack
from holdfast_celery.coverage import refuse_import

_OUR_FRAMES = "holdfast_celery."
_CLASS = re.compile(r"[A-Za-z_][\w.]*")
_STACK = re.compile(r"\n(?=  File \"|Traceback \(most recent call last\):|  \+ Exception Group)")
_WHOLE = "Traceback (most recent call last):"


class _PlainText(HoldfastError):
    """An error whose text is its message alone, as programs show it to their users."""

    def __str__(self) -> str:
        return self.message


class TimeoutError(WaitTimeout, builtins.TimeoutError):
    """Raised by `get` when the task has not ended in time; it goes on."""


class TaskWouldBlock(CircularWait, RuntimeError):
    """Raised by `get` inside a task, where Celery raises a RuntimeError."""


class TaskRevokedError(_PlainText, ChainCancelled):
    """The result of a task that was revoked or has expired."""


class ChordError(_PlainText, ChainFailed):
    """The result of a chord's body that was not run, because a task of the header failed."""


class WorkerLostError(_PlainText, ChainFailed):
    """The result of a task whose workers died, time after time."""


class MaxRetriesExceededError(Permanent):
    """Raised by `self.retry` when no retry is left and it was given no error to fail with."""


class TimeLimitExceeded(_PlainText, Permanent):
    """What a task fails with that ran longer than its time limit and has no retry left."""


class TaskRetry(Exception):
    """Raised by `self.retry`: this attempt ends, and another follows after a while."""

    def __init__(
        self,
        message: str | None = None,
        exc: BaseException | str | None = None,
        when: float | datetime | None = None,
        is_eager: bool = False,
        sig: object = None,
    ) -> None:
        """when: in so many seconds, or at a time. exc: the error that is the reason, or its text."""
        self.message = message
        self.exc = exc if isinstance(exc, BaseException) else None
        self.excs = exc if isinstance(exc, str) else repr(exc) if exc else None
        self.when = when
        self.is_eager = is_eager
        because = f": {self.excs}" if self.excs else ""
        super().__init__(message or f"Retry {self.humanize()}{because}")

    def humanize(self) -> str:
        """Say when."""
        return f"in {self.when:g}s" if isinstance(self.when, int | float) else f"at {self.when}"

    @property
    def retry_after_ms(self) -> int:
        """How long the retry waits, from now."""
        if isinstance(self.when, datetime):
            return max(0, (to_instant(self.when) - to_instant(datetime.now(tz=UTC))) // 1000)
        return milliseconds(max(0.0, float(self.when or 0)))


def __getattr__(name: str) -> Any:
    """Return `Retry` under Celery's name; refuse its other exceptions, with what to write instead."""
    if name == "Retry":
        return TaskRetry
    raise refuse_import(__name__, name)


_OF_THE_WORKER: dict[str, type[HoldfastError]] = {
    "BlockerFailed": ChordError,
    "Cancelled": TaskRevokedError,
    "TimedOut": TimeLimitExceeded,
    "WorkerDied": WorkerLostError,
}
"""What the worker records where no exception was raised."""


class RecordedError(ChildError):
    """What a task raised, recorded under the full path of its class and without the frames that called it."""


def record_error(
    error: BaseException, *, sealed: bool, retry_after_ms: int | None = None
) -> RecordedError:
    """Return the error as the worker records it: final, unless there is a delay after which the task is retried."""
    error.__traceback__ = without_our_frames(error.__traceback__)
    path, is_retried = _path_of(error), retry_after_ms is not None
    if sealed:
        # By its class and places only: its text may repeat what is sealed.
        failure = ChildFailure(path, SEALED_TEXT, format_places(error), is_retried, retry_after_ms)
    else:
        text = error.message if isinstance(error, HoldfastError) else words_of(error)
        failure = ChildFailure(path, text, format_stack(error), is_retried, retry_after_ms)
    return RecordedError(failure)


class ExceptionInfo:
    """What hooks and receivers are given of an exception."""

    def __init__(self, error: BaseException) -> None:
        frames = without_our_frames(error.__traceback__)
        self.type = type(error)
        self.exception = error
        self.traceback = "".join(traceback.format_exception(self.type, error, frames))

    def __str__(self) -> str:
        return self.traceback


def read_error(text: str) -> Exception:
    """Return a recorded error as an exception: of its own class where that is imported, else of one with its name.

    No code of the class runs: it may need other arguments than its text.
    """
    path, message, _ = _split(text)
    known = _OF_THE_WORKER.get(path)
    if known is not None:
        return known(message or path)
    module, _, name = path.rpartition(".")
    named = type(name, (Exception,), {"__module__": module})
    kind = _find_class(module, name) or named
    try:
        error = _make(kind, message)
    except TypeError:
        # An ExceptionGroup, which cannot be without its exceptions.
        return _make(named, message)
    if words_of(error) == message:
        return error
    # One that makes its text of its attributes, or quotes it as KeyError does.
    said = {"__str__": lambda _: message, "__module__": kind.__module__}
    return _make(type(name, (kind,), said), message)


def is_recorded_as(text: str, errors: tuple[type[BaseException], ...]) -> bool:
    """Whether a recorded error is of one of these classes, or of a class that is derived from one."""
    path, _, _ = _split(text)
    module, _, name = path.rpartition(".")
    kind = _find_class(module, name)
    return kind is not None and issubclass(kind, errors)


def read_traceback(text: str) -> str:
    """Return a recorded error, which begins with what was raised, as a traceback, which ends with it."""
    path, message, stack = _split(text)
    raised = f"{path}: {message}" if message else path
    if _WHOLE in stack:
        return stack
    return f"{_WHOLE}\n{stack}{raised}\n" if stack else f"{raised}\n"


def without_our_frames(frames: Any) -> Any:
    """Leave out how the task came to be called."""
    first = frames
    while first is not None and first.tb_frame.f_globals.get("__name__", "").startswith(
        _OUR_FRAMES
    ):
        first = first.tb_next
    # An error of our own making has no other frames.
    return first or frames


def _split(text: str) -> tuple[str, str, str]:
    """Return the class, the message and the stack of a recorded error."""
    found = _CLASS.match(text)
    path = found.group().rstrip(".") if found else ""
    rest = text[len(path) :]
    stack = _STACK.search(rest)
    end = len(rest) if stack is None else stack.start()
    return path or "Exception", rest[:end].removeprefix(": "), rest[end + 1 :]


def _make(kind: type[Exception], message: str) -> Exception:
    """Return an exception of a class without a call of its constructor. Raises: TypeError."""
    base: Any = next(each for each in kind.__mro__ if each.__module__ == "builtins")
    error: Exception = base.__new__(kind, message)
    error.args = (message,)
    if isinstance(error, HoldfastError):
        HoldfastError.__init__(error, message, help="")
    return error


def _path_of(error: BaseException) -> str:
    """Return the path of an error's class; those of Python itself, and of ours, are known by their name."""
    kind = type(error)
    if kind.__module__ in ("builtins", __name__):
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def _find_class(module: str, name: str) -> type[Exception] | None:
    """Return the class of an exception, if this process has imported it: only then can it be caught."""
    places = [sys.modules.get(module)] if module else [builtins, sys.modules[__name__]]
    for place in places:
        found = getattr(place, name, None)
        if isinstance(found, type) and issubclass(found, Exception):
            return found
    return None
