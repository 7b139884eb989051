"""Finishing attempts in several statements: outcomes by kind, attempts given back, history, successors, tally."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from holdfast.core.model import Finish, Finished, FinishKind, Instant, TerminalState
from holdfast.storage.aggregates.wire import document, lists, texts
from holdfast.storage.sqlite.clock import moment
from holdfast.storage.sqlite.successor import write_successors
from holdfast.storage.sqlite.tally import Tally
from holdfast.storage.statement import Op, Row, Statement, Value

_ENDS: dict[FinishKind, TerminalState] = {
    "complete": "completed",
    "continue": "completed",
    "fail": "failed",
    "cancel": "cancelled",
}

# What one statement says once for all its rows: kind, worker, token, and whether there is no error to write.
_Alike = tuple[FinishKind, str, str, bool]


def finish_attempts(
    finishes: Sequence[Finish], freed: Sequence[str], awaited: bool, now: Instant | None
) -> Op[list[Finished]]:
    """End, continue or give back attempts, each proven by its (id, token) pair."""
    now = yield from moment(now)
    tally = Tally()
    done: list[Finished] = []
    for batch in _once_per_job(finishes):
        for alike, group in _alike(batch).items():
            done += yield from _end(alike, group, awaited, now, tally)
        back = [each for each in batch if each.kind not in _ENDS]
        if back:
            done += yield from _give_back(back, awaited, now, tally)
    if freed:
        yield Statement("lease_drop", {"tokens": texts(freed)})
    yield from tally.write(now)
    return done


def _once_per_job(finishes: Sequence[Finish]) -> Iterator[Sequence[Finish]]:
    """Split so that an id tells which finish it is: a lost attempt and the next one may arrive together."""
    while finishes:
        first: dict[str, Finish] = {}
        again = [each for each in finishes if first.setdefault(each.id, each) is not each]
        yield list(first.values())
        finishes = again


def _alike(batch: Sequence[Finish]) -> dict[_Alike, list[Finish]]:
    """Group the finishes that end a job by the statement they need."""
    groups: dict[_Alike, list[Finish]] = {}
    for each in batch:
        if each.kind in _ENDS:
            is_plain = (
                each.kind in ("complete", "continue")
                and each.error is None
                and each.fingerprint is None
            )
            groups.setdefault((each.kind, each.worker, each.token, is_plain), []).append(each)
    return groups


def _end(
    alike: _Alike, group: Sequence[Finish], awaited: bool, now: Instant, tally: Tally
) -> Op[list[Finished]]:
    kind, worker, token, is_plain = alike
    named = texts(each.id for each in group)
    proof: dict[str, Value] = {"ids": named, "token": token, "awaited": awaited}
    rows = lists((yield Statement("job_finish_held", proof))[0][0])
    if not rows:
        return []
    hits = {row[0] for row in rows}
    yield Statement(
        "job_finish_end" if is_plain else "job_finish_error",
        {
            "rows": document({each.id: _said(each, is_plain) for each in group if each.id in hits}),
            "state": _ENDS[kind],
            "continued": kind == "continue",
            "worker": worker,
            "now": now,
        },
    )
    ids = texts(row[0] for row in rows)
    waited_for: set[str] = set()
    if awaited:
        waited_for = {row[0] for row in (yield Statement("queue_awaited", {"ids": ids}))}
    yield Statement("queue_drop", {"ids": ids})
    for type, number in Counter(row[1] for row in rows).items():
        tally.of(type).end(_ENDS[kind], number)
    if kind == "fail":
        yield from _remember(group, rows, now)
    if kind == "continue":
        successors = [
            (each.next, each.id in waited_for)
            for each in group
            if each.id in hits and each.next is not None
        ]
        yield from write_successors(successors, now, tally)
    return [Finished(row[0], row[1], row[0] in waited_for) for row in rows]


def _said(finish: Finish, is_plain: bool) -> tuple[object, ...]:
    said = (finish.started_at, finish.output)
    return said if is_plain else (*said, finish.error, finish.fingerprint)


def _give_back(
    group: Sequence[Finish], awaited: bool, now: Instant, tally: Tally
) -> Op[list[Finished]]:
    returns = [
        (
            each.id,
            each.token,
            0 if each.kind == "retry" else 1,
            None if each.kind == "release" else now + each.delay_ms * 1000,
        )
        for each in group
    ]
    rows = yield Statement("job_finish_return", {"rows": document(returns), "awaited": awaited})
    yield from _remember(group, rows, now)
    retried = {each.id for each in group if each.kind == "retry"}
    for row in rows:
        if row[0] in retried:
            tally.of(row[1]).retried += 1
    return [Finished(row[0], row[1], bool(row[4])) for row in rows]


def _remember(group: Sequence[Finish], rows: Sequence[Row], now: Instant) -> Op[None]:
    """Keep the attempts that failed; a release, and a snooze without an error, leave no trace."""
    given = {each.id: each for each in group}
    history = []
    for id, _, attempt, fence, *_ in rows:
        each = given[id]
        if each.kind == "release" or (each.kind == "snooze" and each.error is None):
            continue
        # A snooze refunds its attempt, but it is remembered under the number that ran.
        ran = attempt + (each.kind == "snooze")
        history.append((id, fence, ran, each.kind, each.worker, each.started_at, each.error))
    if history:
        yield Statement("attempt_add", {"rows": document(history), "now": now})
