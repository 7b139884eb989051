"""One sentence says where a job stands."""

from typing import Any

import msgspec
import pytest

from holdfast.commands.explain import PartitionView, Surroundings, explain, why
from holdfast.core.declared_limits import DeclaredLimits
from holdfast.core.partitions import BatchRule, PartitionPlace, PartitionRule, PartitionState
from holdfast.core.records import (
    BlockerRecord,
    Identity,
    JobRecord,
    RevisionRecord,
    State,
    TypeSetting,
)
from holdfast.core.steps import StepKind, StepRecord
from holdfast.core.worker_presence import WorkerRecord

SECOND = 1_000_000
NOW = 1_800_000_000 * SECOND


def job(state: State, **fields: Any) -> JobRecord:
    record = JobRecord(
        id="j",
        chain_id="c",
        chain_index=0,
        type="resize",
        state=state,
        priority=5,
        input="null",
        key=None,
        trace=None,
        created_at=NOW,
        planned_at=None,
        available_at=NOW,
        attempt=0,
        max_attempts=None,
        crashes=0,
        fence=0,
        worker=None,
        lease_expires_at=None,
        output=None,
        error=None,
        fingerprint=None,
        continued=False,
        started_at=None,
        finished_at=None,
    )
    return msgspec.structs.replace(record, **fields)


def worker(**fields: Any) -> WorkerRecord:
    record = WorkerRecord(
        id="w-7",
        name="w",
        host="h",
        pid=1,
        version="0",
        slots=2,
        types=["resize"],
        started_at=NOW,
        seen_at=NOW,
        stopped_at=None,
        draining=False,
        counters={},
        last_error=None,
    )
    return msgspec.structs.replace(record, **fields)


def blocker(open: bool, state: State) -> BlockerRecord:
    return BlockerRecord("j", 0, "c", open, "wait", state, None)


def asked_for(due_s: int, latest_s: int | None) -> RevisionRecord:
    latest = None if latest_s is None else NOW + latest_s * SECOND
    return RevisionRecord(NOW + due_s * SECOND, latest, 2)


def in_batch(next_s: int) -> PartitionView:
    """A job of a tenant that waits for more of them."""
    due = NOW - 8 * SECOND
    place = PartitionPlace("j", "resize#7", due, 2, NOW + next_s * SECOND)
    declared = DeclaredLimits("resize", "tenant_id", batch=BatchRule(100, 20_000))
    return PartitionView(place, declared, declared.rule(place.gate), PartitionState(place.gate))


def in_line(rule: PartitionRule, *holders: str, **state: Any) -> PartitionView:
    """A job of a tenant behind a limit, with two before it."""
    place = PartitionPlace("j", "resize#7", NOW - 8 * SECOND, 2)
    declared = DeclaredLimits("resize", "tenant_id", per_key=rule)
    return PartitionView(
        place, declared, rule, PartitionState(place.gate, len(holders), [*holders], **state)
    )


def behind_total(rule: PartitionRule, *holders: str, **state: Any) -> PartitionView:
    """A job of a type, behind a limit of all of its jobs or of a name."""
    place = PartitionPlace("j", "resize#", NOW - 8 * SECOND, 0)
    declared = DeclaredLimits("resize", shared=(rule,))
    total = PartitionState(rule.id, len(holders), [*holders], **state)
    return PartitionView(
        place, declared, PartitionRule(place.gate), PartitionState(place.gate), [(total, rule)]
    )


def starts(*ago_s: int) -> list[list[int]]:
    """One start each, so long ago."""
    return [[NOW - each * SECOND, 1] for each in ago_s]


def identity(paused: bool) -> Identity:
    return Identity("i", "db", "db", paused, "ana", NOW - 7_200 * SECOND)


HANDLED = Surroundings(NOW, workers=[worker()])


@pytest.mark.parametrize(
    ("record", "around", "sentence"),
    [
        (
            job("blocked", available_at=None),
            Surroundings(
                NOW, blockers=[blocker(True, "running")] * 2 + [blocker(False, "completed")] * 3
            ),
            "Waiting for 2 of 5 chains",
        ),
        (
            job("blocked", available_at=None),
            Surroundings(NOW, blockers=[blocker(True, "failed")]),
            "Waiting for 1 of 1 chain; 1 failed or cancelled",
        ),
        (
            job("pending"),
            msgspec.structs.replace(HANDLED, identity=identity(True)),
            "Everything is paused by ana 2 h ago",
        ),
        (
            job("pending"),
            msgspec.structs.replace(
                HANDLED,
                identity=identity(False),
                setting=TypeSetting("resize", True, "ana", NOW - 10_800 * SECOND),
            ),
            "Paused by ana 3 h ago",
        ),
        (job("pending"), Surroundings(NOW), "No live worker handles resize"),
        (
            job("pending"),
            Surroundings(NOW, workers=[worker(types=["other"])]),
            "No live worker handles resize",
        ),
        (
            job("pending"),
            Surroundings(NOW, workers=[worker(draining=True)]),
            "Every live worker that handles resize is draining",
        ),
        (
            job("pending", attempt=4, max_attempts=9, available_at=NOW + 41 * SECOND),
            HANDLED,
            "Retry 4 of 8 in 41 s",
        ),
        (
            job("pending", attempt=4, available_at=NOW + 41 * SECOND),
            msgspec.structs.replace(HANDLED, setting=TypeSetting("resize", max_attempts=6)),
            "Retry 4 of 5 in 41 s",
        ),
        (job("pending", attempt=1, available_at=NOW + 90 * SECOND), HANDLED, "Retry 1 in 1 min"),
        (
            job("pending", attempt=1, available_at=NOW + 90 * SECOND),
            msgspec.structs.replace(HANDLED, last_error="ValueError: no\n  File ..."),
            "Retry 1 in 1 min; the last attempt failed: ValueError: no",
        ),
        (
            job("pending", crashes=1, attempt=1, available_at=NOW + 10 * SECOND),
            HANDLED,
            "Its worker crashed once; next attempt in 10 s",
        ),
        (
            job("pending", crashes=2, attempt=2, available_at=NOW + 10 * SECOND),
            HANDLED,
            "Its worker crashed 2 times; next attempt in 10 s, alone, because it crashed its worker",
        ),
        (
            job("pending", crashes=2, attempt=2, available_at=NOW - SECOND),
            HANDLED,
            "Due for 1 s; its worker crashed 2 times, so it will run alone",
        ),
        (
            job("pending", crashes=1, attempt=1, available_at=NOW - 7 * SECOND),
            msgspec.structs.replace(HANDLED, crashed_before=3),
            "Due for 7 s; its worker crashed once, so it waits for a worker that isn't running another such job;"
            " 3 ahead of it",
        ),
        (
            job("running", crashes=2, worker="w-7", lease_expires_at=NOW + 12 * SECOND),
            HANDLED,
            "Leased by w-7, expires in 12 s; its worker crashed 2 times, so it runs alone",
        ),
        (job("pending", available_at=NOW + 86_400 * SECOND), HANDLED, "Scheduled to start in 1 d"),
        (
            job("pending", available_at=NOW + SECOND, key="k"),
            msgspec.structs.replace(HANDLED, debounce=asked_for(18, 240)),
            "Starts in 18 s unless requested again, no later than in 4 min",
        ),
        (
            job("pending", available_at=NOW + SECOND, key="k"),
            msgspec.structs.replace(HANDLED, debounce=asked_for(18, None)),
            "Starts in 18 s unless requested again",
        ),
        (
            job("pending", available_at=NOW + SECOND, key="k"),
            msgspec.structs.replace(HANDLED, debounce=asked_for(18, 18)),
            "Starts in 18 s, its latest time",
        ),
        (
            job("pending", available_at=NOW - 8 * SECOND),
            msgspec.structs.replace(HANDLED, partition=in_batch(12)),
            "Waiting up to 12 s for more jobs of tenant_id 7, for a batch of 100",
        ),
        (
            job("pending", available_at=NOW - 8 * SECOND),
            msgspec.structs.replace(HANDLED, partition=in_batch(0)),
            "Due for 8 s; picked up at the next poll",
        ),
        (
            job("pending", available_at=NOW - 8 * SECOND),
            msgspec.structs.replace(
                HANDLED, partition=in_line(PartitionRule("resize", 2), "a", "b")
            ),
            "Waiting for tenant_id 7: 2 of 2 running; 2 ahead of it",
        ),
        (
            job("pending", available_at=NOW - 8 * SECOND),
            msgspec.structs.replace(
                HANDLED,
                partition=in_line(PartitionRule("resize#7", None, 2, 60_000), starts=starts(20, 5)),
            ),
            "Waiting for tenant_id 7: at most 2/1m, the next can start in 40 s; 2 ahead of it",
        ),
        (
            job("pending", available_at=NOW - 8 * SECOND),
            msgspec.structs.replace(
                HANDLED,
                partition=in_line(PartitionRule("resize#7", None, 2, 60_000), starts=starts(61, 5)),
            ),
            "Due for 8 s; at most 2/1m for tenant_id 7; 2 ahead of it; picked up at the next poll",
        ),
        (
            job("pending", available_at=NOW - 8 * SECOND),
            msgspec.structs.replace(
                HANDLED,
                partition=behind_total(PartitionRule("resize", None, 1, 60_000), starts=starts(48)),
            ),
            "Waiting for resize: at most 1/1m, the next can start in 12 s",
        ),
        (
            job("pending", available_at=NOW - 8 * SECOND),
            msgspec.structs.replace(
                HANDLED,
                partition=behind_total(
                    PartitionRule("@openai", None, 2, 60_000), starts=starts(30, 48, 3)
                ),
            ),
            "Waiting for openai: at most 2/1m, the next can start in 30 s",
        ),
        (
            job("pending", available_at=NOW - 8 * SECOND),
            msgspec.structs.replace(
                HANDLED, partition=behind_total(PartitionRule("resize", 2), "a", "b")
            ),
            "Waiting for resize: 2 of 2 running",
        ),
        (
            job("pending", available_at=NOW - 8 * SECOND),
            msgspec.structs.replace(
                HANDLED,
                partition=in_line(
                    PartitionRule("resize#7", 2), paused_until=NOW + 25 * SECOND, reason="Busy: 429"
                ),
            ),
            "tenant_id 7 is paused for 25 s: Busy: 429",
        ),
        (
            job("blocked", available_at=None, key="k"),
            Surroundings(NOW, blockers=[blocker(True, "running")], debounce=asked_for(1, 9)),
            "Requested again while it ran: starts after chain c ends",
        ),
        (
            job("pending", available_at=NOW - 3 * SECOND),
            msgspec.structs.replace(HANDLED, running=2),
            "Due for 3 s; all workers are busy",
        ),
        (
            job("pending", available_at=NOW - SECOND // 2),
            HANDLED,
            "Due for 500 ms; picked up at the next poll",
        ),
        (
            job("running", worker="w-7", lease_expires_at=NOW + 12 * SECOND),
            HANDLED,
            "Leased by w-7, expires in 12 s",
        ),
        (
            job("running", worker="w-7", lease_expires_at=NOW - 4 * SECOND),
            HANDLED,
            "The lease of w-7 expired 4 s ago; the reaper will recover it",
        ),
        (
            job("running", worker="w-7", lease_expires_at=NOW - 4 * SECOND),
            Surroundings(NOW),
            "The lease of w-7 expired 4 s ago; no live worker: run `holdfast reap`",
        ),
        (
            job("completed", attempt=1, finished_at=NOW - SECOND),
            Surroundings(NOW),
            "Completed 1 s ago on the first attempt",
        ),
        (
            job("completed", attempt=3, finished_at=NOW - SECOND, continued=True),
            Surroundings(NOW),
            "Completed 1 s ago after 3 attempts; the chain continued",
        ),
        (
            job("failed", attempt=8, finished_at=NOW - SECOND, error="Timeout: gone\n  File …"),
            Surroundings(NOW),
            "Failed 1 s ago after 8 attempts: Timeout: gone",
        ),
        (
            job("failed", finished_at=NOW - SECOND, error="x" * 300),
            Surroundings(NOW),
            f"Failed 1 s ago before its first attempt: {'x' * 200}…",
        ),
        (
            job("cancelled", finished_at=NOW - SECOND, error="Cancelled: no longer wanted"),
            Surroundings(NOW),
            "Cancelled 1 s ago: no longer wanted",
        ),
        (
            job("cancelled", finished_at=NOW - SECOND, error="Cancelled"),
            Surroundings(NOW),
            "Cancelled 1 s ago",
        ),
    ],
)
def test_a_sentence_says_why(record: JobRecord, around: Surroundings, sentence: str) -> None:
    assert why(record, around) == sentence


@pytest.mark.parametrize(
    ("partition", "waits_for", "next_s"),
    [
        (in_line(PartitionRule("resize#7", 2), "a", "b"), ["a", "b"], None),
        (behind_total(PartitionRule("@openai", 2), "a", "b"), ["a", "b"], None),
        (in_line(PartitionRule("resize#7", None, 1, 60_000), starts=starts(20)), [], 40),
        (behind_total(PartitionRule("resize", None, 1, 60_000), starts=starts(48)), [], 12),
        (behind_total(PartitionRule("@openai", None, 1, 60_000), starts=starts(48)), [], 12),
        (in_line(PartitionRule("resize#7", 2), "a", paused_until=NOW + 25 * SECOND), [], 25),
        (behind_total(PartitionRule("@openai", 2), paused_until=NOW + 25 * SECOND), [], 25),
        (in_line(PartitionRule("resize#7", 2), "a"), [], None),
    ],
)
def test_holders_and_the_next_permit_are_named(
    partition: PartitionView, waits_for: list[str], next_s: int | None
) -> None:
    around = msgspec.structs.replace(HANDLED, partition=partition)
    found = explain(job("pending", available_at=NOW - 8 * SECOND), around)
    assert list(found.waits_for) == waits_for
    expected = None if next_s is None else NOW + next_s * SECOND
    assert found.next_permit_at == expected


DAY = 24 * 3_600 * SECOND


def step(name: str, kind: StepKind, **fields: Any) -> StepRecord:
    record = StepRecord(
        job_id="j",
        name=name,
        key="",
        nth=1,
        position=3,
        kind=kind,
        state="open",
        output=None,
        error=None,
        arguments=None,
        undo=False,
        fence=1,
        started_at=NOW,
        finished_at=None,
        until=None,
        signal=None,
        signal_key=None,
    )
    return msgspec.structs.replace(record, **fields)


def wait(until: int | None = None, **fields: Any) -> StepRecord:
    given = {"signal": "approved", "signal_key": "7", "until": until}
    return step("wait:approved", "wait", **given | fields)


CALLED = [
    BlockerRecord("j", 0, "a", True, "wait", "running", None),
    BlockerRecord("j", 3 << 16, "a", True, "run", "running", None, None, 3),
    BlockerRecord("j", 3 << 16, "b", True, "run", "running", None, None, 3),
    BlockerRecord("j", 3 << 16, "c", False, "run", "completed", None, None, 3),
]


@pytest.mark.parametrize(
    ("steps", "sentence"),
    [
        ([wait()], "Waiting for signal approved 7"),
        ([wait(signal_key="")], "Waiting for signal approved"),
        ([wait(NOW + 3 * DAY)], "Waiting for signal approved 7 until Monday 08:00 UTC"),
        ([wait(NOW + 3_600 * SECOND)], "Waiting for signal approved 7 until 09:00 UTC"),
        ([wait(NOW + 5 * SECOND)], "Waiting for signal approved 7 until 08:00:05 UTC"),
        ([step("sleep", "sleep", until=NOW + 14 * DAY)], "Sleeping until 2027-01-29 08:00 UTC"),
        ([step("run:render", "run")], "Waiting for 2 of 3 chains it called"),
        (
            [step("run:render", "run"), wait()],
            "Waiting for 2 of 3 chains it called; waiting for signal approved 7",
        ),
        (
            [
                step(
                    "charge.retry",
                    "sleep",
                    key="#1",
                    nth=2,
                    error="OSError: card",
                    until=NOW + 41 * SECOND,
                )
            ],
            "Step charge failed (OSError: card), try 3 in 41 s",
        ),
        (
            [wait(signal_key=str(number)) for number in range(4)],
            "Waiting for signal approved 0; waiting for signal approved 1; "
            "waiting for signal approved 2; and more",
        ),
    ],
)
@pytest.mark.parametrize("state", ["blocked", "pending"])
def test_a_parked_function_says_what_it_waits_for(
    state: State, steps: list[StepRecord], sentence: str
) -> None:
    parked = job(state, fence=1, available_at=NOW + DAY if state == "pending" else None)
    around = Surroundings(NOW, blockers=CALLED, steps=steps, workers=[worker()])
    assert why(parked, around) == sentence


def test_a_function_whose_time_has_come_is_due_as_any_job() -> None:
    around = Surroundings(NOW, steps=[wait(NOW - SECOND)], workers=[worker()])
    due = job("pending", fence=1, available_at=NOW - SECOND)
    assert why(due, around) == "Due for 1 s; picked up at the next poll"


def test_a_function_that_nothing_wakes_says_so() -> None:
    sentence = why(job("blocked", fence=1), Surroundings(NOW))
    assert sentence.startswith("Parked, and nothing will wake it")
    assert "holdfast chains rerun c --from STEP" in sentence


def test_code_that_does_not_fit_the_records_is_named() -> None:
    error = "StepUnreadable: step charge was recorded with other arguments than (1,)"
    around = Surroundings(NOW, last_error=error, workers=[worker()])
    assert why(job("pending", fence=1, available_at=NOW + 41 * SECOND), around) == (
        "Its code does not fit its records: step charge was recorded with other arguments than (1,); "
        "deploy code that fits (`holdfast explain HF153`), or cancel it and run `holdfast chains rerun c --from STEP`; "
        "next try in 41 s"
    )


def test_a_job_that_a_rate_lets_through_now_and_then_names_the_rate() -> None:
    due = job("pending", available_at=NOW - 7 * SECOND)
    rate = PartitionRule("resize#7", rate=20, period_ms=1_000)
    per_key = msgspec.structs.replace(HANDLED, partition=in_line(rate, starts=starts(2)))
    assert why(due, per_key) == (
        "Due for 7 s; at most 20/1s for tenant_id 7; 2 ahead of it; picked up at the next poll"
    )
    shared = PartitionRule("@provider", rate=3, period_ms=60_000)
    total = msgspec.structs.replace(HANDLED, partition=behind_total(shared))
    assert why(due, total) == "Due for 7 s; at most 3/1m for provider; picked up at the next poll"
