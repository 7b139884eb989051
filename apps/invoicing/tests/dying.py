"""Workers that die at a chosen step of a handler: `python -m apps.invoicing.tests.dying` forks one per line it reads.

Forked from a process that has imported everything and opened nothing, so that a hundred deaths cost no hundred starts.
The hooks are here, not in the application.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import Engine, event
from sqlalchemy.orm import Session as OrmSession

from holdfast.core.records import Instant
from holdfast.files.async_files import AsyncFiles
from holdfast.testing.test_clock import TimedDatabase
from holdfast.worker.options import WorkerOptions
from invoicing import emails, pdf
from invoicing.database import Session, open_engine
from invoicing.models import Invoice
from invoicing.worker import jobs

FILE_CALLS = ("exists", "verify", "get", "put_once")


class Death(msgspec.Struct):
    """One worker: what it runs, at which step it dies, where it logs its steps, and how far its clock is ahead."""

    url: str
    log: str
    type: str
    step: int
    ahead_us: int


class Steps:
    """Counts what handlers do, and dies at the chosen step."""

    def __init__(self, death: Death) -> None:
        self._death = death
        self._log = Path(death.log).open("ab", buffering=0)  # noqa: SIM115
        self._passed = 0

    def take(self, name: str) -> None:
        """Log one more step, and take it or die."""
        self._passed += 1
        self._log.write(f"{name}\n".encode())
        if self._passed == self._death.step:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(self, engine: Engine) -> None:
        """Take a step for each statement, before and after each commit, and around each effect outside."""
        event.listen(engine, "before_cursor_execute", lambda *_: self.take("statement"))
        event.listen(engine, "commit", lambda _: self.take("commit"))
        event.listen(OrmSession, "after_commit", lambda _: self.take("committed"))
        self._wrap(emails, "send_message")
        for name in FILE_CALLS:
            self._wrap(AsyncFiles, name)
        render: Callable[[Invoice], bytes] = pdf.render

        def stepping(invoice: Invoice) -> bytes:
            self.take("render")
            return render(invoice)

        setattr(pdf, "render", stepping)  # noqa: B010

    def _wrap(self, owner: Any, name: str) -> None:
        call = getattr(owner, name)

        async def stepping(*given: Any, **options: Any) -> Any:
            self.take(name)
            answer = await call(*given, **options)
            self.take(f"{name} done")
            return answer

        setattr(owner, name, stepping)


async def work(death: Death) -> int:
    """Run jobs of one type until none is due, or until death."""

    def instant() -> Instant | None:
        return time.time_ns() // 1000 + death.ahead_us if death.ahead_us else None

    jobs.bind(death.url, instant)
    engine = open_engine(death.url)
    Session.configure(bind=engine)
    Steps(death).watch(engine.sync_engine)
    options = WorkerOptions(stop_when_idle=True, reaps=False)
    database = TimedDatabase(jobs.database, instant)
    report = await jobs.make_worker(options, types=[death.type], database=database).run()
    await engine.dispose()
    await jobs.aclose()
    return report.exit_code


def main() -> None:
    """Fork a worker for each line, and answer with how it ended."""
    for line in sys.stdin.buffer:
        death = msgspec.json.decode(line, type=Death)
        child = os.fork()
        if child == 0:
            os._exit(asyncio.run(work(death)))
        _, status = os.waitpid(child, 0)
        os.write(sys.stdout.fileno(), b"%d\n" % os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
