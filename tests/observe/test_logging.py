"""Events as log records and as JSON lines."""

import json
import logging
import re
import sys
from typing import Any

import pytest

from holdfast.core.events import CATALOGUE, Event
from holdfast.observe.context import JobContext, JobContextFilter, current_job
from holdfast.observe.logging import CATALOGUE as ALL_EVENTS
from holdfast.observe.logging import JOBS, LEVELS, JsonFormatter, LoggingObserver, PrettyFormatter
from tests.observe.samples import sample


class Records(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(record)


@pytest.fixture
def records() -> Records:
    return Records()


@pytest.fixture
def observer(records: Records) -> LoggingObserver:
    logger = logging.Logger("holdfast")
    logger.addHandler(records)
    return LoggingObserver(logger)


@pytest.mark.parametrize("name", CATALOGUE)
def test_an_event_is_a_record_at_its_level_with_its_fields(
    name: str, observer: LoggingObserver, records: Records
) -> None:
    event = sample(name)
    observer.observe(event)
    (record,) = records.found
    assert record.levelno == LEVELS[CATALOGUE[name].level]
    assert record.__dict__["event"] == name
    assert record.__dict__.items() >= event.fields.items()


@pytest.mark.parametrize("outcome", ["failed", "aborted"])
def test_a_run_of_a_cycle_that_did_not_complete_is_a_warning(
    outcome: str, observer: LoggingObserver, records: Records
) -> None:
    observer._logger.setLevel(logging.WARNING)
    assert observer.wants("cycle_finished")
    observer.observe(sample("cycle_finished", outcome="completed"))
    observer.observe(sample("cycle_finished", outcome=outcome))
    (record,) = records.found
    assert (record.levelno, record.__dict__["outcome"]) == (logging.WARNING, outcome)


def test_the_message_is_the_name_and_its_fields(
    observer: LoggingObserver, records: Records
) -> None:
    observer.observe(sample("database_back", purpose="heart beat"))
    assert records.found[0].getMessage() == 'database_back worker=w-1 purpose="heart beat"'


def test_a_text_cannot_forge_a_line(observer: LoggingObserver, records: Records) -> None:
    observer.observe(sample("database_back", purpose='x\nERROR forged\u2028"\x1b[31m'))
    message = records.found[0].getMessage()
    assert message.isascii()
    assert message.isprintable()


def test_a_level_that_is_off_costs_nothing(observer: LoggingObserver, records: Records) -> None:
    observer._logger.setLevel(logging.INFO)
    observer.observe(sample("job_completed"))
    assert not observer.wants("job_completed")
    assert records.found == []


@pytest.mark.parametrize("name", ALL_EVENTS)
def test_every_event_of_the_engine_and_of_extensions_can_be_a_record_of_logging(
    name: str, records: Records
) -> None:
    logger = logging.Logger("events", logging.DEBUG)
    logger.addHandler(records)
    spec = ALL_EVENTS[name]
    LoggingObserver(logger).observe(spec(**dict.fromkeys(spec.fields, 1)))
    (record,) = records.found
    assert record.__dict__["event"] == name


@pytest.mark.parametrize("name", CATALOGUE)
def test_at_the_default_level_nothing_is_logged_that_comes_with_every_job(
    name: str, observer: LoggingObserver
) -> None:
    observer._logger.setLevel(logging.INFO)
    spec = CATALOGUE[name]
    is_of_a_job = "job_id" in spec.fields and name != "job_redriven"
    is_a_problem = spec.level in ("warning", "error")
    assert observer.wants(name) == (is_a_problem if is_of_a_job else spec.level != "debug")


def test_each_job_can_be_logged_without_all_other_detail(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "holdfast")
    caplog.set_level(logging.DEBUG, JOBS)
    observer = LoggingObserver()
    for name in ("job_completed", "runner_finished"):
        observer.observe(sample(name))
    assert [(each.name, each.__dict__["event"]) for each in caplog.records] == [
        (JOBS, "job_completed")
    ]


def test_lists_and_counts_are_shown_as_words(observer: LoggingObserver, records: Records) -> None:
    observer.observe(sample("worker_summary", types={"mail": 7, "pdf": 2}))
    observer.observe(sample("worker_started", types=["mail", "pdf"]))
    assert records.found[0].getMessage().endswith(" types=mail:7,pdf:2")
    assert " types=mail,pdf " in records.found[1].getMessage()


def test_the_default_logger_is_called_holdfast(caplog: pytest.LogCaptureFixture) -> None:
    LoggingObserver().observe(sample("job_failed"))
    assert caplog.records[0].name == "holdfast"


def test_an_event_that_is_not_in_the_catalogue_yet_is_logged_too(
    observer: LoggingObserver, records: Records
) -> None:
    observer.observe(Event("job_admired", {"job_id": "1"}))
    assert records.found[0].levelno == logging.INFO


def lines_of(records: Records) -> list[dict[str, Any]]:
    formatter = JsonFormatter()
    lines = [formatter.format(record) for record in records.found]
    assert all("\n" not in line and line.isascii() for line in lines)
    return [json.loads(line) for line in lines]


def test_a_record_is_one_line_of_json(observer: LoggingObserver, records: Records) -> None:
    observer.observe(sample("job_reaped", job_id="1", type="mäil\n"))
    (line,) = lines_of(records)
    assert line.pop("time").endswith("Z")
    assert line.pop("message").startswith("job_reaped job_id=1 ")
    assert line == {
        "level": "warning",
        "logger": "holdfast",
        "event": "job_reaped",
        "job_id": "1",
        "type": "mäil\n",
        "worker": "w-1",
        "state": "failed",
        "crashes": 1,
        "stale_ms": 1500,
    }


def test_a_line_shows_the_error_and_what_has_no_json_form_as_text(records: Records) -> None:
    logger = logging.Logger("shop")
    logger.addHandler(records)
    try:
        raise ValueError("no \ud800")
    except ValueError:
        logger.exception("broken", extra={"sink": records, "nothing": None})
    (line,) = lines_of(records)
    assert "ValueError: no" in line["exception"]
    assert "Records" in line["sink"]
    assert "nothing" not in line


def test_lines_of_the_applications_own_loggers_name_the_job(records: Records) -> None:
    records.addFilter(JobContextFilter())
    logger = logging.Logger("shop")
    logger.addHandler(records)
    token = current_job.set(JobContext("job-1", "mail", "chain-1", "w-1", 2))
    logger.info("inside")
    current_job.reset(token)
    logger.info("outside")
    inside, outside = lines_of(records)
    assert inside.items() >= {"job_id": "job-1", "type": "mail", "attempt": 2}.items()
    assert "job_id" not in outside


def pretty(record: logging.LogRecord, colour: bool = False) -> list[str]:
    return PrettyFormatter(colour).format(record).splitlines()


def event_record(name: str, level: int = logging.WARNING, **fields: object) -> logging.LogRecord:
    record = logging.LogRecord("holdfast", level, "", 0, "%s", (name,), None)
    record.__dict__.update({"event": name, **fields})
    return record


def test_people_read_words_short_ids_and_errors_on_lines_of_their_own() -> None:
    first, *rest = pretty(
        event_record(
            "job_retried",
            worker="worker-1",
            job_id="01a1e061-7c00-7000-8000-0000deadbeef",
            type="mail.send",
            error="Traceback:\n  boom\x1b[2J\nSMTPError: no",
            delay_ms=10_000,
        )
    )
    assert re.fullmatch(r"\d\d:\d\d:\d\d warning: job retried mail\.send .*", first)
    assert "job_id=…deadbeef" in first
    assert "delay=10000ms" in first
    assert "worker" not in first
    assert [each.strip() for each in rest] == ["Traceback:", r"boom\x1b[2J", "SMTPError: no"]


def test_people_get_colours_where_they_are_wanted_and_other_records_as_they_are() -> None:
    record = logging.LogRecord("uvicorn", logging.ERROR, "", 0, "port %d", (80,), None)
    (plain,) = pretty(record)
    assert plain.endswith(" error: port 80")
    (painted,) = pretty(record, colour=True)
    assert "\x1b[31merror: port 80\x1b[0m" in painted


def test_people_read_a_message_of_several_lines_above_its_traceback() -> None:
    try:
        raise ValueError("no")
    except ValueError:
        record = logging.LogRecord("shop", 40, "", 0, "broken\nat night", None, sys.exc_info())
    lines = pretty(record)
    assert [each.strip() for each in lines[1:3]] == [
        "at night",
        "Traceback (most recent call last):",
    ]
