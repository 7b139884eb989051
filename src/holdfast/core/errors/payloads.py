"""HF02x: job types, handlers, and the inputs and outputs they exchange."""

from __future__ import annotations

from holdfast.core.errors.base import HoldfastError


class RegistryError(HoldfastError):
    """Something is wrong with the registered job types or handlers."""


class UnknownJobType(RegistryError):
    """No job type of this name is registered.

    A job of an unknown type would wait for ever, so a name that is neither registered here nor
    declared as belonging to another service is refused.
    """

    code = "HF020"
    fix = "register the type with @app.job, or correct the name"


class DuplicateJobType(RegistryError):
    """A job type of this name is registered already.

    A name belongs to exactly one handler of an application; a second registration would make it
    a matter of import order which of the two runs.
    """

    code = "HF021"
    fix = "give one of the two another name"


class HandlerInvalid(RegistryError):
    """The function cannot serve as a handler.

    A handler takes one parameter, the job (or a list of jobs for batch handlers). Its annotations
    say which input and output types are checked, so the names in them must be importable.
    """

    code = "HF026"
    fix = "write it as `def handler(job: Job[Input]) -> Output` with names the module can resolve"


class InvalidName(RegistryError):
    """The text cannot be the name of a job type, event or handler.

    Names are read by people in lists, filters, labels and URLs and stand between `event/handler`,
    so they consist of plain characters only, at most 200 of them.
    """

    code = "HF027"
    fix = "use letters, digits, dots, underscores, hyphens and colons, as in order.charge"


class SubscriptionNotFound(RegistryError):
    """No handler of this name subscribes to this event.

    Workers and `holdfast migrate --app` subscribe the handlers of their application. A subscription
    stays when its handler is removed from the code, until somebody removes it.
    """

    code = "HF028"
    fix = "see `holdfast events subscriptions` for those that exist"


class PayloadError(HoldfastError):
    """An input or an output cannot be written or read."""


class _WrongShape(PayloadError):
    def __init__(
        self, message: str, *, type_name: str = "", path: str = "$", help: str | None = None
    ) -> None:
        """Name the expected type and the path of the field that does not fit it."""
        super().__init__(message, help=help)
        self.type_name = type_name
        self.path = path


class InputInvalid(_WrongShape):
    """The input does not have the declared shape.

    Inputs are checked when a job is started, so that the caller's transaction fails instead of the
    handler, and again when they are read, because types change while jobs wait.
    """

    code = "HF022"
    fix = "pass a value of the declared type; give new fields a default while old jobs wait"


class PayloadTooLarge(PayloadError):
    """The payload is larger than the limit.

    Inputs and outputs live in the database beside the rows of the application. Large ones slow
    every reader down, so there is a limit, 1 MiB of JSON unless it was changed.
    """

    code = "HF023"
    fix = "store the data elsewhere and pass its key, or raise the limit"


class PayloadNotEncodable(PayloadError):
    """The value has no JSON form that both databases keep exactly.

    NUL characters, lone surrogates, NaN and infinities, integers beyond 64 bits and nesting deeper
    than 200 levels are refused alike on SQLite and PostgreSQL, instead of being changed on the way.
    """

    code = "HF024"
    fix = "replace the value, or pass it as a string that says the same"


class OutputInvalid(_WrongShape):
    """The output does not have the declared shape.

    The return annotation of a handler is a promise to those who wait for its chain; a value that
    breaks it fails the attempt instead of surprising them.
    """

    code = "HF025"
    fix = "return a value of the annotated type, or correct the annotation"
