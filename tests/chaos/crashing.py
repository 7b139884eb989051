"""Workers that die at a chosen moment: `python -m tests.chaos.crashing` forks one for each line that it reads."""

import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from holdfast.core.records import Held
from holdfast.core.registry import JobType, job_type_of
from holdfast.core.retry import Retry
from holdfast.storage.database import Database
from holdfast.worker.job import Job
from holdfast.worker.options import WorkerOptions
from holdfast.worker.worker import Worker
from tests.chaos.process import database_of
from tests.support.forking import serve_forks
from tests.support.links import DisturbedDatabase

T = TypeVar("T")

AT_ONCE = Retry(base="1ms", cap="1ms")


class Death(msgspec.Struct):
    """One worker: before or after which call of which purpose it dies, and where its handlers write their log."""

    url: str
    log: str
    write_effect: str
    purpose: str
    moment: int


class Moments:
    """Counts the moments before and after each database call, and dies at the chosen one."""

    def __init__(self, death: Death) -> None:
        self._death = death
        self._passed: Counter[str] = Counter()

    def pass_one(self, purpose: str) -> None:
        """Live through one more moment of a purpose, or not."""
        self._passed[purpose] += 1
        if (purpose, self._passed[purpose]) == (self._death.purpose, self._death.moment):
            os.kill(os.getpid(), signal.SIGKILL)

    async def around(self, purpose: str, call: Callable[[], Awaitable[T]]) -> T:
        """Live through the moments before and after a call, or not."""
        self.pass_one(purpose)
        answer = await call()
        self.pass_one(purpose)
        return answer


class MortalTransaction:
    """See `storage.database.AsyncTransaction`."""

    def __init__(self, transaction: Any, moments: Moments) -> None:
        self._transaction = transaction
        self._moments = moments

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transaction, name)

    async def execute(self, *arguments: Any) -> Any:
        answer = await self._transaction.execute(*arguments)
        self._moments.pass_one("transaction")
        return answer


class MortalDatabase(DisturbedDatabase):
    """Counts the moments of its transactions too."""

    def __init__(self, database: Database, moments: Moments) -> None:
        super().__init__(database, moments)
        self._moments = moments

    @asynccontextmanager
    async def transaction_async(
        self, mark: Held | None = None, is_first: bool = False
    ) -> AsyncIterator[MortalTransaction]:
        self._moments.pass_one("transaction")
        async with self._database.transaction_async(mark, is_first) as transaction:
            yield MortalTransaction(transaction, self._moments)
            self._moments.pass_one("transaction")
        self._moments.pass_one("transaction")


def types_of(death: Death) -> dict[str, JobType]:
    """One type whose outcome the completer writes, and one that completes in a transaction with a row of its own."""

    def note(job: Job[Any]) -> None:
        with Path(death.log).open("ab", buffering=0) as log:
            log.write(msgspec.json.encode([job.id, job.attempt, job.fence]) + b"\n")

    async def plain(job: Job[int]) -> int:
        note(job)
        return job.input

    async def staged(job: Job[int]) -> int:
        note(job)
        async with job.complete() as done:
            await done.tx.execute(death.write_effect, [str(job.input)])
            return job.input

    return {
        "plain": job_type_of(plain, "plain", Job, {"retry": AT_ONCE}),
        "staged": job_type_of(staged, "staged", Job, {"retry": AT_ONCE}),
    }


async def work(death: Death) -> int:
    """Run jobs until none is due, or until death."""
    database = database_of(death.url)
    mortal: Any = MortalDatabase(database, Moments(death))
    report = await Worker(mortal, types_of(death), WorkerOptions(stop_when_idle=True)).run()
    await database.close_async()
    return report.exit_code


if __name__ == "__main__":
    serve_forks(Death, work)
