"""Options of a start, and checks of ids, keys and times before any statement runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeAlias, TypedDict, TypeVar
from uuid import UUID

from holdfast.core.duration import Duration, milliseconds
from holdfast.core.errors import InvalidOption, nearest
from holdfast.core.ids import parse_id, parse_new_id
from holdfast.core.instants import Expiry, Instant, to_instant
from holdfast.core.records import PRIORITIES, Debounce, KeyScope, OnBlockerFailure
from holdfast.core.retry import is_attempt_limit

T = TypeVar("T")

MAX_KEY = 1024
"""Bytes: type and key together have to fit into an entry of PostgreSQL's index."""


class HasId(Protocol):
    """A chain or job as callers hold it."""

    @property
    def id(self) -> UUID: ...


Id: TypeAlias = UUID | str | HasId
"""A chain or job, or its id."""


class SharedOptions(TypedDict, total=False):
    """Options that the chains of one `app.start_many` have in common; `app.start` takes them too."""

    scope: KeyScope
    """How long a key deduplicates: `"open"`, the default, until its chain has completed or was cancelled; `"any"`
    beyond that, also after retention has removed the chain (HOLDFAST_KEY_DAYS)."""

    window: Duration | None
    """How long the key deduplicates; by default without limit."""

    exclude: Sequence[Id]
    """Chains whose keys are ignored, so a start with the same key creates a new one."""

    debounce: Duration | None
    """Start once the key has been quiet for this long, with the last input; if requested while it runs, it runs once
    more afterwards."""

    latest: Duration | None
    """With `debounce`: start no later than this long after the first start, however often it is requested again."""

    at: datetime | None
    """Not before this time, with a time zone; a time in the past means now."""

    after: Duration | None
    """Not before this long from now, by the database's clock."""

    expires: Duration | datetime | None
    """Cancel the job if it is still waiting after this long, or at this time: no attempt begins later."""

    priority: int
    """Priority from 0 (most urgent) to 9; by default 5."""

    blockers: Sequence[Id]
    """Chains to wait for; the handler finds their outputs in `job.blockers`."""

    on_blocker_failure: OnBlockerFailure
    """What to do if one of the blockers fails or is cancelled: `"fail"`, the default; `"wait"` for it to be redriven;
    or `"run"` anyway."""

    max_attempts: int | None
    """Maximum attempts, instead of the type's own."""

    version: int | None
    """The version of the input, for a type that is not registered here; a registered type says its own."""

    sealed: bool
    """Encrypt the payloads of this chain's first job, for a type that is not registered here or not sealed."""

    context: Mapping[str, str] | None
    """What it is started in, such as `{"tenant": "acme"}`, instead of what `add_context` captures; continuations and
    children inherit it."""


class StartOptions(SharedOptions, total=False):
    """Options of `app.start` and `Start`."""

    key: str | None
    """Starts with the same type and key share one chain."""

    id: UUID | str | None
    """The chain's id, made with `app.new_id()`, so that a start can be repeated when you don't know whether it was
    committed."""


_ELSEWHERE = {
    "delay": "after",
    "countdown": "after",
    "schedule_in": "after",
    "eta": "at",
    "run_at": "at",
    "schedule_at": "at",
    "ttl": "expires",
    "retries": "max_attempts",
    "depends_on": "blockers",
    "unique_key": "key",
    "job_id": "id",
}
"""What other queues call our options."""


def check_options(options: Mapping[str, object], known: Any) -> None:
    """Refuse an option that a TypedDict of options does not have. Raises: InvalidOption with the nearest name."""
    names = known.__optional_keys__
    for name in options:
        if name not in names:
            raise InvalidOption(
                f"there is no option {name!r} here", help=_suggest_name(name, names)
            )


def _suggest_name(name: str, names: Iterable[str]) -> str:
    others = {theirs: ours for theirs, ours in _ELSEWHERE.items() if ours in names}
    found = nearest(name, [*names, *others]).removeprefix("did you mean ").removesuffix("?")
    if found:
        return f"did you mean {others.get(found, found)}?"
    return f"use one of {', '.join(sorted(names))}"


def id_text(value: Id) -> str:
    """Return an id as canonical text. Raises: InvalidId."""
    inner = value if isinstance(value, (UUID, str)) else getattr(value, "id", value)
    return str(parse_id(str(inner)))


def new_id_text(value: Id) -> str:
    """Return the id that a caller made as canonical text. Raises: InvalidId."""
    return str(parse_new_id(id_text(value)))


def id_texts(values: Iterable[Id]) -> list[str]:
    """Return ids as canonical text. Raises: InvalidId, InvalidOption for a single one or none at all."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidOption(
            f"{repr(values)[:60]} is not a list of chains or jobs", help="put it in a list"
        )
    return [id_text(each) for each in values]


def check_key(key: object) -> str | None:
    """Return a deduplication key that both databases keep exactly. Raises: InvalidOption."""
    if key is None:
        return None
    if not isinstance(key, str) or not key:
        raise InvalidOption(f"a key is a non-empty string, not {repr(key)[:60]}")
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise InvalidOption("the key contains a lone surrogate") from None
    if "\0" in key:
        raise InvalidOption("the key contains a NUL character")
    if size > MAX_KEY:
        raise InvalidOption(
            f"the key has {size} bytes, the limit is {MAX_KEY}",
            help="use a shorter one, or its hash",
        )
    return key


def check_time(at: object, after: Duration | None, option: str = "at") -> Instant | None:
    """Return the instant of an option. Raises: InvalidOption for a naive time, or one beside `after`."""
    if at is None:
        return None
    if after is not None:
        raise InvalidOption("at and after were both given", help="pass one of them")
    if not isinstance(at, datetime) or at.tzinfo is None:
        raise InvalidOption(
            f"{option}={repr(at)[:60]} is not a time with a time zone",
            help="use datetime.now(UTC) + …",
        )
    return to_instant(at)


def check_expiry(
    expires: Duration | datetime | None, at: Instant | None, after_ms: int | None
) -> Expiry | None:
    """Return the time or the delay after which a job is given up. Raises: InvalidOption if it could never begin."""
    if expires is None:
        return None
    instant = check_time(expires, None, "expires") if isinstance(expires, datetime) else None
    if instant is not None and (at is None or instant > at):
        return instant, None
    if not isinstance(expires, datetime) and (span := milliseconds(expires)) > (after_ms or 0):
        return None, span
    raise InvalidOption("the job would expire before it is due", help="choose a later expires=")


def check_debounce(
    debounce: Duration | None, latest: Duration | None, **beside: bool
) -> Debounce | None:
    """Return how a start is debounced; `beside` says which other options were given.

    Raises: InvalidOption, also for what cannot go with it; InvalidDuration.
    """
    if debounce is None:
        if latest is not None:
            raise InvalidOption("latest needs debounce", help="give both, or use after=…")
        return None
    for name, is_given in beside.items():
        if is_given:
            raise InvalidOption(f"{name} cannot be combined with debounce", help=_instead_of(name))
    quiet_ms = milliseconds(debounce)
    latest_ms = None if latest is None else milliseconds(latest)
    if quiet_ms == 0:
        raise InvalidOption("debounce=0 would not wait", help="omit it, or use '1s'")
    if latest_ms is not None and latest_ms < quiet_ms:
        raise InvalidOption(
            "latest is shorter than debounce, so it would never wait for quiet",
            help="make latest several times as long: debounce='30s', latest='5m'",
        )
    return Debounce(quiet_ms, latest_ms)


def _instead_of(name: str) -> str:
    if name in ("scope", "window", "exclude"):
        return "debounce runs after the last call; to run only for the first one, omit debounce"
    return f"omit {name}, or start without debounce"


def check_priority(priority: object) -> int:
    """Return a priority. Raises: InvalidOption."""
    if type(priority) is not int or priority not in PRIORITIES:
        raise InvalidOption(
            f"priority={repr(priority)[:60]} is not a whole number from 0, the most urgent, to 9"
        )
    return priority


def check_attempts(max_attempts: object) -> int | None:
    """Return a limit of attempts. Raises: InvalidOption."""
    if max_attempts is None or (isinstance(max_attempts, int) and is_attempt_limit(max_attempts)):
        return max_attempts
    raise InvalidOption(f"max_attempts={repr(max_attempts)[:60]} is not a positive whole number")


def check_choice(option: str, value: T, choices: Sequence[T]) -> T:
    """Return a value that is one of the choices. Raises: InvalidOption."""
    if value not in choices:
        allowed = ", ".join(map(repr, choices))
        raise InvalidOption(f"{option}={repr(value)[:60]} is not one of {allowed}")
    return value
