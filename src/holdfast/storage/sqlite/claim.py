"""Claiming in several statements: a look per type and priority, then the jobs are marked, leased and read."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter

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
    """Find the most urgent and oldest jobs, at most one of them a job that has crashed before."""
    chosen: list[Row] = []
    crashed = False
    left = {probe.type: probe.most for probe in claim.probes if probe.most is not None}
    urgency = attrgetter("priority")
    worth_a_look = yield from _worth_a_look(claim.probes)
    for _, probes in groupby(sorted(worth_a_look, key=urgency), urgency):
        found: list[Row] = []
        for probe in probes:
            room = min(probe.room, left.get(probe.type, probe.room))
            rows = yield from _look(probe, room, claim.allow_crashed, now)
            if probe.type in left:
                left[probe.type] -= len(rows)
            found += rows
        for row in sorted(found):
            _, _, crashes, _ = row
            if crashes and crashed:
                continue
            crashed = crashed or crashes > 0
            chosen.append(row)
        # Priorities are strict: what the less urgent probes would find could not be taken any more.
        if len(chosen) >= claim.limit:
            break
    return chosen[: claim.limit]


def _worth_a_look(probes: Sequence[Probe]) -> Op[Sequence[Probe]]:
    """Leave out the lines without live jobs: most types have them at one priority, if at all."""
    if len(probes) == 1:
        return probes
    types = texts({probe.type for probe in probes})
    lines = set((yield Statement("job_claim_lines", {"types": types})))
    return [probe for probe in probes if (probe.type, probe.priority) in lines]


def _look(probe: Probe, room: int, allow_crashed: bool, now: Instant) -> Op[list[Row]]:
    if room <= 0:
        return []
    rows = yield Statement(
        "job_claim_look",
        {
            "type": probe.type,
            "priority": probe.priority,
            "after": probe.after,
            "after_id": probe.after_id,
            "room": room,
            "token": probe.token,
            "allow_crashed": allow_crashed,
            "now": now,
        },
    )
    return lists(rows[0][0])
