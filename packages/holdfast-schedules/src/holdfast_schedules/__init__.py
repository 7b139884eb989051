"""Schedules that are set at run time: a cron or an interval per customer, each due time started once."""

from typing import TYPE_CHECKING

from holdfast.extensions import lazy_names

if TYPE_CHECKING:
    from holdfast_schedules.firing import ScheduledFor as ScheduledFor
    from holdfast_schedules.firing import slot_of as slot_of
    from holdfast_schedules.schedules import AsyncSchedules as AsyncSchedules
    from holdfast_schedules.schedules import ScheduleInfo as ScheduleInfo
    from holdfast_schedules.schedules import Schedules as Schedules
    from holdfast_schedules.schedules import SlotInfo as SlotInfo
    from holdfast_schedules.schedules import add_schedules as add_schedules

__getattr__ = lazy_names(
    __name__,
    {
        "firing": ("ScheduledFor", "slot_of"),
        "schedules": ("AsyncSchedules", "ScheduleInfo", "Schedules", "SlotInfo", "add_schedules"),
    },
)
