"""The terms of each job type: what the code says, and what was set at run time in its place."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.core.jobtype import JobType
from holdfast.core.lease import TIMEOUT_IN_LEASES
from holdfast.core.model import LeaseClass, TypeSetting
from holdfast.core.retry import CRASH_BASE_MS, CRASH_CAP_MS
from holdfast.worker.attempt import Terms
from holdfast.worker.options import WorkerOptions

_AS_CODED = TypeSetting("")


class TypeTerms:
    """Answers for every type of a worker; replaced as a whole when a heartbeat brings other settings."""

    def __init__(self, types: Mapping[str, JobType], options: WorkerOptions) -> None:
        self._types = types
        self._options = options
        self._settings: dict[str, TypeSetting] = {}
        self._terms: dict[str, Terms] = {}
        self._limits: dict[str, int] = {}
        self.is_paused = False
        self.configure({}, False)

    def configure(self, settings: Mapping[str, TypeSetting], is_paused: bool) -> set[str]:
        """Follow what was set; return the types that may be claimed again and were not before."""
        resting = {name for name in self._types if self.rests(name)}
        self._settings = {name: each for name, each in settings.items() if name in self._types}
        self.is_paused = is_paused
        self._terms = {name: self._terms_of(each) for name, each in self._types.items()}
        limits = {name: self._limit_of(each) for name, each in self._types.items()}
        self._limits = {name: limit for name, limit in limits.items() if limit is not None}
        return {name for name in resting if not self.rests(name)}

    def rests(self, name: str) -> bool:
        """Whether a type is not to be claimed."""
        return self.is_paused or self._setting(name).paused

    def of(self, name: str) -> Terms:
        """The terms of attempts that are claimed now."""
        return self._terms[name]

    def limit(self, name: str) -> int | None:
        """How many calls of a type's handler may run at once in this process; None without a limit."""
        return self._limits.get(name)

    def lease_class(self, name: str) -> LeaseClass:
        """The lease a claim takes for a type, still without a token."""
        terms = self._terms[name]
        return LeaseClass(
            token="",
            lease_ms=terms.lease_ms,
            max_attempts=terms.max_attempts or 0,
            backoff_base_ms=min(CRASH_BASE_MS, terms.retry.base_ms),
            backoff_cap_ms=min(CRASH_CAP_MS, terms.retry.cap_ms),
        )

    def _setting(self, name: str) -> TypeSetting:
        return self._settings.get(name, _AS_CODED)

    def _terms_of(self, type: JobType) -> Terms:
        setting = self._setting(type.name)
        lease_ms = setting.lease_ms or (type.lease or self._options.lease).duration_ms
        timeout_ms = setting.timeout_ms or type.timeout_ms or TIMEOUT_IN_LEASES * lease_ms
        options = self._options
        retry = type.retry or (options.retry if type.event is None else options.event_retry)
        limit = retry.max_attempts
        if setting.max_attempts is not None:
            limit = setting.max_attempts or None
        return Terms(lease_ms, timeout_ms, retry, limit)

    def _limit_of(self, type: JobType) -> int | None:
        limit = self._setting(type.name).concurrency
        return type.concurrency if limit is None else limit
