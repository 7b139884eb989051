"""The errors of streams, in the order of their codes."""

from __future__ import annotations

from holdfast.core.errors import HoldfastError


class StreamError(HoldfastError):
    """Something about readers of the event log."""


class ReaderNotFound(StreamError):
    """There is no such reader of the event log.

    Consumers are registered by workers of the application that declares them, and by `app.migrate()`.
    """

    code = "HF180"
    http_status, exit_code = 404, 3
    fix = "list them with `holdfast streams list`"


class DuplicateReader(StreamError):
    """Two readers of the event log have the same name.

    A reader's position is kept under its name, so it has to be its own.
    """

    code = "HF181"
    http_status, exit_code = 409, 2
    fix = "give one of them another name="


class LineLost(StreamError):
    """Another process reads this line now, or an operator has set it elsewhere.

    What the handler wrote was rolled back; the process that holds the line takes the same events.
    """

    code = "HF182"
    http_status, exit_code = 409, 4
    fix = "nothing has to be done; if it happens often, a process stops responding for longer than its lease"
    retryable = True


class ReaderIsRun(StreamError):
    """A reader that processes run right now cannot be removed.

    They would register it again, from now on, and skip what it has not read.
    """

    code = "HF183"
    http_status, exit_code = 409, 4
    fix = "stop the workers that declare it, or remove it from the application first"
