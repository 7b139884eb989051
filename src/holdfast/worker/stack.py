"""Where an error came from, as its readers want it: their own frames, what caused it, what lies within it."""

from __future__ import annotations

import traceback
from types import TracebackType

_OURS = ("holdfast.worker.", "holdfast.runtime.")


def stack_of(error: BaseException) -> str:
    """Return the frames of an error, from the handler on, and with them its causes or the errors of a group."""
    frames = _theirs(error.__traceback__)
    has_more = error.__cause__ is not None or isinstance(error, BaseExceptionGroup)
    if not has_more and (error.__context__ is None or error.__suppress_context__):
        return "".join(traceback.format_tb(frames))
    return "".join(traceback.format_exception(type(error), error, frames))


def _theirs(frames: TracebackType | None) -> TracebackType | None:
    """Leave out how we came to call the handler."""
    first = frames
    while first is not None and first.tb_frame.f_globals.get("__name__", "").startswith(_OURS):
        first = first.tb_next
    # An error of our own making has no other frames.
    return first or frames
