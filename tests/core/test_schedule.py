"""Schedules: slots, plain words, and clock changes in every zone of the world."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import InvalidSchedule
from holdfast.core.instants import Instant, to_instant
from holdfast.core.schedule import Cron, Interval, Schedule, parse_schedule

SECOND = 1_000_000
MINUTE = 60 * SECOND
DAY = 24 * 60 * MINUTE
YEAR = 366 * DAY


def at(text: str) -> Instant:
    """Read a local time with its offset."""
    return to_instant(datetime.fromisoformat(text))


def test_interval_slots_are_multiples_since_the_epoch() -> None:
    every = Interval("2m")
    assert every.next_after(0) == 2 * MINUTE
    assert every.next_after(2 * MINUTE) == 4 * MINUTE
    assert every.next_after(-1) == 0
    assert every.latest_between(0, 7 * MINUTE, 2) == [4 * MINUTE, 6 * MINUTE]
    assert every.latest_between(0, 6 * MINUTE, 9) == [2 * MINUTE, 4 * MINUTE, 6 * MINUTE]


def test_the_latest_slots_of_a_long_absence_are_found_at_once() -> None:
    now = 50 * YEAR
    assert Interval("1s").latest_between(0, now, 2) == [now - SECOND, now]
    assert len(Cron("* * * * *").latest_between(0, now, 1000)) == 1000


def test_cron_slots_are_local_times() -> None:
    cron = Cron("17 3 * * *", "America/Santiago")
    assert cron.next_after(at("2026-01-10T12:00:00-03:00")) == at("2026-01-11T03:17:00-03:00")
    assert cron.next_after(at("2026-07-10T12:00:00-04:00")) == at("2026-07-11T03:17:00-04:00")


def test_a_time_inside_a_gap_happens_at_the_first_instant_after_it() -> None:
    cron = Cron("30 2 * * *", "Europe/Madrid")
    assert cron.latest_between(at("2026-03-28T12:00:00Z"), at("2026-03-30T12:00:00Z"), 9) == [
        at("2026-03-29T03:00:00+02:00"),
        at("2026-03-30T02:30:00+02:00"),
    ]


def test_several_times_inside_a_gap_happen_once_together() -> None:
    cron = Cron("*/15 2,3 * * *", "Europe/Madrid")
    slots = cron.latest_between(at("2026-03-29T00:00:00Z"), at("2026-03-29T12:00:00Z"), 9)
    assert slots == [at(f"2026-03-29T03:{minute}:00+02:00") for minute in ("00", "15", "30", "45")]


def test_a_repeated_time_happens_at_its_first_occurrence_only() -> None:
    cron = Cron("30 2 * * *", "Europe/Madrid")
    first, next_day = at("2026-10-25T02:30:00+02:00"), at("2026-10-26T02:30:00+01:00")
    assert cron.next_after(at("2026-10-24T12:00:00Z")) == first
    assert cron.next_after(first) == next_day
    assert cron.next_after(at("2026-10-25T02:15:00+01:00")) == next_day


@pytest.mark.parametrize("expression", ["*/30 * * * *", "*/30 0-23 * * *", "0,30 */1 * * *"])
@pytest.mark.parametrize("day", ["2026-03-29", "2026-10-25"])
def test_an_expression_with_every_hour_follows_elapsed_time(expression: str, day: str) -> None:
    start = at(f"{day}T00:00:00Z")
    slots = Cron(expression, "Europe/Madrid").latest_between(start, start + 240 * MINUTE, 99)
    assert slots == [start + step * 30 * MINUTE for step in range(1, 9)]


def test_a_gap_at_midnight_does_not_swallow_a_step_of_hours() -> None:
    cron = Cron("0 */6 * * *", "America/Santiago")
    slots = cron.latest_between(at("2026-09-05T19:00:00-04:00"), at("2026-09-06T07:00:00-03:00"), 9)
    assert slots == [at("2026-09-06T01:00:00-03:00"), at("2026-09-06T06:00:00-03:00")]


def _transitions(zone: ZoneInfo) -> list[datetime]:
    """Return the instants from 2020 to 2035 at which the zone's offset changes."""
    found = []
    moment, end = datetime(2020, 1, 1, tzinfo=UTC), datetime(2036, 1, 1, tzinfo=UTC)
    step = timedelta(days=9)
    while moment < end:
        before, after = moment, moment + step
        if _offset(zone, before) != _offset(zone, after):
            while after - before > timedelta(minutes=1):
                middle = before + (after - before) / 2
                unchanged = _offset(zone, middle) == _offset(zone, before)
                before, after = (middle, after) if unchanged else (before, middle)
            found.append(after.replace(second=0, microsecond=0))
        moment += step
    return found


def _offset(zone: ZoneInfo, moment: datetime) -> timedelta:
    offset = moment.astimezone(zone).utcoffset()
    assert offset is not None
    return offset


def _zones_by_behaviour() -> dict[tuple[tuple[datetime, timedelta], ...], str]:
    """Return one zone for each distinct history, so that aliases are not tried twice."""
    zones: dict[tuple[tuple[datetime, timedelta], ...], str] = {}
    for name in sorted(available_timezones()):
        zone = ZoneInfo(name)
        changes = tuple((each, _offset(zone, each)) for each in _transitions(zone))
        if changes:
            zones.setdefault(changes, name)
    return zones


def test_a_daily_cron_runs_once_a_day_through_every_clock_change_of_the_world() -> None:
    tried = 0
    for changes, name in _zones_by_behaviour().items():
        zone = ZoneInfo(name)
        for change, _ in changes[::3]:
            _check_days_around(change, zone)
            tried += 1
    assert tried > 100


def _check_days_around(change: datetime, zone: ZoneInfo) -> None:
    before = _offset(zone, change - timedelta(seconds=1))
    after = _offset(zone, change)
    # The middle of the skipped or repeated span, in local time.
    local = change.replace(tzinfo=None) + (before + after) / 2
    cron = Cron(f"{local.minute} {local.hour} * * *", zone.key)
    slots = cron.latest_between(to_instant(change) - 2 * DAY, to_instant(change) + 2 * DAY, 99)
    shift = abs(after - before) // timedelta(microseconds=1)
    assert all(abs(later - slot - DAY) <= shift for slot, later in pairwise(slots)), zone.key
    if after > before:
        assert to_instant(change) in slots, zone.key
    else:
        first = to_instant((local - before).replace(tzinfo=UTC, second=0))
        assert first in slots, zone.key
        assert first + shift not in slots, zone.key


@pytest.mark.parametrize(
    "schedule",
    [
        Cron("30 2 * * *", "Europe/Madrid"),
        Cron("*/20 1-3 * * *", "Europe/Madrid"),
        Cron("*/20 * * * 7", "America/Santiago"),
        Cron("0 */6 * * *", "America/Havana"),
        Cron("30 0 * * *", "America/Santiago"),
        Cron("45 1 * * *", "Australia/Lord_Howe"),
        Interval("7m"),
    ],
    ids=lambda schedule: schedule.describe(),
)
@given(data=st.data())
def test_slots_do_not_depend_on_where_the_search_begins(
    schedule: Schedule, data: st.DataObject
) -> None:
    day = data.draw(st.sampled_from(["2026-03-29", "2026-04-05", "2026-09-06", "2026-10-25"]))
    start = at(f"{day}T00:00:00Z") - 720 * MINUTE
    end = start + 2160 * MINUTE
    middle = data.draw(st.integers(start, end))
    whole = schedule.latest_between(start, end, 999)
    parts = schedule.latest_between(start, middle, 999) + schedule.latest_between(middle, end, 999)
    assert parts == whole
    assert schedule.latest_between(start, end, 3) == whole[-3:]
    assert schedule.latest_between(start, end, 0) == []


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (Interval("2m"), "every 2 minutes"),
        (Interval("1h"), "every hour"),
        (Interval("90s"), "every 90 seconds"),
        (Interval("1500ms"), "every 1s500ms"),
        (Cron("17 3 * * *", "America/Santiago"), "at 03:17 every day, America/Santiago"),
        (Cron("0  9 * * 1-5"), "at 09:00 on Monday through Friday, UTC"),
    ],
)
def test_schedules_are_described_in_plain_words(schedule: Schedule, words: str) -> None:
    assert schedule.describe() == words


def test_texts_are_read_as_interval_or_cron() -> None:
    assert parse_schedule("every 2m") == Interval(120)
    assert parse_schedule("17 3 * * *", "Europe/Madrid") == Cron(" 17 3 * *  * ", "Europe/Madrid")


@pytest.mark.parametrize(
    ("text", "tz"),
    [
        ("", "UTC"),
        ("every", "UTC"),
        ("every now and then", "UTC"),
        ("every 10ms", "UTC"),
        ("* * * *", "UTC"),
        ("0 * * * * *", "UTC"),
        ("61 * * * *", "UTC"),
        ("@daily", "UTC"),
        ("0 0 30 2 *", "UTC"),
        ("0 0 */31 * 1#5", "UTC"),
        (f"{','.join('0' * 200)} * * * *", "UTC"),
        ("17 3 * * *", "Europe/Nowhere"),
        ("17 3 * * *", "../../etc/passwd"),
        ("17 3 * * *", ""),
    ],
)
def test_what_is_no_schedule_is_refused(text: str, tz: str) -> None:
    with pytest.raises(InvalidSchedule) as caught:
        parse_schedule(text, tz)
    assert caught.value.help


@given(st.lists(st.text("0123456789*/,-#LWMONJAN? ", max_size=8), min_size=5, max_size=5))
def test_any_text_is_a_schedule_or_refused(fields: list[str]) -> None:
    try:
        schedule = parse_schedule(" ".join(fields), "Europe/Madrid")
    except InvalidSchedule:
        return
    assert schedule.next_after(0) > 0
    assert schedule.describe()
