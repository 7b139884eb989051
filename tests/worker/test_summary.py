"""A worker sums up what it did, at intervals and at its end, and makes no event that nobody wants."""

import logging
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import Permanent
from holdfast.core.events import CATALOGUE, Event
from holdfast.core.outcome import Snooze
from holdfast.core.records import ClaimedJob, Finish
from holdfast.core.registry import job_type_of
from holdfast.observe import CompositeObserver
from holdfast.observe.logging import LoggingObserver
from holdfast.worker import worker_context
from holdfast.worker.attempt import Attempt
from holdfast.worker.clock import SystemClock
from holdfast.worker.counters import Counters, Spread
from holdfast.worker.job import Job
from holdfast.worker.options import TypePolicies, WorkerOptions
from holdfast.worker.watchdog import SUMMARY_S
from holdfast.worker.worker_context import Emitter
from tests.support.manual_clock import ManualClock
from tests.worker.workshop import Workshop

MAX_US = 8
"""What logging a job may cost at the default level, in the processor's time."""
ROUNDS = 5
JOBS = 5_000


async def test_what_ended_is_summed_up_at_intervals_while_anything_ends(workshop: Workshop) -> None:
    answers: dict[str, Any] = {"snooze": Snooze("1h"), "retry": OSError(), "fail": Permanent("no")}

    async def work(job: Job[str]) -> Any:
        answer = answers.get(job.input)
        if isinstance(answer, Exception):
            raise answer
        return answer

    workshop.handle("work", work)
    workshop.handle("other", work)
    for each in ("value", "snooze", "retry", "fail"):
        await workshop.start("work", each)
    await workshop.start("other", "value", count=2)
    async with workshop.working(clock=ManualClock()) as worker:
        await workshop.events.seen("job_completed", count=3)
        for name in ("job_snoozed", "job_retried", "job_failed"):
            await workshop.events.seen(name)
        await workshop.seen_in_time(worker, "worker_summary")
        (first,) = workshop.events.of("worker_summary")
        for _ in range(3 * int(SUMMARY_S)):
            worker.advance(1)
            await workshop.run(workshop.store.schema.clock())
        assert workshop.events.of("worker_summary") == [first], "nothing has ended since"
    assert first.fields["worker"] == worker.id
    assert first.fields.keys() == set(CATALOGUE["worker_summary"].fields)
    counts = {name: first.fields[name] for name in ("completed", "retried", "failed", "snoozed")}
    assert counts == {"completed": 3, "retried": 1, "failed": 1, "snoozed": 1}
    assert first.fields["types"] == {"work": 4, "other": 2}
    assert first.fields["seconds"] >= SUMMARY_S
    assert first.fields["per_second"] == round(6 / first.fields["seconds"], 1)


async def test_the_rest_is_summed_up_before_a_worker_says_that_it_has_ended(
    workshop: Workshop,
) -> None:
    async def work(job: Job[None]) -> None:
        return None

    workshop.handle("work", work)
    await workshop.start("work", count=7)
    await workshop.until_idle()
    names = [each.name for each in workshop.events.events]
    assert names.index("worker_summary") < names.index("worker_stopped")
    (summary,) = workshop.events.of("worker_summary")
    assert summary.fields["completed"] == 7
    assert summary.fields["run_p95_ms"] is not None


class Indifferent:
    def wants(self, name: str) -> bool:
        return name == "job_failed"

    def observe(self, event: Event) -> None:
        assert event.name == "job_failed"


async def test_an_event_that_nobody_wants_is_not_made(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def event(name: str, **fields: Any) -> Event:
        made.append(name)
        return Event(name, fields)

    async def work(job: Job[bool]) -> None:
        if job.input:
            raise Permanent("no")

    monkeypatch.setattr(worker_context, "event", event)
    workshop.handle("work", work)
    workshop.events = CompositeObserver(Indifferent())  # type: ignore[assignment]
    await workshop.start("work", False, count=5)
    await workshop.start("work", True)
    report = await workshop.until_idle()
    assert report.counters["processed"] == 5
    assert made == ["job_failed"]


def test_a_quantile_is_right_to_an_eighth() -> None:
    spread = Spread()
    assert spread.quantile_ms(0.5) is None
    for number in range(1, 1001):
        spread.add(number / 1000)
    for share in (0.05, 0.5, 0.95):
        assert spread.quantile_ms(share) == pytest.approx(share * 1000, rel=0.13)
    nothing = Spread()
    nothing.add(0.0)
    assert (nothing.quantile_ms(0.5) or 0) < 0.01


def test_logging_a_job_costs_little_at_the_default_level(tmp_path: Path) -> None:
    logger = logging.Logger("holdfast", logging.INFO)
    handler = logging.FileHandler(tmp_path / "log")
    logger.addHandler(handler)
    observer = CompositeObserver(LoggingObserver(logger))
    counters = Counters()
    emitter = Emitter("w-1", observer, SystemClock(), counters)

    async def work(job: Job[None]) -> None: ...

    type = job_type_of(work, "work", Job, {}, None)
    policy = TypePolicies({"work": type}, WorkerOptions()).get("work")
    claimed = ClaimedJob(
        id="j-1", token="t-1", type="work", priority=2, available_at=0, attempt=1, max_attempts=None, crashes=0,
        fence=1, chain_id="j-1", chain_index=0, input="null", blockers=0, trace=None, key=None, created_at=0,
        claimed_at=1_000,
    )  # fmt: skip
    attempt = Attempt(claimed, type, policy, 1.0, started_at=1.001, ended_at=1.002)
    finish = Finish("j-1", "t-1", "complete", "w-1", "j-1")
    rounds = []
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(JOBS):
            emitter.emit_started(attempt)
            emitter.emit_finished(attempt, finish)
        emitter.emit_summary(0)
        rounds.append((time.process_time() - began) / JOBS * 1e6)
    handler.close()
    lines = (tmp_path / "log").read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["worker_summary"] * ROUNDS
    assert counters.processed == ROUNDS * JOBS
    assert min(rounds) < MAX_US, rounds
