"""HF07x, HF08x and HF09x: invalid arguments, HTTP requests and commands, and missing permissions."""

from __future__ import annotations

from holdfast.core.errors.base import HoldfastError


class QueryError(HoldfastError):
    """A query is invalid."""


class FilterError(QueryError):
    """Invalid filter.

    Lists are filtered by terms like `state:failed type:mail.* age>5m`. Unknown keys and invalid
    values are rejected, because ignoring them would show, or change, too much.
    """

    code = "HF070"
    fix = 'write terms like `state:failed,cancelled type:mail.* age>5m error:"timed out"`'


class InvalidCursor(QueryError):
    """The cursor does not belong to this list.

    A cursor marks where the previous page of a list ended. It is valid only for the list and filter
    that returned it.
    """

    code = "HF071"
    fix = "start again at the first page"


class InvalidId(QueryError):
    """Invalid id.

    Jobs and chains have UUIDv7 ids, written with hyphens, for example
    0193a6f0-7c00-7000-8000-000000000000.
    """

    code = "HF072"
    fix = "copy the whole id from `holdfast jobs list -o id`"


class InvalidOption(HoldfastError):
    """An option has an invalid value.

    Options are checked before anything is sent to the database, so the caller's transaction stays
    usable.
    """

    code = "HF073"
    fix = "use a value in the range the message names"


class ScheduleError(HoldfastError):
    """A duration or schedule is invalid."""


class InvalidDuration(ScheduleError):
    """Invalid duration.

    Durations are numbers with units from days to milliseconds, plain numbers of seconds, or
    timedeltas; they are never negative.
    """

    code = "HF080"
    fix = 'write it like "30s", "5m", "1h30m", "250ms" or "2d"; in Python a number is seconds'


class InvalidSchedule(ScheduleError):
    """Invalid schedule.

    A cycle runs at an interval, or by a five-field cron expression in an IANA time zone.
    """

    code = "HF081"
    fix = 'write every="2m", or cron="17 3 * * *" with tz="America/Santiago"'


class RequestError(HoldfastError):
    """An HTTP request cannot be served."""


class BadRequest(RequestError):
    """Bad request.

    Parameters, headers and JSON bodies are checked before anything is changed; one that is missing,
    unknown or malformed is rejected by name.
    """

    code = "HF074"
    fix = "see the OpenAPI document at /api/v1/openapi.json"


class BodyTooLarge(RequestError):
    """The request body is too large.

    Requests are read into memory, so their size is checked first.
    """

    code = "HF075"
    fix = "send less, or raise the limit where the API is created"


class Changed(RequestError):
    """The resource has changed since you read it.

    A write with If-Match is applied only if the resource still has that version, so you cannot
    overwrite changes you have not seen.
    """

    code = "HF076"
    fix = "read it again, then retry"


class NoSuchRoute(RequestError):
    """Not found.

    The API does not serve this path or method.
    """

    code = "HF077"
    fix = "see the OpenAPI document at /api/v1/openapi.json"


class UnsupportedMedia(RequestError):
    """Unsupported media type.

    Bodies are JSON in UTF-8; other content types are rejected.
    """

    code = "HF078"
    fix = "send `Content-Type: application/json`"


class RateLimited(HoldfastError):
    """Too many requests.

    A manual tick costs the database as much as a scheduled one, so it is rate limited.
    """

    code = "HF098"
    fix = "wait as long as Retry-After says"
    retryable = True

    def __init__(self, message: str, after_s: int = 1) -> None:
        """Also give the number of seconds until the next request is accepted."""
        super().__init__(message)
        self.after_s = after_s


class Refused(HoldfastError):
    """Permission denied.

    Viewers see metadata; operators may also pause, retry, cancel and redrive; developers may also
    see payloads, start and delete.
    """

    code = "HF090"
    fix = "use a token with a role that allows it; see `holdfast token create --role`"


class Unauthenticated(HoldfastError):
    """Authentication required.

    The request has no token, or one that is unknown, expired or revoked.
    """

    code = "HF095"
    fix = "send `Authorization: Bearer <token>`; create one with `holdfast token create`"


class CrossSite(HoldfastError):
    """The request came from another site.

    Browsers send cookies with cross-site forms, so changes that rely on cookies are accepted only
    from the dashboard's own pages.
    """

    code = "HF096"
    fix = "make the change in the dashboard, or send a token as `Authorization: Bearer`"


class TokenNotFound(HoldfastError):
    """Token not found.

    Tokens are identified by id, never by their secret, which is shown only once.
    """

    code = "HF097"
    fix = "copy the id from `holdfast token list`"


class CommandError(HoldfastError):
    """A command was not carried out."""


class CommandUsage(CommandError):
    """Invalid command line.

    A command, option or argument is unknown, missing or malformed. Nothing was changed.
    """

    code = "HF091"
    fix = "see the command's `--help`, which starts with examples"


class AppNotLoaded(CommandError):
    """The application could not be loaded.

    Commands that run handlers take the application as `module:attribute`, import the module with
    the current directory on the path, and expect a Holdfast object with that name.
    """

    code = "HF092"
    fix = "pass it like `shop.jobs:app`, from the directory where `import shop.jobs` works"


class NotConfirmed(CommandError):
    """The change was not confirmed.

    A change to all jobs that match a filter first shows their number and a sample, and asks for
    confirmation. Nothing was changed.
    """

    code = "HF093"
    fix = "repeat it with --yes, or preview it with --dry-run"


class CheckNotMet(CommandError):
    """A check failed.

    `holdfast status --fail-if` compares figures of the queue with limits, so monitors and pipelines
    can act on its exit code.
    """

    code = "HF094"
    fix = "see `holdfast status` for all figures"


class SystemRefused(CommandError):
    """The operating system rejected what a command needs.

    A disk may be full, a directory may not be writable, or a file may have been removed meanwhile.
    """

    code = "HF099"
    fix = "fix what the message names, then run the command again"
