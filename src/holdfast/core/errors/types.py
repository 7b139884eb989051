"""HF02x: job types, handlers, and their inputs and outputs."""

from __future__ import annotations

from holdfast.core.errors.base import HoldfastError


class RegistryError(HoldfastError):
    """A job type, handler or subscription is invalid or missing."""


class UnknownJobType(RegistryError):
    """Unknown job type.

    A job of an unknown type would wait forever, so an unregistered name is rejected unless it is
    declared as handled by another service.
    """

    code = "HF020"
    fix = "register the type with @app.job, or correct the name"


class DuplicateJobType(RegistryError):
    """This job type is already registered.

    Each name belongs to exactly one handler in an application; with two, the handler would depend
    on import order.
    """

    code = "HF021"
    fix = "rename one of the two"


class HandlerInvalid(RegistryError):
    """The function is not a valid handler.

    A handler takes one parameter, the job (or a list of jobs for batch handlers). Inputs and
    outputs are checked against its annotations, so the names in them must be importable.
    """

    code = "HF026"
    fix = "write it as `def handler(job: Job[Input]) -> Output`, with names the module can resolve"


class InvalidName(RegistryError):
    """Invalid job type, event or handler name.

    Names appear in lists, filters, labels, URLs and `event/handler`, so only plain characters are
    allowed, at most 200.
    """

    code = "HF027"
    fix = "use letters, digits, dots, underscores, hyphens and colons, as in order.charge"


class SubscriptionNotFound(RegistryError):
    """No handler of this name subscribes to this event.

    Workers and `holdfast migrate --app` subscribe the handlers of their application. A subscription
    remains after its handler is removed from the code, until you remove it.
    """

    code = "HF028"
    fix = "see `holdfast events subscriptions` for existing subscriptions"


class PayloadError(HoldfastError):
    """An input or output cannot be written or read."""


class _TypeMismatch(PayloadError):
    def __init__(
        self, message: str, *, type_name: str = "", path: str = "$", help: str | None = None
    ) -> None:
        """Name the expected type and the path of the field that does not match it."""
        super().__init__(message, help=help)
        self.type_name = type_name
        self.path = path


class InputInvalid(_TypeMismatch):
    """The input does not match its type.

    Inputs are checked when a job is started, so the caller's transaction fails instead of the
    handler, and again when they are read, because types can change while jobs wait.
    """

    code = "HF022"
    fix = "pass a value of the declared type; give new fields a default while old jobs are queued"


class PayloadTooLarge(PayloadError):
    """The payload is too large.

    Inputs and outputs are stored in your database. Large ones slow down every reader, so there is a
    limit: 1 MiB of JSON by default.
    """

    code = "HF023"
    fix = "store the data elsewhere and pass its key, or raise the limit"


class PayloadNotEncodable(PayloadError):
    """The value cannot be stored exactly as JSON.

    NUL characters, lone surrogates, NaN and infinities, integers beyond 64 bits and nesting deeper
    than 200 levels are rejected on both SQLite and PostgreSQL instead of being silently changed.
    """

    code = "HF024"
    fix = "replace the value, or pass it as a string"


class OutputInvalid(_TypeMismatch):
    """The output does not match its type.

    A handler's return annotation is a contract with callers that wait for its chain; a value that
    breaks it fails the attempt.
    """

    code = "HF025"
    fix = "return a value of the annotated type, or correct the annotation"
