"""What a plain handler answers or raises, and what becomes of its job."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from holdfast.core.errors import (
    Busy,
    InvalidDuration,
    InvalidOption,
    Permanent,
    RoleRefused,
    WrongDatabase,
)
from holdfast.core.instants import Instant, to_instant
from holdfast.core.outcome import Cancel, Continue, Snooze
from holdfast.core.records import Finish, FinishKind, LeaseFate, LeaseStatus, State
from holdfast.core.retry import Retry
from holdfast.worker.completer import PendingOutcome, is_data_error, make_replacement, split_batches
from holdfast.worker.job import Job
from holdfast.worker.resolve_outcome import match_earlier_write
from tests.support.manual_clock import ManualClock
from tests.worker.test_backlog import attempt
from tests.worker.workshop import Workshop


@dataclass
class Order:
    id: int


class Declined(Exception):
    retryable = False


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Defiant(Exception):
    def __str__(self) -> str:
        raise SystemExit("not even words")


STRANGE_ERRORS = [
    SystemExit(3),
    KeyboardInterrupt(),
    GeneratorExit(),
    asyncio.CancelledError(),
    BaseExceptionGroup("several", [ValueError(), KeyboardInterrupt()]),
    Mute(),
    Defiant(),
    Permanent(ValueError("an error is a reason too")),
    Permanent(None),
]


def raising(error: BaseException) -> Any:
    async def handler(job: Job[Any]) -> None:
        raise error

    return handler


def raising_in_a_thread(error: BaseException) -> Any:
    def handler(job: Job[Any]) -> None:
        raise error

    return handler


def delay_ms(available_at: Instant | None, ended_at: Instant) -> int:
    assert available_at is not None
    return (available_at - ended_at) // 1000


async def test_a_returned_value_completes_the_job(workshop: Workshop) -> None:
    async def double(job: Job[int]) -> int:
        return job.input * 2

    workshop.handle("double", double)
    job_id = await workshop.start_one("double", 21)
    report = await workshop.until_idle()
    record = await workshop.job(job_id)
    assert (record.state, record.output, record.attempt) == ("completed", "42", 1)
    assert report.counters["processed"] == 1
    assert workshop.ledger.leases() == []


async def test_a_handler_that_returns_nothing_completes_with_null(workshop: Workshop) -> None:
    async def nothing(job: Job[Any]) -> None: ...

    workshop.handle("nothing", nothing)
    job_id = await workshop.start_one("nothing")
    await workshop.until_idle()
    assert (await workshop.job(job_id)).output == "null"


async def test_delays_between_attempts_grow_as_the_policy_says(workshop: Workshop) -> None:
    policy = Retry(base="10s", cap="35s", jitter="2s", max_attempts=4)
    workshop.handle("flaky", raising(OSError("no route")), retry=policy)
    job_id = await workshop.start_one("flaky")
    delays = []
    for _ in range(3):
        await workshop.until_idle(clock=ManualClock(random=0.5))
        record = await workshop.job(job_id)
        last = (await workshop.attempts(job_id))[-1]
        delays.append(delay_ms(record.available_at, last.ended_at))
        await workshop.run(workshop.store.jobs.trigger([job_id]))
    assert delays == [11_000, 21_000, 36_000]
    await workshop.until_idle()
    record = await workshop.job(job_id)
    assert (record.state, record.attempt) == ("failed", 4)
    history = await workshop.attempts(job_id)
    assert [(each.attempt, each.kind) for each in history] == [
        (1, "retry"),
        (2, "retry"),
        (3, "retry"),
        (4, "fail"),
    ]


@pytest.mark.parametrize("error", [Permanent("the card is stolen"), Declined("no")])
async def test_an_error_that_is_not_retryable_fails_at_once(
    workshop: Workshop, error: Exception
) -> None:
    workshop.handle("charge", raising(error))
    job_id = await workshop.start_one("charge")
    report = await workshop.until_idle()
    record = await workshop.job(job_id)
    assert (record.state, record.attempt) == ("failed", 1)
    assert record.error is not None
    assert record.error.startswith(f"{type(error).__name__}: ")
    assert report.counters["dead_letters"] == 1
    (told,) = workshop.events.of("job_failed", job_id=job_id)
    assert told.fields["fingerprint"] == record.fingerprint


class Throttled(Exception):
    def __init__(self, retry_after_ms: object) -> None:
        self.retry_after_ms = retry_after_ms
        super().__init__("later")


@pytest.mark.parametrize(
    ("said", "delay"), [(90_000, 90_000), (-1, 10_000), ("soon", 10_000), (True, 10_000)]
)
async def test_an_error_may_say_how_long_the_next_attempt_waits(
    workshop: Workshop, said: object, delay: int
) -> None:
    workshop.handle("sms", raising(Throttled(said)), retry=Retry(base="10s"))
    job_id = await workshop.start_one("sms")
    await workshop.until_idle(clock=ManualClock(random=0.0))
    record = await workshop.job(job_id)
    (attempt,) = await workshop.attempts(job_id)
    assert attempt.kind == "retry"
    assert delay_ms(record.available_at, attempt.ended_at) == delay


async def test_a_number_of_attempts_given_at_the_start_stands_before_the_types(
    workshop: Workshop,
) -> None:
    workshop.handle("flaky", raising(OSError()), retry=Retry(base="100ms", max_attempts=25))
    once, endless = (
        await workshop.start_one("flaky", max_attempts=1),
        await workshop.start_one("flaky", max_attempts=0),
    )
    await workshop.until_idle()
    assert await workshop.states([once, endless]) == ["failed", "pending"]


async def test_a_busy_handler_rests_its_type_in_this_process(workshop: Workshop) -> None:
    calls = 0

    async def call(job: Job[Any]) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise Busy("30s", "the provider says 429")

    async def other(job: Job[Any]) -> None: ...

    workshop.handle("call", call)
    workshop.handle("other", other)
    first = await workshop.start_one("call")
    clock = ManualClock()
    begun_at = clock.monotonic()
    worker = workshop.begin(clock, slots=1, batch=1)
    await workshop.events.seen("job_snoozed", job_id=first)
    record = await workshop.job(first)
    assert (record.state, record.attempt) == ("pending", 0)
    history = await workshop.attempts(first)
    assert delay_ms(record.available_at, history[0].ended_at) == 30_000
    assert history[0].error is not None
    assert "429" in history[0].error
    resting, free = await workshop.start_one("call"), await workshop.start_one("other")
    await workshop.seen_in_time(worker, "job_completed", step_s=0.05, job_id=free)
    assert (await workshop.job(resting)).state == "pending"
    await workshop.seen_in_time(worker, "job_completed", job_id=resting)
    assert clock.monotonic() >= begun_at + 30


async def test_a_snoozed_attempt_is_not_counted(workshop: Workshop) -> None:
    async def later(job: Job[Any]) -> Snooze:
        return Snooze("90s")

    workshop.handle("later", later)
    job_id = await workshop.start_one("later", max_attempts=1)
    report = await workshop.until_idle()
    record = await workshop.job(job_id)
    assert (record.state, record.attempt) == ("pending", 0)
    assert record.available_at is not None
    assert record.available_at - record.created_at >= 90_000_000
    assert report.counters["snoozed"] == 1
    assert await workshop.attempts(job_id) == []


NOON = datetime(2099, 7, 1, 12, tzinfo=timezone(timedelta(hours=2)))


@pytest.mark.parametrize(
    ("wish", "is_raised"),
    [
        pytest.param(Snooze(at=NOON), False, id="returned snooze at"),
        pytest.param(Snooze(NOON), False, id="returned snooze"),
        pytest.param(Snooze(at=NOON), True, id="raised snooze at"),
        pytest.param(Snooze(NOON), True, id="raised snooze"),
        pytest.param(Busy(at=NOON), True, id="raised busy at"),
        pytest.param(Busy(NOON, "full"), True, id="raised busy"),
    ],
)
async def test_a_handler_says_the_instant_of_its_next_call(
    workshop: Workshop, wish: Snooze | Busy, is_raised: bool
) -> None:
    async def later(job: Job[Any]) -> Any:
        if is_raised:
            raise wish
        return wish

    workshop.handle("later", later)
    job_id = await workshop.start_one("later", max_attempts=1)
    await workshop.until_idle()
    record = await workshop.job(job_id)
    assert (record.state, record.attempt) == ("pending", 0)
    assert record.available_at is not None
    # By the database's clock, as far as the worker can tell; never before it.
    assert 0 <= record.available_at - to_instant(NOON) < 30_000_000


async def test_an_instant_that_has_passed_means_now(workshop: Workshop) -> None:
    calls = 0

    def later(job: Job[Any]) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise Snooze(at=datetime(2001, 1, 1, tzinfo=UTC))

    workshop.handle("later", later)
    job_id = await workshop.start_one("later", max_attempts=1)
    await workshop.until_idle()
    assert ((await workshop.job(job_id)).state, calls) == ("completed", 2)


@pytest.mark.parametrize(
    "arguments",
    [{}, {"delay": "30s", "at": NOON}, {"at": datetime(2099, 1, 1)}, {"delay": "soon"}],  # noqa: DTZ001
    ids=str,
)
@pytest.mark.parametrize("wish", [Snooze, Busy])
def test_a_pause_that_says_nothing_is_refused(
    wish: Callable[..., object], arguments: dict[str, Any]
) -> None:
    with pytest.raises((InvalidOption, InvalidDuration)):
        wish(**arguments)


async def test_a_handler_cancels_its_job_with_a_reason(workshop: Workshop) -> None:
    async def never(job: Job[Any]) -> Cancel:
        return Cancel("the order was withdrawn")

    workshop.handle("never", never)
    job_id = await workshop.start_one("never")
    await workshop.until_idle()
    record = await workshop.job(job_id)
    assert (record.state, record.error) == ("cancelled", "Cancelled: the order was withdrawn")


async def test_a_chain_goes_on_with_the_next_job_at_once(workshop: Workshop) -> None:
    async def charge(job: Job[Order]) -> Continue:
        return Continue("ship", Order(job.input.id))

    async def ship(job: Job[Order]) -> str:
        return f"shipped {job.input.id} as {job.chain_index}"

    workshop.handle("charge", charge)
    workshop.handle("ship", ship)
    job_id = await workshop.start_one("charge", {"id": 7})
    worker = workshop.begin(ManualClock())
    await workshop.events.seen("job_completed", type="ship", chain_id=job_id)
    await worker.stop()
    first, second = await workshop.run(workshop.store.chains.jobs(job_id))
    assert (first.state, first.continued) == ("completed", True)
    assert (second.state, second.output) == ("completed", '"shipped 7 as 1"')


async def test_a_successor_that_nobody_knows_by_its_function_fails_at_once(
    workshop: Workshop,
) -> None:
    async def lost(job: Job[Any]) -> Continue:
        return Continue(raising)

    workshop.handle("lost", lost)
    job_id = await workshop.start_one("lost")
    await workshop.until_idle()
    record = await workshop.job(job_id)
    assert record.state == "failed"
    assert record.error is not None
    assert "UnknownJobType" in record.error


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (Continue("next", priority=10), "InvalidOption: priority=10"),
        (Continue("next", priority=1.5), "InvalidOption: priority=1.5"),  # type: ignore[arg-type]
        (Continue("next", options={"max_attempts": 0}), "InvalidOption: max_attempts=0"),
        (Continue("next", at="2030"), "InvalidOption: at='2030'"),  # type: ignore[arg-type]
        (Continue("no name"), "InvalidName: 'no name'"),
        (Continue("other"), "UnknownJobType: first does not declare"),
    ],
)
async def test_a_successor_that_no_worker_would_take_is_not_written(
    sqlite_workshop: Workshop, answer: Continue, complaint: str
) -> None:
    async def first(job: Job[Any]) -> Continue:
        return answer

    sqlite_workshop.handle("first", first, continues_to=["next", "no name"])
    job_id = await sqlite_workshop.start_one("first", max_attempts=1)
    await sqlite_workshop.until_idle()
    record = await sqlite_workshop.job(job_id)
    assert record.state == "failed"
    assert str(record.error).startswith(complaint)


async def test_errors_are_kept_cleaned_and_without_secrets(workshop: Workshop) -> None:
    told = "connect failed: password=hunter2 \x00\x1b[31m" + "x" * 20_000
    workshop.handle("leak", raising(ConnectionError(told)))
    job_id = await workshop.start_one("leak", max_attempts=1)
    await workshop.until_idle()
    record = await workshop.job(job_id)
    (attempt,) = await workshop.attempts(job_id)
    for text in (record.error, attempt.error):
        assert text is not None
        assert text.startswith("ConnectionError: connect failed: ")
        assert "hunter2" not in text
        assert "\x1b" not in text
        assert len(text.encode()) <= 8_192
    assert record.fingerprint
    assert attempt.worker is not None
    assert attempt.started_at is not None
    assert attempt.started_at <= attempt.ended_at


@pytest.mark.parametrize("handler", [raising, raising_in_a_thread])
@pytest.mark.parametrize("error", STRANGE_ERRORS, ids=lambda error: type(error).__name__)
async def test_a_strange_exception_is_a_failed_attempt_like_any_other(
    sqlite_workshop: Workshop, handler: Callable[..., Any], error: BaseException
) -> None:
    workshop = sqlite_workshop
    workshop.handle("strange", handler(error))
    job_id = await workshop.start_one("strange", max_attempts=1)
    await workshop.until_idle()
    record = await workshop.job(job_id)
    assert record.state == "failed"
    assert record.error is not None
    assert record.error.startswith(type(error).__name__)


async def test_an_error_that_cannot_be_read_is_a_failed_attempt(sqlite_workshop: Workshop) -> None:
    class Unsure(Exception):
        @property
        def retryable(self) -> bool:
            raise RuntimeError("who knows")

    sqlite_workshop.handle("unsure", raising(Unsure()))
    job_id = await sqlite_workshop.start_one("unsure", max_attempts=1)
    await sqlite_workshop.until_idle()
    assert str((await sqlite_workshop.job(job_id)).error).startswith("Unreadable: ")


class HalfBusy(Busy):
    """What an application makes of it that forgets `super().__init__`."""

    def __init__(self) -> None:
        self.message = "429"


async def test_a_busy_of_the_application_that_says_no_delay_is_a_failed_attempt(
    workshop: Workshop,
) -> None:
    workshop.handle("busy", raising(HalfBusy()))
    job_id = await workshop.start_one("busy")
    await workshop.until_idle(slots=1)
    record = await workshop.job(job_id)
    assert (record.state, record.attempt, record.crashes) == ("pending", 1, 0)
    assert "has no attribute" in str((await workshop.attempts(job_id))[0].error)


@pytest.mark.parametrize("handler", [raising, raising_in_a_thread])
async def test_a_stop_iteration_that_escapes_is_a_failed_attempt(
    sqlite_workshop: Workshop, handler: Callable[..., Any]
) -> None:
    sqlite_workshop.handle("exhausted", handler(StopIteration()))
    job_id = await sqlite_workshop.start_one("exhausted", max_attempts=1)
    await sqlite_workshop.until_idle()
    assert (await sqlite_workshop.job(job_id)).error is not None


async def test_a_handler_that_cancels_its_own_task_fails_and_its_slot_goes_on(
    sqlite_workshop: Workshop,
) -> None:
    async def give_up(job: Job[Any]) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    sqlite_workshop.handle("give_up", give_up)
    ids = await sqlite_workshop.start("give_up", count=3, max_attempts=1)
    await sqlite_workshop.until_idle(slots=1)
    assert await sqlite_workshop.states(ids) == ["failed"] * 3


@pytest.mark.parametrize(
    "answer", [Cancel("a \x00 and a \ud800"), Cancel("x" * 100_000)], ids=["unprintable", "long"]
)
async def test_the_reason_of_a_cancellation_is_cleaned(workshop: Workshop, answer: Cancel) -> None:
    async def withdraw(job: Job[Any]) -> Cancel:
        return answer

    workshop.handle("withdraw", withdraw)
    job_id = await workshop.start_one("withdraw")
    await workshop.until_idle()
    record = await workshop.job(job_id)
    assert record.state == "cancelled"
    assert record.error is not None
    assert len(record.error.encode()) <= 8_192


async def test_the_words_of_a_busy_handler_are_cleaned(workshop: Workshop) -> None:
    workshop.handle("busy", raising(Busy("1h", "a \ud800")))
    job_id = await workshop.start_one("busy")
    await workshop.until_idle()
    assert (await workshop.job(job_id)).state == "pending"


@pytest.mark.parametrize("error", [RoleRefused("no right"), WrongDatabase("no schema")])
def test_what_is_wrong_with_the_database_is_no_reason_to_record_a_failure(error: Exception) -> None:
    assert not is_data_error(error)


async def test_an_outcome_that_cannot_even_be_sent_keeps_no_other_from_being_written(
    workshop: Workshop,
) -> None:
    async def go_on(job: Job[Any]) -> Continue:
        return Continue("next", None, options={"key": "\ud800"})

    async def double(job: Job[int]) -> int:
        return job.input * 2

    workshop.handle("go_on", go_on)
    workshop.handle("next", double)
    workshop.handle("double", double)
    bad = await workshop.start_one("go_on")
    good = await workshop.start("double", 2, count=20)
    await workshop.until_idle()
    assert (await workshop.job(bad)).state == "failed"
    assert await workshop.states(good) == ["completed"] * 20


async def test_an_output_that_the_declared_type_does_not_fit_fails_the_job(
    workshop: Workshop,
) -> None:
    async def wrong(job: Job[Any]) -> int:
        return "seven"  # type: ignore[return-value]

    workshop.handle("wrong", wrong)
    job_id = await workshop.start_one("wrong")
    await workshop.until_idle()
    record = await workshop.job(job_id)
    assert record.state == "failed"
    assert record.error is not None
    assert "OutputInvalid" in record.error


def test_a_flush_is_bounded_in_bytes_as_well_as_in_number() -> None:
    attempt: Any = None
    pending = [
        PendingOutcome(attempt, Finish(str(each), "t", "complete", "w", str(each)), 0.0, 1_000_000)
        for each in range(10)
    ]
    assert [len(each) for each in split_batches(pending, 1_000)] == [4, 4, 2]
    assert [len(each) for each in split_batches(pending, 3)] == [3, 3, 3, 1]


async def test_a_successors_delay_begins_when_its_predecessor_ends(workshop: Workshop) -> None:
    go = asyncio.Event()

    async def charge(job: Job[Any]) -> Continue:
        await go.wait()
        return Continue("ship", after="1m")

    workshop.handle("charge", charge)
    job_id = await workshop.start_one("charge")
    worker = workshop.begin(ManualClock())
    await workshop.events.seen("job_started", job_id=job_id)
    await worker.advance_to_a_beat(20)
    go.set()
    await workshop.events.seen("job_continued", job_id=job_id)
    await worker.stop()
    first, second = await workshop.run(workshop.store.chains.jobs(job_id))
    assert second.available_at - first.created_at >= 80_000_000


def test_what_kept_a_sealed_outcome_from_being_written_is_not_repeated() -> None:
    sealed = attempt(1)
    sealed.sealed = True
    finish = Finish("j", "t", "complete", "w", "j")
    pending = PendingOutcome(sealed, finish, 0.0, 1)
    replaced = make_replacement(pending, ValueError("cannot send 'card 4111'"))
    assert (replaced.finish.kind, replaced.finish.worker) == ("fail", "w")
    assert "ValueError" in str(replaced.finish.error)
    assert "4111" not in str(replaced.finish.error)


@pytest.mark.parametrize(
    ("sent", "lease", "state", "unsure", "was"),
    [
        ("complete", "done", "completed", False, "complete"),
        ("continue", "done", "completed", False, "continue"),
        ("fail", "done", "completed", False, "complete"),
        ("complete", "done", "failed", False, "fail"),
        ("continue", "done", "cancelled", False, "cancel"),
        ("complete", "ended", "completed", True, None),
        ("complete", "free", None, True, None),
        ("retry", "free", None, False, None),
        *(
            (kind, lease, None, True, kind)
            for kind in ("retry", "snooze", "release")
            for lease in ("free", "taken")
        ),
        ("retry", "gone", None, True, None),
    ],
)
def test_an_outcome_that_was_written_before_is_known_as_ones_own(
    sent: FinishKind, lease: LeaseFate, state: State | None, unsure: bool, was: FinishKind | None
) -> None:
    finish = Finish("j", "t", sent, "w", "j")
    found = match_earlier_write(finish, LeaseStatus("j", "t", lease, state), unsure)
    assert (found and found.kind) == was
