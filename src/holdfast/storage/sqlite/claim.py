"""Claiming in several statements: a look per type and priority, then the jobs are marked, leased and read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter

import msgspec

from holdfast.core.model import Claim, ClaimedJob, Instant, Probe
from holdfast.storage.aggregates.wire import lists, texts
from holdfast.storage.sqlite.clock import moment
from holdfast.storage.statement import Op, Row, Statement, Value

READ_AT_ONCE = 200
"""So many inputs of the largest size, escaped, still fit into one text."""


def claim_jobs(claim: Claim, now: Instant | None) -> Op[list[ClaimedJob]]:
    """Take due jobs under new leases. Concurrency: the write lock is held from the first look on."""
    now = yield from moment(now)
    due = yield from _choose(claim, now)
    if not due:
        return []
    held: dict[str, list[str]] = {}
    for _, id, _, token in due:
        held.setdefault(token, []).append(id)
    classes = {each.token: each for each in claim.classes}
    for token, ids in held.items():
        taken: dict[str, Value] = {"token": token, "ids": texts(ids), "now": now}
        yield Statement("job_claim_take", taken)
        policy = msgspec.structs.asdict(classes[token])
        yield Statement("job_claim_lease", {**policy, **taken, "worker": claim.worker})
    jobs: list[ClaimedJob] = []
    for first in range(0, len(due), READ_AT_ONCE):
        named = texts(row[1] for row in due[first : first + READ_AT_ONCE])
        rows = yield Statement("job_claim_read", {"ids": named, "now": now})
        jobs += [ClaimedJob(*row) for row in lists(rows[0][0])]
    return jobs


def _choose(claim: Claim, now: Instant) -> Op[list[Row]]:
    """Find the most urgent jobs, at most one of them a job that has crashed before.

    Lines of one priority are asked in turn, each for its share and then for the rest, until there are enough.
    """
    chosen: list[Row] = []
    left = {probe.type: probe.most for probe in claim.probes if probe.most is not None}
    lines = yield from _lines(claim.probes)
    for _, level in groupby(sorted(lines, key=itemgetter(0)), itemgetter(0)):
        found: list[Row] = []
        for priority, probe, passed, wanted in _turns(level):
            wanted = min(
                wanted, left.get(probe.type, wanted), claim.limit - len(chosen) - len(found)
            )
            rows = yield from _look(probe, priority, passed, wanted, claim.allow_crashed, now)
            if probe.type in left:
                left[probe.type] -= len(rows)
            found += rows
        chosen += sorted(found)
        # Priorities are strict: what the less urgent probes would find could not be taken any more.
        if len(chosen) >= claim.limit:
            break
    crashed = [row for row in chosen if row[2]]
    return [row for row in chosen if not row[2] or row is crashed[0]]


def _lines(probes: Sequence[Probe]) -> Op[list[tuple[int, Probe]]]:
    """Leave out the lines without live jobs: most types have them at one priority, if at all."""
    if len(probes) == 1 and probes[0].priority is not None:
        return [(probes[0].priority, probes[0])]
    types = texts({probe.type for probe in probes})
    found: dict[str, list[int]] = {}
    for type, priority in (yield Statement("job_claim_lines", {"types": types})):
        found.setdefault(type, []).append(priority)
    return [
        (priority, probe)
        for probe in probes
        for priority in found.get(probe.type, ())
        if probe.priority in (None, priority)
    ]


def _turns(level: Iterable[tuple[int, Probe]]) -> Iterator[tuple[int, Probe, int, int]]:
    """Yield (priority, probe, how many to pass over, how many to take): the shares of all, then what they leave."""
    shared: list[tuple[int, Probe, int]] = []
    for priority, probe in level:
        share = probe.room if probe.share is None else min(probe.share, probe.room)
        yield priority, probe, 0, share
        if share < probe.room:
            shared.append((priority, probe, share))
    for priority, probe, share in shared:
        yield priority, probe, share, probe.room - share


def _look(
    probe: Probe, priority: int, passed: int, wanted: int, allow_crashed: bool, now: Instant
) -> Op[list[Row]]:
    if wanted <= 0:
        return []
    rows = yield Statement(
        "job_claim_look",
        {
            "type": probe.type,
            "priority": priority,
            "after": probe.after,
            "after_id": probe.after_id,
            "passed": passed,
            "wanted": wanted,
            "token": probe.token,
            "allow_crashed": allow_crashed,
            "now": now,
        },
    )
    return lists(rows[0][0])
