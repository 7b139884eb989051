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


class StreamAhead(StreamError):
    """A broker's stream has events that this database does not.

    The database was set back, by a restore or by a failover to a server that lacked the last commits, or another
    database writes to the same stream. The line waits: going on would mix two histories without anyone knowing.
    """

    code = "HF184"
    http_status, exit_code = 409, 4
    fix = "see which events they are with `holdfast streams lag`; then `holdfast streams rebase` the relay"


class NothingToRebase(StreamError):
    """No line of this relay waits because its stream is ahead.

    A rebase ends just that; it changes nothing else.
    """

    code = "HF185"
    http_status, exit_code = 409, 4
    fix = "see why lines wait with `holdfast streams lag`"


class BrokerAway(StreamError):
    """The broker of a relay or an inbox does not answer, or its stream takes nothing at the moment.

    Nothing is lost: events of a relay wait in the log, in order, and what an inbox has taken is acknowledged after its
    commit. Both continue by themselves once the broker is back.
    """

    code = "HF186"
    http_status, exit_code = 503, 7
    fix = "see that the broker runs and can be reached from the worker"
    retryable = True

    def __init__(self, message: str, state: str = "away", help: str | None = None) -> None:
        super().__init__(message, help=help)
        self.state = state


class StreamUnfit(StreamError):
    """The stream that a relay feeds is missing, or not configured as it has to be.

    A relay makes a stream that was never there. One that it has fed before, and one of other people, are left as they
    are: events wait in the log meanwhile.
    """

    code = "HF187"
    http_status, exit_code = 409, 2
    fix = "do what the message says; the relay continues by itself"
    retryable = True
    state = "unfit"


class EventRefused(StreamError):
    """The broker refuses an event for what it is, mostly for its size.

    The event is parked, and later events of its key are held behind it; the others go on.
    """

    code = "HF188"
    http_status, exit_code = 422, 1
    fix = "raise the limit and `holdfast streams retry`, or give the event up with `holdfast streams skip`"


class SecondWriter(StreamError):
    """Another process has written to this line of the stream meanwhile; the broker refused the write.

    The line is read again from what the stream has, so nothing is missing and nothing is there twice.
    """

    code = "HF189"
    http_status, exit_code = 409, 4
    fix = "nothing has to be done; if it happens often, a process stops responding for longer than its lease"
    retryable = True


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


class InboxIsRun(InboxError):
    """An inbox whose broker is read right now cannot be removed.

    The processes that read it would register it again.
    """

    code = "HF196"
    http_status, exit_code = 409, 4
    fix = "stop the workers that declare it, or remove it from the application first"


class InboxUnfit(BrokerAway):
    """The stream of an inbox cannot be read in the order of its keys.

    Such an inbox keeps itself how far it is, so the stream must keep what was read.
    """

    code = "HF197"
    http_status, exit_code = 409, 2
    fix = "read a stream whose retention is `limits`, or declare the inbox without order="


class NothingToRecreate(StreamError):
    """No line of this relay waits because its stream is missing.

    A relay creates a stream that was never there by itself. One that it has fed before is created again only when an
    operator says so, because what is older than the log keeps is not in it then.
    """

    code = "HF198"
    http_status, exit_code = 409, 4
    fix = "see why lines wait with `holdfast streams lag`"


class LineNotFound(StreamError):
    """A reader of the event log has no such line.

    The number of lines is that of the log, and fixed when the database is created.
    """

    code = "HF199"
    http_status, exit_code = 404, 3
    fix = "see the lines with `holdfast streams lag`"
