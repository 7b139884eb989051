"""Claiming in several statements: a look per type and priority, then the jobs are marked, leased and read."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import msgspec

from holdfast.core.model import Claim, ClaimedJob, Instant, Probe
from holdfast.storage.aggregates.wire import texts
from holdfast.storage.sqlite.clock import moment
from holdfast.storage.statement import Op, Statement, Value


class _Due(NamedTuple):
    """A job that a look found; it sorts as the claim orders."""

    available_at: Instant
    id: str
    crashes: int
    token: str


def claim_jobs(claim: Claim, now: Instant | None) -> Op[list[ClaimedJob]]:
    """Take due jobs under new leases. Concurrency: the write lock is held from the first look on."""
    now = yield from moment(now)
    due = yield from _choose(claim, now)
    held: dict[str, list[str]] = {}
    for each in due:
        held.setdefault(each.token, []).append(each.id)
    classes = {each.token: each for each in claim.classes}
    for token, ids in held.items():
        taken: dict[str, Value] = {"token": token, "ids": texts(ids), "now": now}
        yield Statement("job_claim_take", taken)
        policy = msgspec.structs.asdict(classes[token])
        yield Statement("job_claim_lease", {**policy, **taken, "worker": claim.worker})
    if not due:
        return []
    rows = yield Statement("job_claim_read", {"ids": texts(each.id for each in due), "now": now})
    return [ClaimedJob(*row) for row in rows]


def _choose(claim: Claim, now: Instant) -> Op[list[_Due]]:
    """Find the most urgent and oldest jobs, at most one of them a job that has crashed before."""
    chosen: list[_Due] = []
    crashed = False
    urgency = attrgetter("priority")
    for _, probes in groupby(sorted(claim.probes, key=urgency), urgency):
        found: list[_Due] = []
        for probe in probes:
            found += yield from _look(probe, claim.allow_crashed, now)
        for each in sorted(found):
            if each.crashes == 0:
                chosen.append(each)
            elif not crashed:
                crashed = True
                chosen.append(each)
        # Priorities are strict: what the less urgent probes would find could not be taken any more.
        if len(chosen) >= claim.limit:
            break
    return chosen[: claim.limit]


def _look(probe: Probe, allow_crashed: bool, now: Instant) -> Op[list[_Due]]:
    rows = yield Statement(
        "job_claim_look",
        {
            "type": probe.type,
            "priority": probe.priority,
            "after": probe.after,
            "after_id": probe.after_id,
            "room": probe.room,
            "allow_crashed": allow_crashed,
            "now": now,
        },
    )
    return [_Due(available_at, id, crashes, probe.token) for id, available_at, crashes in rows]
