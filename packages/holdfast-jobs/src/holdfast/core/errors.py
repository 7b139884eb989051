"""Every error Holdfast raises: one class per code, grouped by tens, each with title and fix.

The first line of a class says its parent, its code, and how it is answered; the reference draws the tree of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from inspect import cleandoc
from typing import Any, ClassVar, NamedTuple, TypedDict, Unpack

__all__ = [
    "Aborted", "AlreadyCompleting", "AppNotLoaded", "AttemptError", "BadRequest", "BodyTooLarge", "Busy",
    "ChainCancelled", "ChainDeleted", "ChainError", "ChainFailed", "ChainNotFound", "Changed", "CheckNotMet",
    "ChildFailed", "CircularWait", "CommandError", "CommandUsage", "ConfigError", "ConfinementUnsupported",
    "ConnectionClosed", "ContextInvalid", "CopiedDatabase", "CrossSite", "CycleError", "CycleNotFound",
    "DatabaseBusy", "DatabaseError", "DatabaseReadOnly", "DatabaseUnreachable", "DuplicateCycle",
    "DuplicateJobType", "Explanation", "FilesUnknown", "FilterError", "HandlerInvalid", "HeartbeatTooSlow",
    "HoldfastError", "InputInvalid", "InputUnreadable", "InvalidCursor", "InvalidDuration", "InvalidId",
    "InvalidIdentifier", "InvalidName", "InvalidOption", "InvalidSchedule", "JobNotFound", "KeyConflict",
    "LeaseLost", "MigrationBlocked", "MissingExtra", "NoConnection", "NoSuchRoute", "NoTransaction", "NotConfirmed",
    "OutputInvalid", "PayloadError", "PayloadNotEncodable", "PayloadTooLarge", "Permanent", "QueryError",
    "RateLimited", "ReaperTooSlow", "Refused", "RegistryError", "RequestError", "RoleRefused", "ScheduleError",
    "SchemaChanged", "SchemaTooNew", "SchemaTooOld", "SealBroken", "SealError", "SealKeyMissing",
    "ShardPairInvalid", "ShutdownTooLong", "SignalTimeout", "StepConflict", "StepError", "StepFailed",
    "StepUnreadable", "StepsRefused", "StillReferenced", "StreamsFull", "SubscriptionNotFound", "SystemRefused",
    "TokenNotFound", "TooManySteps", "TooManyStreams", "TransactionAborted", "TransactionError", "Unauthenticated",
    "UnknownJobType", "UnknownVariable", "UnsafeBind", "UnsupportedConnection", "UnsupportedMedia", "UnusableUrl",
    "WaitTimeout", "WorkerNotFound", "WrongDatabase", "WrongState", "explanations",
]  # fmt: skip


NO_ROOM_SQLSTATE = "53300"
NO_ROOM_WORDS = (
    "too many clients",
    "too many connections",
    "connection slots are reserved",
    "no more connections allowed",
)
"""How PostgreSQL and PgBouncer refuse a connection that they have no room for; most drivers pass on only the words."""


def words_of(error: object) -> str:
    """Return what an error says, whatever happens when it is asked."""
    try:
        return str(error)
    except BaseException as worse:
        return f"its text could not be produced: {type(worse).__name__}"


class ErrorFacts(TypedDict, total=False):
    """What an error's class says in its first line."""

    code: str
    retryable: bool
    http_status: int
    exit_code: int


class HoldfastError(Exception):
    """An error with a code, a one-line message and its fix.

    Subclasses with a code document themselves: the docstring's first line is the title, its second
    paragraph explains why the error exists, and `fix` is the general remedy. What is `retryable` is
    worth another attempt when one ends with it.
    """

    code: ClassVar[str] = ""
    fix: ClassVar[str] = ""
    retryable: ClassVar[bool] = False

    http_status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1

    def __init_subclass__(cls, **facts: Unpack[ErrorFacts]) -> None:
        """Set what a class says of itself in its first line, where it differs from its parent.

        That is its code, whether it is retryable, and how it is answered: the status over HTTP, the exit code of a
        command. A class without a code groups others.
        """
        for name, value in facts.items():
            setattr(cls, name, value)

    def __init__(
        self,
        message: object,
        *,
        help: str | None = None,
        details: Sequence[str] = (),
        rule: str | None = None,
    ) -> None:
        """Describe one occurrence; without `help` the class's general `fix` is shown."""
        super().__init__(message)
        # Handlers also write `raise Permanent(error)` and mean the text of that error.
        self.message = message if isinstance(message, str) else words_of(message)
        self.help = self.fix if help is None else help
        self.details = tuple(details)
        self.rule = rule

    def __str__(self) -> str:
        """Return code, message and help on one line."""
        text = f"[{self.code}] {self.message}" if self.code else self.message
        return " ".join((f"{text} ({self.help})" if self.help else text).split())

    def render(self) -> str:
        """Return the block that terminals show: message, details, rule and help."""
        lines = [f"error[{self.code}]: {self.message}"]
        lines += [f"  {line}" for line in self.details]
        if self.rule:
            lines.append(f"  rule: {self.rule}")
        if self.help:
            lines.append(f"  help: {self.help}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[Any, ...]:
        """Make the error picklable although its subclasses have different constructors."""
        return _restore, (type(self), self.args, self.__dict__)


def _restore(
    kind: type[HoldfastError], args: tuple[Any, ...], attributes: dict[str, Any]
) -> HoldfastError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


def nearest(name: str, known: Iterable[str], cutoff: float = 0.5) -> str:
    """Return "did you mean …?" for the nearest known name, or nothing when none is near."""
    # Only a mistake needs it, and every command would pay for its import.
    from difflib import get_close_matches

    # Dashes, which all options have in common, do not make two of them alike.
    bare = {each.lstrip("-"): each for each in known}
    close = get_close_matches(name.lstrip("-"), list(bare), n=1, cutoff=cutoff)
    return f"did you mean {bare[close[0]]}?" if close else ""


class Explanation(NamedTuple):
    """What `holdfast explain` says about one code."""

    code: str
    name: str
    title: str
    text: str
    fix: str


def explanations(root: type[HoldfastError] = HoldfastError) -> dict[str, Explanation]:
    """Return the catalogue of all codes below `root`, sorted by code."""
    found: dict[str, Explanation] = {}
    for kind in root.__subclasses__():
        if "code" in kind.__dict__:
            found[kind.code] = _explanation(kind)
        found |= explanations(kind)
    return dict(sorted(found.items()))


def _explanation(kind: type[HoldfastError]) -> Explanation:
    title, _, text = cleandoc(kind.__doc__ or kind.__name__).partition("\n\n")
    return Explanation(
        code=kind.code,
        name=kind.__name__,
        title=title.removesuffix("."),
        text=" ".join(text.split()),
        fix=kind.fix,
    )


class ConfigError(HoldfastError, code="HF010", exit_code=2):
    """A setting has an invalid value.

    Every setting is read once, at startup, from arguments, the environment or a file. Its type and
    range are checked before any job is claimed.
    """

    fix = "correct the value; `holdfast config show --origin` shows where each one comes from"


class UnusableUrl(ConfigError, code="HF011"):
    """The database URL is invalid.

    Holdfast accepts `sqlite:///path` and `postgresql://user@host/database` URLs. Anything else, or
    a URL without a database, is rejected before connecting.
    """

    fix = "set HOLDFAST_URL to sqlite:///holdfast.db or postgresql://user@host/database"


class MissingExtra(ConfigError, code="HF012", http_status=501):
    """A required package is not installed.

    The base installation includes SQLite support and the command line. Drivers, notifiers,
    telemetry and the web dashboard are extras, so you install only what you use.
    """

    fix = "install the extra the message names; from a folder of wheels, add --find-links FOLDER"


class InvalidIdentifier(ConfigError, code="HF013"):
    """A schema name is not a plain identifier.

    Identifiers cannot be sent as query parameters. They are always quoted, and only plain ones are
    accepted: lowercase letters, digits and underscores, at most 48 characters, and not starting
    with pg_, which PostgreSQL reserves.
    """

    fix = "use a name of lowercase letters, digits and underscores that starts with a letter"


class ShardPairInvalid(ConfigError, code="HF014"):
    """Shard index and shard count are inconsistent.

    Tenants are divided between replicas by hash modulo the count. If only one of the two is set, or
    the index is not below the count, some tenants would have no replica.
    """

    fix = "set both, with 0 <= index < count, or neither"


class UnsafeBind(ConfigError, code="HF015"):
    """The API would be reachable without authentication.

    Without tokens or an authenticate hook, everyone who can reach the API has full access, so it
    only listens on loopback addresses.
    """

    fix = "create a token with `holdfast token create`, or listen on 127.0.0.1"


class UnknownVariable(ConfigError, code="HF016"):
    """An environment variable with a Holdfast prefix is unknown.

    A misspelled setting would silently keep its default, so unknown names with a Holdfast prefix
    are reported with the closest match.
    """

    fix = "correct the name, or remove the variable"


class HeartbeatTooSlow(ConfigError, code="HF017", http_status=400):
    """The heartbeat is too slow for the lease.

    A worker extends its leases at every heartbeat. If the heartbeat is shorter than a third of the
    shortest lease, two heartbeats can be lost before another worker may take over the job.
    """

    fix = "lower the heartbeat below a third of the shortest lease, or leave it unset"


class ShutdownTooLong(ConfigError, code="HF018", http_status=400):
    """The shutdown timeout is longer than the lease.

    A stopping worker gives its handlers this long to finish. If that is longer than the shortest
    lease, a worker that stalls while stopping loses its leases first.
    """

    fix = "lower the shutdown timeout to at most the shortest lease, or leave it unset"


class ReaperTooSlow(ConfigError, code="HF019", http_status=400):
    """The reaper interval is too long for the lease.

    Jobs of a dead worker become available again within the lease plus one reaper interval. An
    interval as long as the lease would double that time, so it must be shorter.
    """

    fix = "lower the reaper interval below the shortest lease"


class RegistryError(HoldfastError, http_status=400, exit_code=2):
    """A job type, handler or subscription is invalid or missing."""


class UnknownJobType(RegistryError, code="HF020", http_status=404, exit_code=3):
    """Unknown job type.

    A job of an unknown type would wait forever, so an unregistered name is rejected unless it is
    declared as handled by another service.
    """

    fix = "register the type with @app.job, or correct the name"


class DuplicateJobType(RegistryError, code="HF021"):
    """This job type is already registered.

    Each name belongs to exactly one handler in an application; with two, the handler would depend
    on import order.
    """

    fix = "rename one of the two"


class HandlerInvalid(RegistryError, code="HF026"):
    """The function is not a valid handler.

    A handler takes one parameter, the job (or a list of jobs for batch handlers). Inputs and
    outputs are checked against its annotations, so the names in them must be importable.
    """

    fix = "write it as `def handler(job: Job[Input]) -> Output`, with names the module can resolve"


class InvalidName(RegistryError, code="HF027"):
    """Invalid job type, event or handler name.

    Names appear in lists, filters, labels, URLs and `event/handler`, so only plain characters are
    allowed, at most 200.
    """

    fix = "use letters, digits, dots, underscores, hyphens and colons, as in order.charge"


class SubscriptionNotFound(RegistryError, code="HF028", http_status=404, exit_code=3):
    """No handler of this name subscribes to this event.

    Workers and `holdfast migrate --app` subscribe the handlers of their application. A subscription
    remains after its handler is removed from the code, until you remove it.
    """

    fix = "see `holdfast events subscriptions` for existing subscriptions"


class PayloadError(HoldfastError, http_status=422, exit_code=2):
    """An input or output cannot be written or read."""


class _TypeMismatch(PayloadError):
    def __init__(
        self, message: str, *, type_name: str = "", path: str = "$", help: str | None = None
    ) -> None:
        """Name the expected type and the path of the field that does not match it."""
        super().__init__(message, help=help)
        self.type_name = type_name
        self.path = path


class InputInvalid(_TypeMismatch, code="HF022"):
    """The input does not match its type.

    Inputs are checked when a job is started, so the caller's transaction fails instead of the
    handler, and again when they are read, because types can change while jobs wait.
    """

    fix = "pass a value of the declared type; give new fields a default while old jobs are queued"


class PayloadTooLarge(PayloadError, code="HF023", http_status=413):
    """The payload is too large.

    Inputs and outputs are stored in your database. Large ones slow down every reader, so there is a
    limit: 1 MiB of JSON by default.
    """

    fix = "store the data elsewhere and pass its key, or raise the limit"


class PayloadNotEncodable(PayloadError, code="HF024"):
    """The value cannot be stored exactly as JSON.

    NUL characters, lone surrogates, NaN and infinities, integers beyond 64 bits and nesting deeper
    than 200 levels are rejected on both SQLite and PostgreSQL instead of being silently changed.
    """

    fix = "replace the value, or pass it as a string"


class OutputInvalid(_TypeMismatch, code="HF025"):
    """The output does not match its type.

    A handler's return annotation is a contract with callers that wait for its chain; a value that
    breaks it fails the attempt.
    """

    fix = "return a value of the annotated type, or correct the annotation"


class InputUnreadable(InputInvalid, code="HF029"):
    """This code cannot read the input of a waiting job.

    The job was written by code with another version of the input, or its type has changed since. It
    waits without using up an attempt, until a worker starts with code that can read it. It fails only
    after HOLDFAST_UNHANDLED_AFTER_MS, if that is set.
    """

    fix = "give new fields a default, or add an upgrade; test it with `holdfast types check APP` before you deploy"

    def __init__(
        self,
        message: str,
        *,
        type_name: str = "",
        path: str = "$",
        job_id: str | None = None,
        help: str | None = None,
    ) -> None:
        """`job_id` is the job whose handler asked for its input."""
        super().__init__(message, type_name=type_name, path=path, help=help)
        self.job_id = job_id


class StepUnreadable(InputUnreadable, code="HF153"):
    """This code does not fit the recorded steps of a waiting job.

    A step was recorded with other arguments than the code passes now, as another kind of step, or with a
    result that the code cannot read; or a signal brought data that does not fit what the code waits for. Nothing
    is lost: the job waits without using up an attempt, until a worker starts with code that fits. The step of a
    signal's data is wait:NAME.
    """

    fix = "rename the step, branch by job.started_version, use @app.upgrade(…, step=…), or rerun the chain from a step"


class SealError(PayloadError):
    """A sealed payload cannot be opened, or a payload cannot be sealed."""

    def __init__(
        self, message: str, *, key: str = "", job_id: str | None = None, help: str | None = None
    ) -> None:
        """`key` is the id of the key it is sealed with; `job_id` the job whose handler needs it."""
        super().__init__(message, help=help)
        self.key = key
        self.job_id = job_id


class SealKeyMissing(SealError, code="HF120"):
    """This process does not have the key of a sealed payload.

    Sealed inputs and outputs are encrypted in the database. A job whose input this worker cannot open
    does not fail: it waits, without using up an attempt, until a worker starts with the key.
    """

    fix = "give this process the key, in HOLDFAST_SEAL_KEYS or with Holdfast(seal=…)"


class SealBroken(SealError, code="HF121"):
    """A sealed payload cannot be opened.

    It was changed, or copied from another job or chain, or this process has a different key under
    that id. A job with such an input waits as it does for a missing key.
    """

    fix = "compare the keys of this id; if they are the same, the payload was changed: cancel the job, start another"


class FilesUnknown(SealError, code="HF122"):
    """The payload is in a file, and this process does not know where the files are.

    A job with such an input waits, without using up an attempt, until a worker that knows takes it.
    """

    fix = "call add_large_values(app, files=…) in this process too"


class TransactionError(HoldfastError):
    """The given transaction or connection cannot be used."""


class NoTransaction(TransactionError, code="HF030"):
    """The connection has no open transaction.

    A job is written in your transaction, so it exists if and only if your rows do. A connection in
    autocommit mode would commit it separately.
    """

    fix = "open a transaction first"


class TransactionAborted(TransactionError, code="HF031", retryable=True):
    """The transaction has already failed.

    An earlier statement failed, and the database accepts no more statements until the transaction
    or its savepoint is rolled back.
    """

    fix = "roll back to a savepoint, or start a new transaction"


class ConnectionClosed(
    TransactionError, code="HF032", retryable=True, http_status=503, exit_code=7
):
    """The connection is closed.

    The connection was closed or lost; nothing was written.
    """

    fix = "open a new connection and repeat the whole transaction"


class UnsupportedConnection(TransactionError, code="HF033"):
    """Unsupported connection type.

    Holdfast writes through connections of psycopg, asyncpg, SQLAlchemy, Django and sqlite3, and
    through its own transactions.
    """

    fix = "pass one of the types the message lists, or use `with app.transaction() as tx`"


class KeyConflict(TransactionError, code="HF034", retryable=True, http_status=409):
    """Another transaction started the same key at the same time.

    Your transaction runs in REPEATABLE READ or SERIALIZABLE and cannot see the chain that another
    transaction just started with this key. If you retry, it will.
    """

    fix = "retry the transaction, or run it in READ COMMITTED"


class DatabaseError(HoldfastError, http_status=503, exit_code=7):
    """The database cannot be used."""


class WrongDatabase(DatabaseError, code="HF040"):
    """The database does not contain the schema.

    Either the migrations have not been run yet, or this connection points to a different database.
    """

    fix = "run `holdfast migrate` for this database, or connect to the right one"


class SchemaTooOld(DatabaseError, code="HF041"):
    """The schema is older than this version needs.

    This version expects tables or columns that a migration adds. Run migrations before you start
    workers of the new version; workers of the previous version keep running.
    """

    fix = "run `holdfast migrate`"


class SchemaTooNew(DatabaseError, code="HF042"):
    """The schema is newer than this version supports.

    A newer version of Holdfast migrated the database and no longer supports this version.
    """

    fix = "upgrade holdfast here to the version that migrated the database"


class SchemaChanged(DatabaseError, code="HF047"):
    """A migration differs from the one that was applied.

    The database stores a checksum of every migration. This code has a different migration under the
    same number, so the tables may not be what it expects.
    """

    fix = "use the version of holdfast that migrated the database, or migrate a new one"


class DatabaseUnreachable(DatabaseError, code="HF043", retryable=True):
    """The database is unreachable.

    No connection could be made, or it was lost. Workers retry with backoff; callers get this error
    immediately.
    """

    fix = "check that the server is running and that HOLDFAST_URL is right"


class DatabaseReadOnly(DatabaseUnreachable, code="HF048", retryable=True):
    """The database is read-only.

    The transaction, role or database is read-only, or the server is a standby. A SQLite connection
    may have been opened read-only, or the file may be write-protected.
    """

    fix = "use a read-write transaction, and connect to the primary"


class NoConnection(DatabaseUnreachable, code="HF140", retryable=True):
    """No connection is left.

    The server, the role, the database or the pooler allows no more connections, or all of the process's own
    are in use. Workers share the connections they have and claim only jobs they have a connection for;
    an attempt that found none is not counted.
    """

    fix = "raise max_connections, or run fewer workers: `holdfast doctor` says what they need"


class DatabaseBusy(DatabaseError, code="HF044", retryable=True):
    """The database was locked for too long.

    Another transaction held a lock for longer than the timeout. SQLite allows one writer per file,
    so long write transactions delay all others.
    """

    fix = "retry, and keep transactions short"


class RoleRefused(DatabaseError, code="HF046", exit_code=4):
    """The database role lacks a privilege.

    PostgreSQL rejected a statement of the connection's role. Producers, workers, operators and
    readers need different privileges, and a new version may need more.
    """

    fix = "grant the role what `holdfast grants` prints for it, or use another; see `holdfast explain HF046`"


class CopiedDatabase(DatabaseError, code="HF045", exit_code=4):
    """The database is a copy of another one.

    A database stores its name, its server, the addresses it is used at and HOLDFAST_ENVIRONMENT.
    Jobs in a copy with another one do not run, so a test copy sends no mail. A database that was
    moved, or upgraded with pg_upgrade, looks the same.
    """

    fix = "stop the workers of the original if this replaces it, then run `holdfast adopt` to allow jobs to run here"


class MigrationBlocked(DatabaseError, code="HF133", retryable=True):
    """A migration waited too long for other transactions.

    A table can be changed only while no transaction uses it. Holdfast tries for short moments, so that
    nobody queues behind it, until `--wait` is over. What was done stays done.
    """

    fix = "migrate again, which continues where it stopped, or wait longer: `holdfast migrate --wait 1h`"


class AttemptError(HoldfastError):
    """An attempt cannot continue, or chooses not to."""


class LeaseLost(AttemptError, code="HF050", retryable=True):
    """The attempt no longer holds its job.

    The lease expired and another worker took the job, or it was completed, cancelled or deleted
    from outside. Every write must match the lease's token, and this one no longer does: nothing was
    written.
    """

    fix = "stop; effects outside the database must be safe to repeat"

    def __init__(self, reason: str, message: str = "the lease was lost") -> None:
        """Give the `reason` the lease was lost."""
        super().__init__(f"{message}: {reason}")
        self.reason = reason


class Aborted(AttemptError, code="HF051", retryable=True):
    """The attempt was asked to stop.

    `job.checkpoint()` raises this when the attempt lost its lease, timed out or was cancelled, or
    when the worker is shutting down.
    """

    fix = "let the error leave the handler; the worker handles the job from there"

    def __init__(self, reason: str, message: str = "the attempt was asked to stop") -> None:
        """Give the `reason` the attempt has to stop."""
        super().__init__(f"{message}: {reason}")
        self.reason = reason


class Busy(AttemptError, code="HF052", retryable=True):
    """The handler is busy.

    Raised by a handler whose resource is overloaded: the job is re-queued without using an attempt,
    and this process claims no more jobs of the type until the delay is over. With key=True, no process
    claims another job of the same key until then; other keys are unaffected.
    """

    fix = "nothing to fix: the job runs again after the delay"

    def __init__(
        self,
        delay: str | float | timedelta | datetime | None = None,
        message: str = "the handler is busy",
        *,
        at: datetime | None = None,
        key: bool = False,
    ) -> None:
        """Ask for a `delay` ("30s", seconds, a timedelta), or for the time of the next attempt (with a time zone).

        With `key`, it holds for the job's key in the whole fleet; without a limited type, as if it was not given.
        """
        # Durations raise errors of this package, so they can be imported only once it is complete.
        from holdfast.core.duration import format_duration
        from holdfast.core.instants import to_datetime
        from holdfast.core.outcome import pause_of

        self.key = key
        self.delay_ms, self.at = pause_of(delay, at)
        until = to_datetime(self.at)
        when = f"in {format_duration(self.delay_ms)}" if until is None else f"at {until:%FT%TZ}"
        # The reason of a key's pause is read while the pause passes, beside the time that is left.
        super().__init__(message if key else f"{message}, next attempt {when}", help="")


class Permanent(AttemptError, code="HF053"):
    """The job failed permanently.

    Raised by a handler when retrying cannot help: the job becomes a dead letter immediately, even
    if attempts are left.
    """

    fix = "fix the cause, then redrive the dead letter"

    def __init__(self, message: object = "failed permanently", *, help: str = "") -> None:
        """Give the cause, as text or an error; the text is the handler's own, so the general fix is not added to it."""
        super().__init__(message, help=help)


class AlreadyCompleting(AttemptError, code="HF054"):
    """`prepare` or `complete` was called out of order.

    A handler in stages may call `prepare` once and then `complete` once; `complete` ends the
    attempt, so nothing can follow it.
    """

    fix = "use at most one `job.prepare()` followed by one `job.complete()`"


class CircularWait(AttemptError, code="HF055"):
    """The next job would wait for a chain that waits for this one.

    A handler continued its chain with a job whose blockers, directly or indirectly, wait for that
    chain. It would be a deadlock, so the job failed.
    """

    fix = "remove the blocker that causes the cycle; see `holdfast chains show`"


class StepError(AttemptError):
    """A step of a durable function did not go well."""


class StepFailed(StepError, code="HF150"):
    """A step failed.

    The function that the step called raised an error, and so did its last retry. That is recorded: every
    replay raises this again. After a redrive the step runs again.
    """

    fix = "catch StepFailed to go on without the step's result"

    def __init__(self, step: str, kind: str, text: str) -> None:
        """Give the `step` that failed, and the `kind` and `text` of the error that it failed with."""
        super().__init__(f"step {step} failed with {kind}: {text}", help="")
        self.step = step
        self.kind = kind
        self.text = text


class ChildFailed(StepError, code="HF151"):
    """A chain that a durable function called did not complete.

    It failed or was cancelled. Every replay of the calling function raises this again.
    """

    fix = "catch ChildFailed to go on without its result"

    def __init__(self, chain_id: str, state: str, error: str | None) -> None:
        """Give the chain, its `state` and its `error`."""
        reason = f": {error}" if error else ""
        super().__init__(f"chain {chain_id} {'is ' if state == 'cancelled' else ''}{state}{reason}")
        self.chain_id = chain_id
        self.state = state
        self.error = error


class SignalTimeout(StepError, code="HF152"):
    """No signal came in time.

    `job.wait_for` waited for as long as its timeout allows. Every replay raises this again.
    """

    fix = "catch SignalTimeout to go on without the signal, or allow more time"

    def __init__(self, signal: str, key: str) -> None:
        """Give the `signal` and `key` that were waited for."""
        super().__init__(f"no signal {signal} {key} came in time".replace("  ", " "))
        self.signal = signal
        self.key = key


class StepsRefused(StepError, code="HF154"):
    """This handler cannot have steps.

    Atomic handlers, batch handlers, handlers in their own process and `on_failed` are run whole; there
    is nothing between their steps that could be continued.
    """

    fix = "use a plain handler that takes one job, and atomic=True on the steps that need a transaction"


class StepConflict(StepError, code="HF155"):
    """Two steps have the same identity.

    A step is known by its name and its key, or by how often its name was used before. Of two steps of one
    name that run at the same time, a replay could not tell which is which.
    """

    fix = "give each of them key=, such as an id of what it handles"


class TooManySteps(StepError, code="HF156"):
    """A job has too many steps, or they recorded too much.

    All records of a job are read again with each of its attempts.
    """

    fix = "continue with a new job: return Continue(…), or keep the position of a long loop with job.cursor"


class ChainError(HoldfastError):
    """An operation on a chain, job or worker is not possible."""


class ChainNotFound(ChainError, code="HF060", http_status=404, exit_code=3):
    """No chain has this id.

    The id was never used, its transaction was rolled back or is not committed yet, or the chain was
    deleted or archived.
    """

    fix = "check the id; a chain's id is the id of its first job"


class JobNotFound(ChainError, code="HF061", http_status=404, exit_code=3):
    """No job has this id.

    The id was never used, its transaction was rolled back or is not committed yet, or the job was
    deleted or archived.
    """

    fix = "check the id with `holdfast jobs list`"


class ChainFailed(ChainError, code="HF062", http_status=422):
    """The chain failed.

    One of its jobs failed permanently, so the chain has no output. It remains in the dead letters
    until it is redriven or dropped.
    """

    fix = "see `holdfast chains show` for the cause, fix it, then run `holdfast dead redrive`"


class ChainCancelled(ChainError, code="HF063", http_status=422):
    """The chain was cancelled.

    An operator or one of its handlers cancelled the chain before it had an output.
    """

    fix = "start it again if you still need it"


class ChainDeleted(ChainError, code="HF064", http_status=410, exit_code=3):
    """The chain was deleted.

    The chain existed when the wait started and was deleted before it finished.
    """

    fix = "start it again if you still need it"


class WaitTimeout(ChainError, code="HF065", retryable=True, exit_code=124):
    """Timed out waiting for the chain.

    Only the wait ended: the chain continues, and you can read its output later.
    """

    fix = "wait again, with a longer timeout"


class StillReferenced(ChainError, code="HF066", retryable=True, http_status=409, exit_code=4):
    """Other jobs wait for the chain.

    Deleting a chain that blocks others would leave them waiting forever, so it is rejected with a
    list of those jobs.
    """

    fix = "wait until they have finished, delete their chains first, or delete with cascade"

    def __init__(self, message: str, references: Sequence[str]) -> None:
        """List the ids of the jobs that still wait."""
        super().__init__(message, details=[f"job {job_id} waits for it" for job_id in references])
        self.references = tuple(references)


class WrongState(ChainError, code="HF067", http_status=409, exit_code=4):
    """Not allowed in this state.

    The job's current state does not allow this action.
    """

    fix = "see `holdfast jobs show` for the state and the actions it allows"


class WorkerNotFound(ChainError, code="HF069", http_status=404, exit_code=3):
    """No live worker has this id.

    A worker gets a new id each time it starts. Stopped or unresponsive workers cannot be drained.
    """

    fix = "see `holdfast workers list` for live workers"


class CycleError(HoldfastError):
    """An operation on a cycle is not possible."""


class CycleNotFound(CycleError, code="HF082", http_status=404, exit_code=3):
    """No cycle has this name.

    Workers register their cycles when they start. A cycle that no worker has registered yet cannot
    be paused, resumed or run.
    """

    fix = "check the name with `holdfast cycles list`; one that is new is registered by its worker's first tick"


class DuplicateCycle(CycleError, code="HF083"):
    """Two cycles have the same name.

    The name identifies the cycle's lock, its slots, its runs and its runner in a tick, so it must
    be unique among cycles and runners.
    """

    fix = "rename one of them"


class QueryError(HoldfastError, http_status=400, exit_code=2):
    """A query is invalid."""


class FilterError(QueryError, code="HF070"):
    """Invalid filter.

    Lists are filtered by terms like `state:failed type:mail.* age>5m`. Unknown keys and invalid
    values are rejected, because ignoring them would show, or change, too much.
    """

    fix = 'write terms like `state:failed,cancelled type:mail.* age>5m error:"timed out"`'


class InvalidCursor(QueryError, code="HF071"):
    """The cursor does not belong to this list.

    A cursor marks where the previous page of a list ended. It is valid only for the list and filter
    that returned it.
    """

    fix = "start again at the first page"


class InvalidId(QueryError, code="HF072"):
    """Invalid id.

    Jobs and chains have UUIDv7 ids, written with hyphens, for example
    0193a6f0-7c00-7000-8000-000000000000.
    """

    fix = "copy the whole id from `holdfast jobs list -o id`"


class InvalidOption(HoldfastError, code="HF073", http_status=400, exit_code=2):
    """An option has an invalid value.

    Options are checked before anything is sent to the database, so the caller's transaction stays
    usable.
    """

    fix = "give it a value as the message says"


class ContextInvalid(InvalidOption, code="HF201"):
    """A job's context is not a flat mapping of short texts.

    What a job was started in is stored with it, inherited by what it starts, and found by filters
    such as `context.tenant:acme`. It has up to 16 values of up to 200 characters.
    """

    fix = 'return texts under short names, as in {"tenant": "acme", "locale": "es"}'


class ScheduleError(HoldfastError, http_status=400, exit_code=2):
    """A duration or schedule is invalid."""


class InvalidDuration(ScheduleError, code="HF080"):
    """Invalid duration.

    Durations are numbers with units from days to milliseconds, plain numbers of seconds, or
    timedeltas; they are never negative.
    """

    fix = 'write it like "30s", "5m", "1h30m", "250ms" or "2d"; in Python a number is seconds'


class InvalidSchedule(ScheduleError, code="HF081"):
    """Invalid schedule.

    A cycle runs at an interval, or by a five-field cron expression in an IANA time zone.
    """

    fix = 'write every="2m", or a cron expression of five fields: cron="17 3 * * *"'


class RequestError(HoldfastError, http_status=400):
    """An HTTP request cannot be served."""


class BadRequest(RequestError, code="HF074"):
    """Bad request.

    Parameters, headers and JSON bodies are checked before anything is changed; one that is missing,
    unknown or malformed is rejected by name.
    """

    fix = "see the OpenAPI document at /api/v1/openapi.json"


class BodyTooLarge(RequestError, code="HF075", http_status=413):
    """The request body is too large.

    Requests are read into memory, so their size is checked first.
    """

    fix = "send less, or raise the limit: body_limit= of the API, limit= of an inbox"


class Changed(RequestError, code="HF076", http_status=412):
    """The resource has changed since you read it.

    A write with If-Match is applied only if the resource still has that version, so you cannot
    overwrite changes you have not seen.
    """

    fix = "read it again, then retry"


class NoSuchRoute(RequestError, code="HF077", http_status=404):
    """Not found.

    The API does not serve this path or method.
    """

    fix = "see the OpenAPI document at /api/v1/openapi.json"


class UnsupportedMedia(RequestError, code="HF078", http_status=415):
    """Unsupported media type.

    Bodies are JSON in UTF-8; other content types are rejected.
    """

    fix = "send `Content-Type: application/json`"


class RateLimited(HoldfastError, code="HF098", retryable=True, http_status=429):
    """Too many requests.

    A manual tick costs the database as much as a scheduled one, so it is rate limited.
    """

    fix = "wait as long as Retry-After says"

    def __init__(self, message: str, after_s: int = 1) -> None:
        """Also give the number of seconds until the next request is accepted."""
        super().__init__(message)
        self.after_s = after_s


class TooManyStreams(RateLimited, code="HF148"):
    """Too many open streams for one user.

    Every open page and every `/api/v1/tail` holds a connection and reads from the database, so the
    number per user or token is limited.
    """

    fix = "close pages or streams that are not needed, or raise HOLDFAST_STREAMS_PER_PRINCIPAL"


class StreamsFull(RateLimited, code="HF149", http_status=503):
    """The server has no room for another stream.

    The number of open streams per process is limited, so that they cannot take all its connections.
    Pages keep working; they update less often until a stream is free.
    """

    fix = "wait, start another server process, or raise HOLDFAST_STREAMS"


class Refused(HoldfastError, code="HF090", http_status=403, exit_code=4):
    """Permission denied.

    Viewers see metadata; operators may also pause, retry, cancel and redrive; developers may also
    see payloads, start and delete.
    """

    fix = "use a token with a role that allows it; see `holdfast token create --role`"


class ConfinementUnsupported(HoldfastError, code="HF216", http_status=403, exit_code=4):
    """A token or user is confined to one context, and nothing installed here can confine.

    Everything is refused, since nothing could be cut to what they may see.
    """

    fix = (
        'install it with `pip install "holdfast-jobs[context]"`, or create a token without `--only`'
    )


class Unauthenticated(HoldfastError, code="HF095", http_status=401):
    """Authentication required.

    The request has no token, or one that is unknown, expired or revoked.
    """

    fix = "send `Authorization: Bearer <token>`; create one with `holdfast token create`"


class CrossSite(HoldfastError, code="HF096", http_status=403):
    """The request came from another site.

    Browsers send cookies with cross-site forms, so changes that rely on cookies are accepted only
    from the dashboard's own pages.
    """

    fix = "make the change in the dashboard, or send a token as `Authorization: Bearer`"


class TokenNotFound(HoldfastError, code="HF097", http_status=404, exit_code=3):
    """Token not found.

    Tokens are identified by id, never by their secret, which is shown only once.
    """

    fix = "copy the id from `holdfast token list`"


class CommandError(HoldfastError):
    """A command was not carried out."""


class CommandUsage(CommandError, code="HF091", exit_code=2):
    """Invalid command line.

    A command, option or argument is unknown, missing or malformed. Nothing was changed.
    """

    fix = "see the command's `--help`, which starts with examples"


class AppNotLoaded(CommandError, code="HF092", exit_code=2):
    """The application could not be loaded.

    Commands that run handlers take the application as `module:attribute`, import the module with
    the current directory on the path, and expect a Holdfast object with that name.
    """

    fix = "pass it like `shop.jobs:app`, from the directory where `import shop.jobs` works"


class NotConfirmed(CommandError, code="HF093", exit_code=4):
    """The change was not confirmed.

    A change to all jobs that match a filter first shows their number and a sample, and asks for
    confirmation. Nothing was changed.
    """

    fix = "repeat it with --yes, or preview it with --dry-run"


class CheckNotMet(CommandError, code="HF094", exit_code=6):
    """A check failed.

    `holdfast status --fail-if` compares figures of the queue with limits, so monitors and pipelines
    can act on its exit code.
    """

    fix = "see `holdfast status` for all figures"


class SystemRefused(CommandError, code="HF099"):
    """The operating system rejected what a command needs.

    A disk may be full, a directory may not be writable, or a file may have been removed meanwhile.
    """

    fix = "fix what the message names, then run the command again"
