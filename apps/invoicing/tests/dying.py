"""Workers that die at a chosen step of a handler: `python -m apps.invoicing.tests.dying` forks one per line it reads.

The hooks are here, not in the application.
"""

import time
from collections.abc import Callable

from tests.support.dying import Death, Steps, fork_for_each_line

from holdfast.contrib.sqlalchemy_url import open_async_engine
from holdfast.worker.options import WorkerOptions
from holdfast_files import AsyncFiles
from holdfast_testing.test_clock import TimedDatabase
from invoicing import emails, pdf
from invoicing.database import Session
from invoicing.models import Invoice
from invoicing.worker import jobs

FILE_CALLS = ("exists", "verify", "get", "put_once")


def watch_effects(steps: Steps) -> None:
    """Take a step around each effect outside the database."""
    steps.wrap(emails, "send_message")
    for name in FILE_CALLS:
        steps.wrap(AsyncFiles, name)
    render: Callable[[Invoice], bytes] = pdf.render

    def stepping(invoice: Invoice) -> bytes:
        steps.take("render")
        return render(invoice)

    setattr(pdf, "render", stepping)  # noqa: B010


async def work(death: Death) -> int:
    """Run jobs of one type until none is due, or until death."""

    def instant() -> int | None:
        return time.time_ns() // 1000 + death.ahead_us if death.ahead_us else None

    jobs.bind(death.url, instant)
    engine = open_async_engine(death.url)
    Session.configure(bind=engine)
    steps = Steps(death)
    steps.watch(engine.sync_engine)
    watch_effects(steps)
    options = WorkerOptions(stop_when_idle=True, reaps=False)
    database = TimedDatabase(jobs.database, instant)
    report = await jobs.make_worker(options, types=[death.work], database=database).run()
    await engine.dispose()
    await jobs.aclose()
    return report.exit_code


if __name__ == "__main__":
    fork_for_each_line(work)
