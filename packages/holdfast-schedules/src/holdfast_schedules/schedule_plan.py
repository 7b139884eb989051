"""From what a caller asks for to a schedule that can be stored: names, times and options are checked here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict, cast, get_args

import msgspec

from holdfast.client.start_options import StartOptions, check_choice, check_options
from holdfast.client.start_plan import Starter
from holdfast.client.start_targets import Targets
from holdfast.core.cycle import CatchUp, schedule_text
from holdfast.core.duration import Duration, format_duration, milliseconds
from holdfast.core.errors import InvalidDuration, InvalidOption, InvalidSchedule
from holdfast.core.registry import Target
from holdfast.core.schedule import Cron, Interval, Schedule
from holdfast.core.sealing import Sealer, open_input, seal_input
from holdfast.core.signatures import check_kind
from holdfast_schedules.errors import ScheduleNameInvalid
from holdfast_schedules.schedule_store import NewSchedule, Overlap

MAX_NAME_LENGTH = 200
_SEALED_TYPE = "schedule"


class ScheduleOptions(TypedDict, total=False):
    """Options of `schedules.set`, besides when it is due."""

    missed: str
    """What to do with due times that passed while no worker ran: `"last"`, the default, starts a job for the latest
    one; `"none"` for none of them; `"all(n)"` for the latest n."""

    overlap: Overlap
    """What to do at a due time when the job of the last one has not ended: `"start"`, the default, or `"skip"`."""

    jitter: Duration
    """Spread jobs of the same due time over this long; by default they are due at once."""

    priority: int
    """Priority of its jobs, from 0 (most urgent) to 9; by default 5."""

    max_attempts: int | None
    """Maximum attempts of its jobs, instead of the type's own."""

    version: int | None
    """The version of the input, for a type that is not registered here; a registered type says its own."""

    sealed: bool
    """Encrypt input and output, for a type that is not registered here or not sealed."""

    context: Mapping[str, str] | None
    """What its jobs are started in, instead of the context in which it is set."""


_OF_START = ("priority", "max_attempts", "version", "sealed", "context")


def check_name(name: object) -> str:
    """Return a name that can be stored and shown. Raises: ScheduleNameInvalid."""
    if not isinstance(name, str) or not name.isprintable() or name.strip() != name or not name:
        raise ScheduleNameInvalid(f"{repr(name)[:60]} cannot be the name of a schedule")
    if len(name) > MAX_NAME_LENGTH:
        raise ScheduleNameInvalid(
            f"the name has {len(name)} characters, the limit is {MAX_NAME_LENGTH}",
            help="use a shorter one, or its hash",
        )
    return name


def make_times(every: Duration | None, cron: str | None, timezone: str | None) -> Schedule:
    """Return the due times that were asked for. Raises: InvalidSchedule."""
    if (every is None) == (cron is None):
        given = "both every and cron" if cron is not None else "neither every nor cron"
        raise InvalidSchedule(
            f"{given} were given", help='write every="5m", or cron="0 9 * * mon-fri"'
        )
    if every is not None:
        if timezone is not None:
            raise InvalidSchedule("an interval cannot have a time zone", help="omit timezone")
        try:
            return Interval(every)
        except InvalidDuration as error:
            raise InvalidSchedule(error.message) from error
    check_kind("cron", cron, (str,))
    check_kind("timezone", timezone, (str, type(None)))
    return Cron(cron or "", "UTC" if timezone is None else timezone)


def make_schedule(
    targets: Targets,
    name: str,
    target: Target,
    input: Any,
    times: Schedule,
    options: ScheduleOptions,
) -> NewSchedule:
    """Return a schedule, with its input in clear.

    Raises: ScheduleNameInvalid, UnknownJobType, InputInvalid, PayloadError, InvalidSchedule, InvalidOption.
    """
    checked = check_name(name)
    check_options(options, ScheduleOptions)
    given: Mapping[str, Any] = options
    start = cast(StartOptions, {each: given[each] for each in _OF_START if each in given})
    # All that a start refuses is refused now, and not at night.
    (request,) = Starter(targets).one(target, input, start).requests
    schedule, zone = schedule_text(times)
    return NewSchedule(
        name=checked,
        type=request.job.type,
        input=request.clear_input,
        schedule=schedule,
        zone=zone,
        missed=str(CatchUp.parse(_text("missed", given.get("missed", "last")))),
        overlap=check_choice("overlap", given.get("overlap", "start"), get_args(Overlap)),
        jitter_ms=_check_jitter(given.get("jitter", 0), times),
        priority=request.job.priority,
        max_attempts=request.job.max_attempts,
        version=request.job.version,
        sealed=request.unsealed is not None,
        context=request.job.context,
    )


def stored_form(schedule: NewSchedule, sealer: Sealer | None) -> NewSchedule:
    """Return a schedule as it is stored: with its input sealed, if it is. Raises: SealKeyMissing."""
    if not schedule.sealed:
        return schedule
    text = seal_input(sealer, schedule.input, schedule.name, _SEALED_TYPE)
    return msgspec.structs.replace(schedule, input=text)


def clear_input(schedule: NewSchedule, sealer: Sealer | None) -> str:
    """Return a stored schedule's input in clear. Raises: SealError."""
    return open_stored(schedule.input, schedule.name, sealer)


def open_stored(text: str, name: str, sealer: Sealer | None) -> str:
    """Return the input that is stored for a schedule in clear. Raises: SealError."""
    return open_input(sealer, text, name, _SEALED_TYPE)


def _text(option: str, value: object) -> str:
    check_kind(option, value, (str,))
    return str(value)


def _check_jitter(jitter: Duration, times: Schedule) -> int:
    jitter_ms = milliseconds(jitter)
    if isinstance(times, Interval) and jitter_ms >= times.interval_ms:
        raise InvalidOption(
            f"a jitter of {format_duration(jitter_ms)} is as long as the interval",
            help=f"set less than {format_duration(times.interval_ms)}",
        )
    return jitter_ms
