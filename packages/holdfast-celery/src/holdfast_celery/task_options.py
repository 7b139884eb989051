"""What a decorator says of a task: its options, with Celery's defaults, and what they mean for its retries."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.core.duration import milliseconds
from holdfast.core.errors import InvalidOption, Permanent
from holdfast.core.flow import Rate
from holdfast.core.retry import Retry
from holdfast.core.signatures import check_kind
from holdfast_celery.calls import NO_OPTIONS, CallOptions, read_options
from holdfast_celery.coverage import check_always_so, check_names, refuse

DEFAULT_RETRIES = 3
DEFAULT_DELAY_S = 180.0
BACKOFF_MAX_S = 600.0

NO_TIME_LIMIT = "365d"
"""How long an attempt may take that Celery does not limit, instead of a job's three leases."""

CUT_OFF_ATTEMPTS = 2
"""How often an attempt that its worker's death cut off is made again beside the retries."""

Errors = tuple[type[BaseException], ...]

CALL_DEFAULTS = frozenset({"priority", "expires", "queue"})
"""Options of calls that a decorator may say, too."""


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """What a decorator says of a task, with Celery's defaults."""

    bind: bool = False
    max_retries: int | None = DEFAULT_RETRIES
    default_retry_delay: float = DEFAULT_DELAY_S
    autoretry_for: Errors = ()
    dont_autoretry_for: Errors = ()
    throws: Errors = ()
    retry_backoff: float = 0
    retry_backoff_max: float = BACKOFF_MAX_S
    retry_jitter: bool = True
    time_limit: float | None = None
    rate_limit: str | int | None = None
    ignore_result: bool | None = None
    sealed: bool = False
    defaults: CallOptions = NO_OPTIONS

    @classmethod
    def read(cls, given: Mapping[str, Any], task: str) -> TaskOptions:
        """Check the options of a decorator. Raises: CeleryUnsupported, InvalidOption, InvalidDuration."""
        check_names("task option", given, task)
        check_always_so("task option", given, task)
        options = {name: value for name, value in given.items() if name in cls.__slots__}
        options |= _fold_retry_options(given.get("retry_kwargs"), task)
        call = {name: given[name] for name in sorted(CALL_DEFAULTS) if name in given}
        _check_task_options(options)
        for name in ("autoretry_for", "dont_autoretry_for", "throws"):
            if name in options:
                options[name] = tuple(options[name])
        if "retry_backoff" in options:
            # True is Celery's way to say 1 second.
            options["retry_backoff"] = float(options["retry_backoff"])
        return cls(**options, defaults=read_options(call, task))

    def delay_ms(self, retries: int) -> int:
        """Return how long the next retry waits, after so many."""
        if not self.retry_backoff:
            return milliseconds(self.default_retry_delay)
        # Beyond this exponent the maximum decides anyway.
        delay = min(self.retry_backoff_max, self.retry_backoff * 2 ** min(retries, 40))
        return milliseconds(delay * random.random() if self.retry_jitter else delay)

    @property
    def timeout_retries(self) -> int | None:
        """How often the task is retried after an attempt that ran too long."""
        return self.max_retries if self.bind or self.autoretry_for else 0

    def policy(self) -> Retry:
        """Return the policy for what the task cannot decide itself: an attempt that was cut off.

        Which exceptions are retried, and how often, an attempt decides when one is raised.
        """
        retries = self.timeout_retries
        # A bound task says with each retry how many there may be.
        limit = None if self.bind or retries is None else 1 + retries + CUT_OFF_ATTEMPTS
        base = 1 if retries == 0 else self.retry_backoff or self.default_retry_delay
        return Retry(
            base=base,
            cap=max(base, self.retry_backoff_max) if self.retry_backoff else base,
            multiplier=2 if self.retry_backoff else 1,
            max_attempts=limit,
        )

    def is_retried(self, error: BaseException, retries: int) -> bool:
        """Whether an error that the task raised after so many retries is retried."""
        if self.max_retries is not None and retries >= self.max_retries:
            return False
        if isinstance(error, Permanent):
            return False
        return isinstance(error, self.autoretry_for) and not isinstance(
            error, self.dont_autoretry_for
        )


_NUMBER = (int, float)
_KINDS: Mapping[str, tuple[type, ...]] = {
    "bind": (bool,),
    "max_retries": (int, type(None)),
    "default_retry_delay": _NUMBER,
    "autoretry_for": (tuple, list),
    "dont_autoretry_for": (tuple, list),
    "throws": (tuple, list),
    "retry_backoff": (int, float, bool),
    "retry_backoff_max": _NUMBER,
    "retry_jitter": (bool,),
    "time_limit": (int, float, type(None)),
    "rate_limit": (str, int, type(None)),
    "ignore_result": (bool,),
    "sealed": (bool,),
}
_PERIODS = {"s": "1s", "m": "1m", "h": "1h"}


def _check_task_options(options: Mapping[str, Any]) -> None:
    for name, value in options.items():
        check_kind(name, value, _KINDS[name])
    retries = options.get("max_retries")
    if retries is not None and retries < 0:
        raise InvalidOption(f"max_retries={retries} is less than 0", help="None means no limit")
    rate_of(options.get("rate_limit"))


def rate_of(rate_limit: str | int | None, name: str | None = None) -> list[Rate]:
    """Return the rates of a limit such as "10/m", or of a number per second. Raises: InvalidOption."""
    if rate_limit is None:
        return []
    number, _, unit = str(rate_limit).replace(" ", "").partition("/")
    if not number.isdecimal() or (unit or "s") not in _PERIODS:
        raise InvalidOption(
            f"rate_limit={rate_limit!r} is not a rate", help='write "10/s", "10/m" or "10/h"'
        )
    return [Rate(int(number), _PERIODS[unit or "s"], name=name)]


def _fold_retry_options(retry_kwargs: Any, task: str) -> dict[str, Any]:
    """Return the options that autoretry_for's keyword arguments stand for."""
    places = {"max_retries": "max_retries", "countdown": "default_retry_delay"}
    for name in retry_kwargs or {}:
        if name not in places:
            raise refuse("retry option", name, f"retry_kwargs of {task}")
    return {places[name]: value for name, value in (retry_kwargs or {}).items()}
