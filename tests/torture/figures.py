"""What `make torture` must come to: figures of its campaigns and seeds, and what they fall short of."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

JOBS = 100_000
FAULTS = 1_000
KINDS = 8
JOBS_A_SEED = 50
FAULTS_A_SEED = 3
RECOVERY_S = 2.0
"""Beyond the lease and the reaper's interval."""
REAPER_INTERVAL = 0.25
"""Of the lease, in campaigns."""


ASYNCHRONOUS = ", asynchronous standby"
"""A database that may lose with its primary what it acknowledged, by its name."""

LEFT_TO_FAILOVER = ("lost_by_failover", "events_lost_by_failover")
"""What is not held against it."""

OWN_KINDS = {"standby": "promote", "small disk": "full_disk"}
"""The fault that a campaign on such a database is there for, by the end of its name."""


def allowed_recovery_s(lease_s: float) -> float:
    """Return how long after its worker's death a job may be due again."""
    return lease_s * (1 + REAPER_INTERVAL) + RECOVERY_S


def shortfalls(
    campaigns: Sequence[Mapping[str, Any]],
    seeds: Mapping[str, Any] | None,
    scale: float,
    least: int,
) -> Iterator[str]:
    """Yield what the campaigns and the seeds fall short of; the numbers of a smaller scale are smaller."""
    jobs = sum(each["jobs"] or 0 for each in campaigns)
    kinds = sum((Counter(each["faults"]) for each in campaigns), Counter[str]())
    faults = sum(kinds.values())
    if jobs < JOBS * scale:
        yield f"{jobs:,} jobs instead of {JOBS * scale:,.0f}"
    if faults < FAULTS * scale:
        yield f"{faults:,} faults instead of {FAULTS * scale:,.0f}"
    if len(kinds) < KINDS:
        yield f"{len(kinds)} kinds of faults instead of {KINDS}"
    if not any(each["refused_zombie_writes"] for each in campaigns):
        yield "no late write was refused"
    for each in campaigns:
        yield from _broken(each)
    if seeds is None or seeds["seeds"] < least:
        yield f"{seeds['seeds'] if seeds else 0:,} seeds instead of {least:,}"
    elif seeds["failed"]:
        yield f"{seeds['failed']} seeds failed"
    elif seeds["fewest_jobs"] < JOBS_A_SEED or seeds["fewest_faults"] < FAULTS_A_SEED:
        yield f"a seed had {seeds['fewest_jobs']} jobs and {seeds['fewest_faults']} faults"


def _broken(campaign: Mapping[str, Any]) -> Iterator[str]:
    name = campaign["store"]
    left_out = LEFT_TO_FAILOVER if name.endswith(ASYNCHRONOUS) else ()
    if campaign["verdict"] != "green":
        yield f"{name}: {campaign['verdict']}"
    for ending, kind in OWN_KINDS.items():
        if name.endswith(ending) and not campaign["faults"].get(kind):
            yield f"{name}: no {kind}"
    for figure in (
        *("lost", "lost_by_failover", "fencing_violations"),
        *("events_lost", "events_lost_by_failover", "events_twice", "events_out_of_order"),
    ):
        if campaign[figure] and figure not in left_out:
            yield f"{name}: {campaign[figure]} {figure.replace('_', ' ')}"
    if campaign["duplicates"] != campaign["duplicates_explained"]:
        yield f"{name}: {campaign['duplicates_explained']} of {campaign['duplicates']} duplicates explained"
    allowed = allowed_recovery_s(campaign["plan"]["lease_s"])
    if (campaign["recovery_p99_s"] or 0) > allowed:
        yield f"{name}: recovery_p99_s is {campaign['recovery_p99_s']}, beyond {allowed}"
