"""The errors of schedules, in the order of their codes."""

from __future__ import annotations

from holdfast.core.errors import HoldfastError


class RunTimeScheduleError(HoldfastError):
    """Something about schedules that are set at run time."""


class ScheduleNotFound(RunTimeScheduleError):
    """There is no schedule of this name.

    Schedules are set by `schedules.set`, over HTTP, on the page or by `holdfast schedules set`.
    """

    code = "HF220"
    http_status, exit_code = 404, 3
    fix = "list them with `holdfast schedules list`"


class ScheduleNameInvalid(RunTimeScheduleError):
    """A schedule's name cannot be used.

    It identifies the schedule, and is part of the keys of its jobs: 1 to 200 printable characters, with no space at
    either end.
    """

    code = "HF221"
    http_status, exit_code = 422, 2
    fix = "use a name such as report:7"
