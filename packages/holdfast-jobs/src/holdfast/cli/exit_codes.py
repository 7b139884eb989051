"""The exit codes."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """The exit codes of all commands; an error says its own, see `core.errors`."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    REFUSED = 4
    PARTLY = 5
    CHECK_NOT_MET = 6
    DATABASE = 7
    TIMED_OUT = 124
    INTERRUPTED = 130
    BROKEN_PIPE = 141
