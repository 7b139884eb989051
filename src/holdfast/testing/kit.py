"""What a test does with an application: run its jobs, move the time, look at what was started, let workers die."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from holdfast.app import Holdfast
from holdfast.client.views import JobInfo
from holdfast.commands.attempts import reap_leases
from holdfast.core.duration import Duration, milliseconds
from holdfast.core.records import PRIORITIES, Claim, Instant, LeaseClass, Probe
from holdfast.storage.id_generator import new_id
from holdfast.testing.test_clock import TimedDatabase
from holdfast.worker.options import WorkerOptions
from holdfast.worker.worker import WorkerReport

T = TypeVar("T")

_NIL = "00000000-0000-0000-0000-000000000000"
_LOOK = 1_000
_DEAD_WORKERS_LEASE_MS = 60_000


class Kit:
    """An application bound to a database of the test's own. Its clock goes on by itself and can be moved ahead."""

    def __init__(self, app: Holdfast, url: str) -> None:
        self.app = app
        self._ahead_us = 0
        app.bind(url, self._instant)
        app.migrate()

    def _instant(self) -> Instant | None:
        if self._ahead_us == 0:
            return None
        return time.time_ns() // 1000 + self._ahead_us

    def advance(self, duration: Duration) -> None:
        """Let time pass: retries, deferred starts and leases see it at once."""
        self._ahead_us += milliseconds(duration) * 1000

    def run_until_idle(self, limit: int = 10_000) -> WorkerReport:
        """Run every job that is due, and those they lead to, until nothing is; waits for the handlers."""
        return _complete(self.run_until_idle_async(limit))

    async def run_until_idle_async(self, limit: int = 10_000) -> WorkerReport:
        """Async version of `run_until_idle`."""
        return await self._work(limit)

    def run_one(self) -> WorkerReport:
        """Run at most one job that is due."""
        return _complete(self._work(1))

    async def _work(self, limit: int) -> WorkerReport:
        database = TimedDatabase(self.app.database, self._instant)
        # The worker's own reaper has a timer; a test must not depend on which comes first.
        await database.run_async(reap_leases(database.store))
        options = WorkerOptions(name="test", stop_when_idle=True, max_items=limit)
        return await self.app.make_worker(options, database=database).run()

    def started(self, type: str | None = None) -> list[JobInfo]:
        """The jobs that exist, oldest first; of one type when it is given."""
        found = self.app.jobs.list(f"type:{type}" if type else "", limit=_LOOK)
        return list(reversed(found.items))

    def assert_started(self, type: str, **fields: Any) -> JobInfo:
        """Assert that a job of this type was started whose input has these fields; return it."""
        jobs = self.started(type)
        for job in jobs:
            if _has(job.input, fields):
                return job
        seen = "\n".join(f"  {each.type} {each.input!r}" for each in jobs or self.started())
        raise AssertionError(
            f"no job {type} with {fields} was started; there are:\n{seen or '  none'}"
        )

    def crash(self, type: str) -> JobInfo:
        """Let a worker die in the middle of a due job of this type: it stays leased for 60 s, as after kill -9."""
        token = new_id()
        claim = Claim(
            worker=f"dead-{token[-6:]}",
            limit=1,
            probes=tuple(Probe(type, priority, token, 1, 0, _NIL) for priority in PRIORITIES),
            classes=(LeaseClass(token, _DEAD_WORKERS_LEASE_MS, 0, 100, 1_000),),
        )
        database = TimedDatabase(self.app.database, self._instant)
        claimed = database.run(database.store.jobs.claim(claim))
        if not claimed:
            raise AssertionError(f"no job {type} is due, so no worker can die in it")
        database.run(database.store.leases.isolate(token))
        return self.app.jobs.get(claimed[0].id)


def _has(input: Any, fields: dict[str, Any]) -> bool:
    known = input if isinstance(input, dict) else getattr(input, "__dict__", {})
    return all(name in known and known[name] == value for name, value in fields.items())


def _complete(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, in a thread when the test's own loop is running."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    answers: list[T] = []
    thread = threading.Thread(target=lambda: answers.append(asyncio.run(work)))
    thread.start()
    thread.join()
    return answers[0]
