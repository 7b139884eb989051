"""The job's context in logs: the examples of the documentation, run."""

import asyncio
import io
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from holdfast.observe.context import JobContext, JobContextFilter, add_job_context, current_job

JOB = JobContext("job-1", "order.charge", "chain-1", "w-1", 2, "00-trace-span-01")


@pytest.fixture
def inside_a_job() -> Iterator[None]:
    token = current_job.set(JOB)
    yield
    current_job.reset(token)


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.Logger("shop")
    yield logger
    for handler in logger.handlers:
        handler.close()


def example_for_logging(logger: logging.Logger, stream: io.StringIO, absent: str) -> None:
    handler = logging.StreamHandler(stream)
    handler.addFilter(JobContextFilter(absent))
    handler.setFormatter(logging.Formatter("%(levelname)s [%(type)s %(job_id)s] %(message)s"))
    logger.addHandler(handler)


def example_for_structlog(entries: list[Any]) -> Any:
    def keep(logger: Any, method: str, event_dict: Any) -> str:
        entries.append(dict(event_dict))
        raise structlog.DropEvent

    return structlog.wrap_logger(None, processors=[add_job_context, keep])


@pytest.mark.usefixtures("inside_a_job")
def test_a_line_logged_in_a_handler_names_its_job(logger: logging.Logger) -> None:
    stream = io.StringIO()
    example_for_logging(logger, stream, absent="-")
    logger.info("charged %d", 7)
    assert stream.getvalue() == "INFO [order.charge job-1] charged 7\n"


def test_a_line_logged_outside_of_a_job_fits_the_same_format(logger: logging.Logger) -> None:
    stream = io.StringIO()
    example_for_logging(logger, stream, absent="-")
    logger.info("ready")
    assert stream.getvalue() == "INFO [- -] ready\n"


@pytest.mark.usefixtures("inside_a_job")
def test_a_record_has_every_field_and_keeps_those_it_had(logger: logging.Logger) -> None:
    record = logger.makeRecord("shop", 20, "", 0, "", (), None, extra={"worker": "mine"})
    assert JobContextFilter().filter(record)
    found = {field: getattr(record, field) for field in JobContext.__struct_fields__}
    assert found == {
        "job_id": "job-1",
        "type": "order.charge",
        "chain_id": "chain-1",
        "worker": "mine",
        "attempt": 2,
        "trace": "00-trace-span-01",
    }


@pytest.mark.usefixtures("inside_a_job")
def test_an_entry_of_structlog_names_its_job_and_keeps_what_it_had() -> None:
    entries: list[Any] = []
    example_for_structlog(entries).info("charged", amount=7, worker="mine")
    assert entries == [
        {
            "event": "charged",
            "amount": 7,
            "worker": "mine",
            "job_id": "job-1",
            "type": "order.charge",
            "chain_id": "chain-1",
            "attempt": 2,
            "trace": "00-trace-span-01",
        }
    ]


def test_an_entry_of_structlog_outside_of_a_job_is_left_alone() -> None:
    entries: list[Any] = []
    example_for_structlog(entries).info("ready")
    assert entries == [{"event": "ready"}]


async def test_concurrent_jobs_see_their_own_context_also_in_threads() -> None:
    both_inside = asyncio.Barrier(2)

    async def handler(job_id: str) -> tuple[str, str]:
        current_job.set(JobContext(job_id, "mail", job_id, "w-1", 1))
        await both_inside.wait()
        in_thread = await asyncio.to_thread(current_job.get)
        in_task = current_job.get()
        assert in_thread is not None
        assert in_task is not None
        return in_thread.job_id, in_task.job_id

    first, second = await asyncio.gather(handler("a"), handler("b"))
    assert first == ("a", "a")
    assert second == ("b", "b")
    assert current_job.get() is None
