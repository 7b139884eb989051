"""The behaviours of Celery's documentation, on both sides; and what differs, as the page for users lists it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.instants import to_datetime, to_instant
from holdfast.core.schedule import Cron
from holdfast_celery.schedules import crontab
from tests.docs.snippets import ROOT
from tests.from_celery.behaviours import BEHAVIOURS, DIFFERENCES, Shop
from tests.from_celery.sides import Side, celery_side, holdfast_side

PAGE = ROOT / "docs" / "do" / "from-celery.md"


@pytest.fixture(scope="module", params=["celery", "sqlite", "postgres"])
def one_side(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Side]:
    """A side whose worker or database serves all behaviours."""
    if request.param == "celery":
        with celery_side() as made:
            made.app.conf.broker_transport_options = {"polling_interval": 0.01}
            yield made
    elif request.param == "sqlite":
        template: Path = request.getfixturevalue("sqlite_template")
        copy = shutil.copy(template, tmp_path_factory.mktemp("behaviours") / "holdfast.db")
        with holdfast_side(f"sqlite:///{copy}") as made:
            yield made
    else:
        with (
            request.getfixturevalue("postgres_server").database() as url,
            holdfast_side(url) as made,
        ):
            yield made


@pytest.fixture(scope="module")
def tasks(one_side: Side) -> Shop:
    """The tasks of a side: a worker of Celery's knows those that are there when it starts."""
    return Shop(one_side)


@pytest.fixture
def shop(tasks: Shop) -> Iterator[Shop]:
    """The tasks, with nothing noted yet."""
    tasks.seen.clear()
    yield tasks
    tasks.app.conf.task_always_eager = False


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_a_program_of_celery_s_documentation_does_the_same(name: str, shop: Shop) -> None:
    BEHAVIOURS[name](shop)


@pytest.mark.parametrize("says", DIFFERENCES)
def test_what_is_said_to_differ_does(says: str, shop: Shop) -> None:
    act, celery, here = DIFFERENCES[says]
    assert act(shop) == (celery if shop.side.package == "celery" else here)


def test_the_page_lists_what_differs() -> None:
    section = PAGE.read_text().partition("### Tested differences\n")[2].partition("\n## ")[0]
    assert re.findall(r"^- (.*)$", section, re.MULTILINE) == list(DIFFERENCES)


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


def test_there_are_120_behaviours() -> None:
    likeness = (Path(__file__).parent / "test_likeness.py").read_text()
    assert len(BEHAVIOURS) + len(CRONTABS) + likeness.count("\ndef test_") >= 120
