"""What the tests of durable functions do with a workshop: count calls, send signals, read records, and wait."""

from collections import Counter
from typing import Any

from holdfast.commands.signals import make_signal, send_signal
from holdfast.core.records import JobRecord
from holdfast.core.retry import Retry
from holdfast.core.steps import StepRecord
from holdfast.notify.base import Hint
from tests.contract.tables import SqliteTables
from tests.support.until import until
from tests.worker.ledger import PostgresLedger
from tests.worker.workshop import Workshop

AT_ONCE = Retry(base="1ms", cap="1ms", jitter=0)
ENDED = ("completed", "failed", "cancelled")


class Calls:
    """The functions of steps, which remember how often they were called."""

    def __init__(self) -> None:
        self.of: Counter[str] = Counter()

    async def echo(self, value: Any) -> Any:
        self.of[str(value)] += 1
        return value

    def echo_sync(self, value: Any) -> Any:
        self.of[str(value)] += 1
        return value

    async def fail(self, text: str) -> None:
        self.of[text] += 1
        raise ValueError(text)

    def fail_sync(self, text: str) -> None:
        self.of[text] += 1
        raise ValueError(text)


async def send(
    workshop: Workshop, name: str, key: Any = None, data: Any = None, **options: Any
) -> bool:
    """Send a signal, and tell the workers that listen to our notifier."""
    change = await workshop.run(
        send_signal(workshop.store, make_signal(name, key, data, **options))
    )
    workshop.notifier.send(change.hints)
    return bool(change.answer)


async def start(workshop: Workshop, type: str, input: Any = None, **fields: Any) -> str:
    """Start a job, and tell the workers that listen to our notifier."""
    job_id = await workshop.start_one(type, input, **fields)
    workshop.have_due()
    return job_id


async def records(workshop: Workshop, job_id: str) -> dict[str, StepRecord]:
    """Read what a function has recorded, by the names that people see."""
    found: list[StepRecord] = await workshop.run(workshop.store.steps.of_jobs([job_id]))
    return {str(each.id): each for each in found}


async def parked(workshop: Workshop, job_id: str, count: int = 1) -> None:
    """Wait until a function was parked so often."""
    await workshop.events.seen("job_parked", count=count, job_id=job_id)


async def ended(workshop: Workshop, job_id: str) -> JobRecord:
    """Wait for the end of a job, whatever that is."""
    await until(lambda: workshop.ledger.state(job_id) in ENDED)
    return await workshop.job(job_id)


async def completed(workshop: Workshop, job_id: str) -> str | None:
    """Wait for the end of a job, which is a good one, and return its output."""
    record = await ended(workshop, job_id)
    assert record.state == "completed", record.error
    return record.output


def starts(workshop: Workshop, job_id: str) -> int:
    """How often a job's handler was called."""
    return len(workshop.events.of("job_started", job_id=job_id))


def stored(workshop: Workshop, table: str) -> list[str]:
    """Read the rows of one of Holdfast's tables as they are, behind the store's back."""
    ledger: Any = workshop.ledger
    if isinstance(ledger, PostgresLedger):
        return list(ledger._tables.read()[table])
    tables = SqliteTables(ledger._path)
    try:
        return list(tables.read()[f"holdfast_{table}"])
    finally:
        tables.close()


def hint(workshop: Workshop, name: str) -> None:
    """Tell the workers that a signal of this name may be there."""
    workshop.notifier.send([Hint("signal", name)])
