"""Atomic and staged handlers, in both colours: their rows and their completion are one, or neither is."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast.core.errors import AlreadyCompleting, LeaseLost, WrongState
from holdfast.core.outcome import Cancel, Continue, Snooze
from holdfast.core.records import Held
from holdfast.storage.database import Database
from holdfast.worker.job import Job, Next
from tests.support.links import DisturbedDatabase
from tests.support.manual_clock import ManualClock
from tests.support.until import until
from tests.worker.faults import Faults
from tests.worker.workshop import Workshop

Effect = Callable[[Any, str], Any]


@pytest.fixture
def effect(workshop: Workshop) -> Effect:
    """Write a business row on the handler's own transaction; to be awaited in an async handler."""
    return lambda tx, note: tx.execute(workshop.ledger.write_effect, [note])


async def settled(workshop: Workshop, job_id: str) -> tuple[str, list[str]]:
    await workshop.until_idle()
    return (await workshop.job(job_id)).state, workshop.ledger.effects()


async def test_an_atomic_handlers_rows_commit_with_its_completion(
    workshop: Workshop, effect: Effect
) -> None:
    async def pay(job: Job[Any]) -> str:
        await effect(job.tx, "paid")
        return "ok"

    workshop.handle("pay", pay, atomic=True)
    job_id = await workshop.start_one("pay")
    assert await settled(workshop, job_id) == ("completed", ["paid"])


async def test_an_atomic_handler_in_a_thread_commits_the_same_way(
    workshop: Workshop, effect: Effect
) -> None:
    threads = set()

    def pay(job: Job[Any]) -> str:
        threads.add(threading.current_thread().name)
        effect(job.tx, "paid")
        return "ok"

    workshop.handle("pay", pay, atomic=True)
    job_id = await workshop.start_one("pay")
    assert await settled(workshop, job_id) == ("completed", ["paid"])
    (name,) = threads
    assert name.startswith("holdfast-handler")


async def test_leases_of_handlers_own_transactions_go_at_once_and_none_stays_behind(
    workshop: Workshop, effect: Effect
) -> None:
    async def pay(job: Job[Any]) -> None:
        await effect(job.tx, "paid")

    workshop.handle("pay", pay, atomic=True)
    async with workshop.working(slots=2, notifier=workshop.notifier):
        await workshop.start("pay", count=20)
        workshop.have_due()
        await workshop.events.seen("job_completed", count=20)
        await until(lambda: workshop.ledger.rows("lease") == 0)
        await workshop.start("pay", count=5)
        workshop.have_due()
        await workshop.events.seen("job_completed", count=25)
    assert workshop.ledger.rows("lease") == 0


@pytest.mark.parametrize("colour", ["async", "sync"])
async def test_an_atomic_handler_that_raises_leaves_no_row_and_is_tried_again(
    workshop: Workshop, effect: Effect, colour: str
) -> None:
    async def pay(job: Job[Any]) -> None:
        await effect(job.tx, "paid")
        raise OSError("the line went dead")

    def pay_in_thread(job: Job[Any]) -> None:
        effect(job.tx, "paid")
        raise OSError("the line went dead")

    workshop.handle("pay", pay if colour == "async" else pay_in_thread, atomic=True)
    job_id = await workshop.start_one("pay")
    assert await settled(workshop, job_id) == ("pending", [])
    (attempt,) = await workshop.attempts(job_id)
    assert attempt.error is not None
    assert "the line went dead" in attempt.error


@pytest.mark.parametrize("atomic", [True, False])
async def test_a_statement_of_the_handler_that_fails_does_not_poison_the_bookkeeping(
    workshop: Workshop, effect: Effect, atomic: bool
) -> None:
    async def pay(job: Job[Any]) -> None:
        if atomic:
            await effect(job.tx, "paid")
            await job.tx.execute("select nonsense from nowhere")
        async with job.complete() as done:
            await effect(done.tx, "paid")
            await done.tx.execute("select nonsense from nowhere")

    workshop.handle("pay", pay, atomic=atomic)
    job_id = await workshop.start_one("pay", max_attempts=2)
    assert await settled(workshop, job_id) == ("pending", [])
    (attempt,) = await workshop.attempts(job_id)
    assert attempt.error is not None
    assert "nowhere" in attempt.error


async def test_a_staged_handler_prepares_works_and_completes(
    workshop: Workshop, effect: Effect
) -> None:
    between = []

    async def order(job: Job[Any]) -> str:
        async with job.prepare() as tx:
            await effect(tx, "reserved")
        between.append(workshop.ledger.effects())
        async with job.complete() as done:
            await effect(done.tx, "paid")
            return "ok"

    workshop.handle("order", order)
    job_id = await workshop.start_one("order")
    assert await settled(workshop, job_id) == ("completed", ["reserved", "paid"])
    assert between == [["reserved"]]


async def test_a_staged_handler_in_a_thread_uses_plain_blocks(
    workshop: Workshop, effect: Effect
) -> None:
    def order(job: Job[Any]) -> str:
        with job.prepare() as tx:
            effect(tx, "reserved")
        with job.complete() as done:
            effect(done.tx, "paid")
        return "ok"

    workshop.handle("order", order)
    job_id = await workshop.start_one("order")
    assert await settled(workshop, job_id) == ("completed", ["reserved", "paid"])


@pytest.mark.parametrize("colour", ["async", "sync"])
async def test_an_exception_after_complete_undoes_it(
    workshop: Workshop, effect: Effect, colour: str
) -> None:
    async def order(job: Job[Any]) -> None:
        async with job.complete() as done:
            await effect(done.tx, "paid")
        raise OSError("too early to be glad")

    def order_in_thread(job: Job[Any]) -> None:
        with job.complete() as done:
            effect(done.tx, "paid")
        raise OSError("too early to be glad")

    workshop.handle("order", order if colour == "async" else order_in_thread)
    job_id = await workshop.start_one("order")
    assert await settled(workshop, job_id) == ("pending", [])


@pytest.mark.parametrize("colour", ["async", "sync"])
async def test_an_exception_that_leaves_the_block_undoes_its_rows_even_if_it_is_caught(
    workshop: Workshop, effect: Effect, colour: str
) -> None:
    async def order(job: Job[Any]) -> str:
        try:
            async with job.complete() as done:
                await effect(done.tx, "paid")
                raise OSError
        except OSError:
            return "not paid"

    def order_in_thread(job: Job[Any]) -> str:
        try:
            with job.complete() as done:
                effect(done.tx, "paid")
                raise OSError
        except OSError:
            return "not paid"

    workshop.handle("order", order if colour == "async" else order_in_thread)
    job_id = await workshop.start_one("order")
    assert await settled(workshop, job_id) == ("completed", [])
    assert (await workshop.job(job_id)).output == '"not paid"'


async def test_the_completion_commits_only_when_the_middlewares_have_returned(
    workshop: Workshop, effect: Effect
) -> None:
    seen: list[list[str]] = []

    async def look(job: Job[Any], next: Next) -> Any:
        answer = await next()
        seen.append(workshop.ledger.effects())
        return answer

    async def order(job: Job[Any]) -> None:
        async with job.complete() as done:
            await effect(done.tx, "paid")

    workshop.handle("order", order)
    job_id = await workshop.start_one("order")
    await workshop.until_idle(middlewares=(look,))
    assert seen == [[]]
    assert workshop.ledger.effects() == ["paid"]
    assert (await workshop.job(job_id)).state == "completed"


async def test_a_middleware_that_fails_after_the_handler_undoes_the_completion(
    workshop: Workshop, effect: Effect
) -> None:
    async def fail(job: Job[Any], next: Next) -> Any:
        await next()
        raise OSError("the audit log is full")

    async def order(job: Job[Any]) -> None:
        await effect(job.tx, "paid")

    workshop.handle("order", order, atomic=True)
    job_id = await workshop.start_one("order")
    await workshop.until_idle(middlewares=(fail,))
    assert workshop.ledger.effects() == []
    (attempt,) = await workshop.attempts(job_id)
    assert attempt.error is not None
    assert "the audit log is full" in attempt.error


@pytest.mark.parametrize(
    ("answer", "state"), [(Snooze("1h"), "pending"), (Cancel("no"), "cancelled")]
)
async def test_every_outcome_commits_with_the_rows_of_an_atomic_handler(
    workshop: Workshop, effect: Effect, answer: Any, state: str
) -> None:
    async def pay(job: Job[Any]) -> Any:
        await effect(job.tx, "noted")
        return answer

    workshop.handle("pay", pay, atomic=True)
    job_id = await workshop.start_one("pay")
    assert await settled(workshop, job_id) == (state, ["noted"])


async def test_a_raised_snooze_undoes_the_rows_of_an_atomic_handler(
    workshop: Workshop, effect: Effect
) -> None:
    async def pay(job: Job[Any]) -> None:
        await effect(job.tx, "noted")
        raise Snooze("1h")

    workshop.handle("pay", pay, atomic=True)
    job_id = await workshop.start_one("pay")
    assert await settled(workshop, job_id) == ("pending", [])
    assert await workshop.attempts(job_id) == []


async def test_a_completion_continues_the_chain_in_its_own_transaction(
    workshop: Workshop, effect: Effect
) -> None:
    async def charge(job: Job[Any]) -> Continue:
        async with job.complete() as done:
            await effect(done.tx, "charged")
            return done.continue_with("ship", 7)

    async def ship(job: Job[int]) -> int:
        return job.input

    workshop.handle("charge", charge)
    workshop.handle("ship", ship)
    job_id = await workshop.start_one("charge")
    await workshop.until_idle()
    jobs = await workshop.run(workshop.store.chains.jobs(job_id))
    assert [(each.type, each.state) for each in jobs] == [
        ("charge", "completed"),
        ("ship", "completed"),
    ]


async def twice_complete(job: Job[Any]) -> None:
    job.complete()
    job.complete()


async def twice_prepare(job: Job[Any]) -> None:
    async with job.prepare():
        pass
    job.prepare()


async def prepare_after_complete(job: Job[Any]) -> None:
    async with job.complete():
        job.prepare()


async def complete_within_prepare(job: Job[Any]) -> None:
    async with job.prepare():
        job.complete()


async def enter_complete_twice(job: Job[Any]) -> None:
    completion = job.complete()
    async with completion:
        pass
    async with completion:
        pass


async def enter_prepare_twice(job: Job[Any]) -> None:
    preparation = job.prepare()
    async with preparation:
        pass
    async with preparation:
        pass


@pytest.mark.parametrize(
    "misuse",
    [
        twice_complete,
        twice_prepare,
        prepare_after_complete,
        complete_within_prepare,
        enter_complete_twice,
        enter_prepare_twice,
    ],
)
async def test_stages_out_of_order_are_refused(
    workshop: Workshop, misuse: Callable[[Job[Any]], Awaitable[None]]
) -> None:
    errors = []

    async def handler(job: Job[Any]) -> None:
        try:
            await misuse(job)
        except AlreadyCompleting as error:
            errors.append(error.code)
            raise

    workshop.handle("misuse", handler)
    job_id = await workshop.start_one("misuse")
    assert await settled(workshop, job_id) == ("failed", [])
    assert errors == ["HF054"]


async def test_an_atomic_handler_has_no_stages_and_a_plain_one_no_transaction(
    workshop: Workshop,
) -> None:
    errors: list[Exception] = []

    async def atomic(job: Job[Any]) -> None:
        for stage in (job.prepare, job.complete):
            try:
                stage()
            except AlreadyCompleting as error:
                errors.append(error)

    async def plain(job: Job[Any]) -> None:
        try:
            _ = job.tx
        except WrongState as error:
            errors.append(error)

    workshop.handle("atomic", atomic, atomic=True)
    workshop.handle("plain", plain)
    await workshop.start("atomic")
    await workshop.start("plain")
    await workshop.until_idle()
    assert sorted(type(each).__name__ for each in errors) == [
        "AlreadyCompleting",
        "AlreadyCompleting",
        "WrongState",
    ]


@pytest.mark.parametrize("colour", ["async", "sync"])
async def test_a_preparation_does_not_begin_once_the_job_is_lost(
    workshop: Workshop, effect: Effect, colour: str
) -> None:
    reasons: list[str] = []
    lost = threading.Event()

    async def order(job: Job[Any]) -> None:
        if job.attempt > 1:
            return
        await asyncio.to_thread(lost.wait)
        with pytest.raises(LeaseLost) as refused:
            async with job.prepare() as tx:
                await effect(tx, "reserved")
        reasons.append(refused.value.reason)

    def order_in_thread(job: Job[Any]) -> None:
        if job.attempt > 1:
            return
        lost.wait()
        with pytest.raises(LeaseLost) as refused, job.prepare() as tx:
            effect(tx, "reserved")
        reasons.append(refused.value.reason)

    workshop.handle("order", order if colour == "async" else order_in_thread)
    job_id = await workshop.start_one("order")
    worker = workshop.begin(ManualClock())
    await workshop.events.seen("job_started", job_id=job_id)
    assert await workshop.reap_as_if_later(postponed=True) == [job_id]
    lost.set()
    await workshop.events.seen("write_refused", job_id=job_id)
    await worker.stop()
    assert (reasons, workshop.ledger.effects()) == (["taken_by_another_worker"], [])


@pytest.mark.parametrize("colour", ["async", "sync"])
async def test_a_preparation_whose_job_is_lost_meanwhile_is_undone(
    postgres_workshop: Workshop, colour: str
) -> None:
    workshop, reasons = postgres_workshop, list[str]()
    written, lost = threading.Event(), threading.Event()

    async def order(job: Job[Any]) -> None:
        try:
            async with job.prepare() as tx:
                await tx.execute(workshop.ledger.write_effect, ["reserved"])
                written.set()
                await asyncio.to_thread(lost.wait)
        except LeaseLost as error:
            reasons.append(error.reason)

    def order_in_thread(job: Job[Any]) -> None:
        try:
            with job.prepare() as tx:
                tx.execute(workshop.ledger.write_effect, ["reserved"])
                written.set()
                lost.wait()
        except LeaseLost as error:
            reasons.append(error.reason)

    workshop.handle("order", order if colour == "async" else order_in_thread)
    job_id = await workshop.start_one("order")
    worker = workshop.begin(ManualClock())
    await until(written.is_set)
    assert await workshop.reap_as_if_later(postponed=True) == [job_id]
    lost.set()
    await workshop.events.seen("write_refused", job_id=job_id)
    await worker.stop()
    assert (reasons, workshop.ledger.effects()) == (["taken_by_another_worker"], [])


async def test_a_preparation_waits_for_the_transaction_that_has_locked_its_row(
    postgres_workshop: Workshop,
) -> None:
    workshop, committing, commit = postgres_workshop, threading.Event(), threading.Event()

    def order(job: Job[Any]) -> str:
        with job.prepare() as tx:
            tx.execute(workshop.ledger.write_effect, ["reserved"])
            committing.set()
            commit.wait()
        return "ok"

    workshop.handle("order", order)
    job_id = await workshop.start_one("order")
    worker = workshop.begin(ManualClock())
    await until(committing.is_set)
    with workshop.ledger.lock(job_id):
        commit.set()
        await until(workshop.ledger.waits_for_a_lock)
        assert workshop.ledger.effects() == []
    await workshop.events.seen("job_completed", job_id=job_id)
    await worker.stop()
    assert workshop.ledger.effects() == ["reserved"]


class SlowToOpen(DisturbedDatabase):
    """A database that opens no transaction until the test lets it."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, Faults())
        self.asked, self.may_open = threading.Event(), threading.Event()

    def transaction(self, held: Held, is_first: bool) -> Any:
        self.asked.set()
        self.may_open.wait()
        return self._database.transaction(held, is_first)


async def test_an_atomic_handler_whose_job_is_lost_before_it_began_is_not_called(
    workshop: Workshop,
) -> None:
    called: list[Any] = []
    database = SlowToOpen(workshop.database)

    def pay(job: Job[Any]) -> None:
        called.append(job.abort_reason)

    workshop.handle("pay", pay, atomic=True)
    job_id = await workshop.start_one("pay")
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier, database=database)
    await until(database.asked.is_set)
    assert await workshop.reap_as_if_later(postponed=True) == [job_id]
    workshop.have_leases_checked(worker)
    await workshop.events.seen("lease_lost", job_id=job_id)
    database.may_open.set()
    await until(lambda: worker.worker.running == 0)
    report = await worker.stop()
    assert (called, report.abandoned) == ([], 0)
