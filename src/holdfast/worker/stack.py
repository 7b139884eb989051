"""Where an error came from, as its readers want it: their own frames, what caused it, what lies within it."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from types import CodeType, FrameType, TracebackType
from typing import Any

_OURS = ("holdfast.worker.", "holdfast.runtime.")


def stack_of(error: BaseException) -> str:
    """Return the frames of an error, from the handler on, and with them its causes or the errors of a group."""
    frames = _theirs(error.__traceback__)
    has_more = error.__cause__ is not None or isinstance(error, BaseExceptionGroup)
    if not has_more and (error.__context__ is None or error.__suppress_context__):
        return "".join(traceback.format_tb(frames))
    return "".join(traceback.format_exception(type(error), error, frames))


def whereabouts(handler: Any, awaited: Any) -> str:
    """Say where a handler is now: in a thread, or in the coroutines that a task waits for; "" when nobody knows."""
    code = getattr(handler, "__code__", None) or getattr(type(handler).__call__, "__code__", None)
    for frame in list(sys._current_frames().values()):
        if any(each.f_code is code for each in _outwards(frame)):
            return _place(frame)
    frames = [each for each in _inwards(awaited) if not _is_plumbing(each)]
    return _place(frames[-1]) if any(each.f_code is code for each in frames) else ""


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _inwards(awaited: Any) -> Iterator[FrameType]:
    """The frames of a coroutine and of those it waits for, from the outermost on."""
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is not None:
            yield frame
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)


def _is_plumbing(frame: FrameType) -> bool:
    module: str = frame.f_globals.get("__name__", "")
    return module.startswith((*_OURS, "asyncio."))


def _place(frame: FrameType) -> str:
    code: CodeType = frame.f_code
    return f"{code.co_filename}:{frame.f_lineno} in {code.co_name}"


def _theirs(frames: TracebackType | None) -> TracebackType | None:
    """Leave out how we came to call the handler."""
    first = frames
    while first is not None and first.tb_frame.f_globals.get("__name__", "").startswith(_OURS):
        first = first.tb_next
    # An error of our own making has no other frames.
    return first or frames
