"""The behaviours of Celery's documentation, on both sides; and what differs, as the page for users lists it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

import pytest

from holdfast.core.instants import to_datetime, to_instant
from holdfast.core.schedule import Cron
from holdfast_celery.schedules import crontab
from tests.docs.snippets import ROOT
from tests.from_celery.programs import calling, canvas, differences, eager
from tests.from_celery.programs.beat import PERIODIC, Beat
from tests.from_celery.programs.processes import PROCESS_DIFFERENCES
from tests.from_celery.programs.shop import BEHAVIOURS, DIFFERENCES, Shop
from tests.from_celery.programs.workers import WORKERS
from tests.from_celery.sides import open_side

PAGES = (calling, canvas, differences, eager)
"""Modules that add programs to `BEHAVIOURS` and `DIFFERENCES`."""

PAGE = ROOT / "docs" / "do" / "from-celery.md"


@pytest.fixture(scope="module", params=["celery", "sqlite", "postgres"])
def tasks(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Shop, Beat]]:
    """The tasks of a side: a worker of Celery's knows those that are there when it starts."""
    with open_side(request, tmp_path_factory.mktemp("behaviours")) as side:
        side.app.conf.result_extended = True
        yield Shop(side), Beat(side)


@pytest.fixture
def shop(tasks: tuple[Shop, Beat]) -> Iterator[Shop]:
    """The tasks, with nothing noted yet."""
    made, _ = tasks
    made.seen.clear()
    yield made
    made.app.conf.task_always_eager = False


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_a_program_of_celery_s_documentation_does_the_same(name: str, shop: Shop) -> None:
    BEHAVIOURS[name](shop)


@pytest.mark.parametrize("name", PERIODIC)
def test_a_periodic_task_does_what_celery_s_documentation_says(
    name: str, tasks: tuple[Shop, Beat]
) -> None:
    _, beat = tasks
    beat.begin()
    PERIODIC[name](beat)


@pytest.mark.parametrize("says", DIFFERENCES)
def test_what_is_said_to_differ_does(says: str, shop: Shop) -> None:
    act, celery, here = DIFFERENCES[says]
    assert act(shop) == (celery if shop.side.package == "celery" else here)


def test_the_page_lists_what_differs() -> None:
    section = PAGE.read_text().partition("### Tested differences\n")[2].partition("\n## ")[0]
    assert re.findall(r"^- (.*)$", section, re.MULTILINE) == [*DIFFERENCES, *PROCESS_DIFFERENCES]


CRONTABS: dict[str, dict[str, Any]] = {
    "every minute": {},
    "daily at midnight": {"minute": 0, "hour": 0},
    "every three hours": {"minute": 0, "hour": "*/3"},
    "at these hours": {"minute": 0, "hour": "0,3,6,9,12,15,18,21"},
    "every 15 minutes": {"minute": "*/15"},
    "every minute of Sundays": {"day_of_week": "sunday"},
    "every 10 minutes of some hours of two days": {
        "minute": "*/10",
        "hour": "3,17,22",
        "day_of_week": "thu,fri",
    },
    "hours divisible by 2 or 3": {"minute": 0, "hour": "*/2,*/3"},
    "office hours": {"minute": 0, "hour": "8-17"},
    "the second of each month": {"minute": 0, "hour": 0, "day_of_month": "2"},
    "the first and third weeks": {"minute": 0, "hour": 0, "day_of_month": "1-7,15-21"},
    "a day of May": {"minute": 0, "hour": 0, "day_of_month": "11", "month_of_year": "5"},
    "every third month": {"minute": 0, "hour": 0, "day_of_month": 1, "month_of_year": "*/3"},
    "working days": {"minute": 30, "hour": 7, "day_of_week": "mon-fri"},
    "a number as the day": {"minute": 0, "hour": 9, "day_of_week": 1},
    "a list of minutes": {"minute": [5, 35]},
    "every fifth hour of the clock": {"minute": 0, "hour": "*/5"},
    "hours divisible by 3, and office hours": {"minute": 0, "hour": "*/3,8-17"},
    "every even day": {"minute": 0, "hour": 0, "day_of_month": "2-30/2"},
    "hours past midnight": {"minute": 15, "hour": "22-2"},
    "every other hour past midnight": {"minute": 15, "hour": "21-4/2"},
    "minutes past the end of the hour": {"minute": "35-12"},
    "minutes past the end of the hour by steps": {"minute": "57-43/2"},
    "a range of one hour, with a step": {"minute": 0, "hour": "7-7/5"},
    "days past the end of the week": {"minute": 0, "hour": 6, "day_of_week": "fri-mon"},
    "months past the end of the year": {
        "minute": 0,
        "hour": 0,
        "day_of_month": 1,
        "month_of_year": "nov-feb",
    },
}
"""The examples of Celery's page on periodic tasks."""


@pytest.mark.parametrize("what", CRONTABS)
def test_a_crontab_is_due_when_celery_s_is(what: str) -> None:
    theirs = import_module("celery.schedules").crontab
    app = import_module("celery").Celery("times", set_as_current=False)
    app.conf.timezone = "UTC"
    cron = Cron(crontab(**CRONTABS[what]).expression)
    moment = datetime(2026, 11, 18, 12, 30, tzinfo=UTC)
    for _ in range(6):
        at = moment
        schedule = theirs(**CRONTABS[what], nowfun=lambda at=at: at, app=app)
        last, delta, _ = schedule.remaining_delta(moment)
        found = to_datetime(cron.next_after(to_instant(moment)))
        assert found == (last.astimezone(UTC) + delta).replace(microsecond=0)
        moment = found


def test_there_are_120_behaviours_of_the_five_pages() -> None:
    pages = ("Calling", "Canvas", "Periodic tasks", "Workers", "Testing")
    named = [each for each in [*BEHAVIOURS, *PERIODIC, *WORKERS] if each.startswith(pages)]
    assert len(named) + len(CRONTABS) >= 120
