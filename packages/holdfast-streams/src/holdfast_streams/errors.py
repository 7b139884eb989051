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


class InboxError(HoldfastError):
    """Something about messages of other systems."""


class DuplicateInbox(InboxError):
    """Two inboxes have the same name.

    What was received is remembered under an inbox's name, so it has to be its own.
    """

    code = "HF190"
    http_status, exit_code = 409, 2
    fix = "give one of them another name"


class InboxNotFound(InboxError):
    """There is no such inbox.

    Inboxes are registered by workers of the application that declares them, and by `app.migrate()`.
    """

    code = "HF191"
    http_status, exit_code = 404, 3
    fix = "list them with `holdfast inbox list`"


class SignatureInvalid(InboxError):
    """The sender of a message could not be verified.

    The signature is missing, does not fit the body, or is older than the replay window. Nothing was stored.
    """

    code = "HF192"
    http_status = 401
    fix = "compare the secret with the sender's, pass both while one replaces the other, and check the clocks"


class MessageUnreadable(InboxError):
    """A message cannot be read.

    Its body is not what the handler declares, or it has no id by which to recognise it.
    """

    code = "HF193"
    http_status = 400
    fix = "compare the message with the type in the handler's annotation"


class InboxHandlerFailed(InboxError):
    """The handler of an inbox failed.

    What it wrote was rolled back, and the message is not remembered: the sender is expected to send it again.
    """

    code = "HF194"
    http_status = 500
    fix = 'see the log of the process; if the sender does not send again, declare the inbox with on_error="park"'
    retryable = True


class BrokerAway(InboxError):
    """A broker cannot be reached.

    It is tried again with backoff. What it holds is not lost, and what was taken is acknowledged after its commit.
    """

    code = "HF195"
    http_status, exit_code = 503, 7
    fix = "check that the broker is running, and its address in the inbox"
    retryable = True


class InboxIsRun(InboxError):
    """An inbox whose broker is read right now cannot be removed.

    The processes that read it would register it again.
    """

    code = "HF196"
    http_status, exit_code = 409, 4
    fix = "stop the workers that declare it, or remove it from the application first"
