"""HF07x and HF08x: what people write that cannot be understood: filters, ids, options, durations, schedules."""

from __future__ import annotations

from holdfast.core.errors.base import HoldfastError


class QueryError(HoldfastError):
    """A question to the lists cannot be understood."""


class FilterError(QueryError):
    """The filter cannot be understood.

    Lists are narrowed by terms like `state:failed type:mail.* age>5m`. A key that does not exist or
    a value that does not fit is refused, because ignoring it would show, or change, too much.
    """

    code = "HF070"
    fix = 'write terms like `state:failed,cancelled type:mail.* age>5m error:"timed out"`'


class InvalidCursor(QueryError):
    """The cursor does not belong to this list.

    A cursor marks where the previous page of a list ended. It is valid only for the list and filter
    that returned it.
    """

    code = "HF071"
    fix = "begin again at the first page"


class InvalidId(QueryError):
    """The text is not an id.

    Jobs and chains have UUIDs of version 7 as ids, written with hyphens, for example
    0193a6f0-7c00-7000-8000-000000000000.
    """

    code = "HF072"
    fix = "copy the whole id from `holdfast jobs list -o id`"


class InvalidOption(HoldfastError):
    """An option has a value that cannot be used.

    Options of starts and lists are checked before anything is sent to the database, so that the
    caller's transaction stays usable.
    """

    code = "HF073"
    fix = "give the option a value within the range that the message names"


class ScheduleError(HoldfastError):
    """A time was given in a form that has no meaning."""


class InvalidDuration(ScheduleError):
    """The duration cannot be read.

    Durations are numbers with units from days to milliseconds, seconds as a plain number, or a
    timedelta; they are never negative.
    """

    code = "HF080"
    fix = 'write it like "30s", "5m", "1h30m", "250ms" or "2d"; in Python a number is seconds'


class InvalidSchedule(ScheduleError):
    """The schedule cannot be read.

    A cycle runs at an interval or by a cron expression of five fields in an IANA time zone.
    """

    code = "HF081"
    fix = 'write every="2m", or cron="17 3 * * *" with tz="America/Santiago"'
