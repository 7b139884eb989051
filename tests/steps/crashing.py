"""Workers with durable functions that die at a chosen moment: `python -m tests.steps.crashing`."""

from pathlib import Path
from typing import Any

from holdfast.core.errors import Permanent
from holdfast.core.registry import JobType, job_type_of
from holdfast.worker.job import Job
from holdfast.worker.options import WorkerOptions
from holdfast.worker.worker import Worker
from tests.chaos.crashing import AT_ONCE, Death, Moments, MortalDatabase
from tests.chaos.process import database_of
from tests.support.forking import serve_forks


def types_of(death: Death) -> dict[str, JobType]:
    """One function that writes a row in an atomic step between two plain ones and waits, and one that is undone."""

    def note(text: str) -> str:
        with Path(death.log).open("a") as log:
            log.write(f"{text}\n")
        return text

    async def plain(text: str) -> str:
        return note(text)

    async def row(tx: Any, text: str) -> str:
        await tx.execute(death.write_effect, [text])
        return text

    async def function(job: Job[int]) -> int:
        await job.step("before", plain, f"before {job.input}")
        await job.step("row", row, str(job.input), atomic=True)
        await job.step("after", plain, f"after {job.input}")
        await job.sleep("1ms")
        return int(await job.wait_for("go", key=job.input))

    async def undone(job: Job[int]) -> None:
        await job.step("first", row, f"+a{job.input}", atomic=True, undo=unrow)
        await job.step("second", row, f"+b{job.input}", atomic=True, undo=unrow)
        raise Permanent("for good")

    async def unrow(tx: Any, text: str) -> None:
        await tx.execute(death.write_effect, [text.replace("+", "-")])

    return {
        "function": job_type_of(function, "function", Job, {"retry": AT_ONCE}),
        "undone": job_type_of(undone, "undone", Job, {"retry": AT_ONCE}),
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
