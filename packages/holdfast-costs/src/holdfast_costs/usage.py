"""What limits that count costs use, and what a job waits for that does not fit."""

from __future__ import annotations

import msgspec

from holdfast.commands.explain import JobExplanation
from holdfast.commands.limits import partition_words, read_declared
from holdfast.core.declared_limits import DeclaredLimits
from holdfast.core.duration import format_duration, format_span
from holdfast.core.errors import UnknownJobType, nearest
from holdfast.core.instants import Instant
from holdfast.core.partitions import PartitionRule, split_partition
from holdfast.core.records import JobRecord
from holdfast.storage.operation import Op, Statement
from holdfast.storage.store import Store
from holdfast.storage.store.params import texts

MAX_KEYS = 1_000
"""Of each type, so many keys are read."""


class CostUsage(msgspec.Struct, frozen=True):
    """What one limit or rate that counts costs uses; `per` is a rate's period."""

    type: str
    key: str | None
    used: int
    max: int
    per: str | None

    @property
    def left(self) -> int:
        """What is left; less than nothing after attempts that spent more than was said."""
        return self.max - self.used


def read_usage(store: Store, type: str | None = None) -> Op[list[CostUsage]]:
    """Read what limits that count costs use, of a type or of all; the fullest first."""
    found: dict[tuple[str, str | None], CostUsage] = {}
    for name, declared in sorted((yield from read_declared(store)).items()):
        if type in (None, name):
            for each in (yield from _read_type(declared)):
                found[f"{each.type} {each.key}", each.per] = each
    return sorted(
        found.values(), key=lambda each: (-each.used / each.max, each.type, each.key or "")
    )


def check_counts(store: Store, type: str) -> Op[None]:
    """Refuse a type that has no limit that counts costs. Raises: UnknownJobType."""
    declared = yield from read_declared(store)
    counting = [name for name, each in declared.items() if _counts_costs(each)]
    if type not in counting:
        raise UnknownJobType(
            f"no live worker declares limits that count costs for {type[:60]!r}",
            help=nearest(type, counting) or "see `holdfast costs list`",
        )


def _counts_costs(declared: DeclaredLimits) -> bool:
    rules = [*declared.shared, *([] if declared.per_key is None else [declared.per_key])]
    return any(_counts(each) for each in rules)


def _read_type(declared: DeclaredLimits) -> Op[list[CostUsage]]:
    found: list[CostUsage] = []
    if declared.per_key is not None and _counts(declared.per_key):
        found += yield from _read_rule(declared.per_key, declared.type)
    for each in declared.shared:
        if _counts(each):
            found += yield from _read_rule(each, None)
    return found


def _counts(rule: PartitionRule) -> bool:
    return (rule.cost_allowed, rule.cost_rate) != (None, None)


def _read_rule(rule: PartitionRule, type: str | None) -> Op[list[CostUsage]]:
    ids = texts([] if type is not None else [rule.id])
    period = rule.cost_period_ms or 0
    rows = yield Statement(
        "cost_usage",
        {"ids": ids, "type": type, "period_ms": period, "limit": MAX_KEYS, "now": None},
    )
    known = rows or ([] if type is not None else [(rule.id, 0, 0)])
    found = []
    for id, charged, running in known:
        owner, key = split_partition(id)
        name = f"@{owner}" if id.startswith("@") else owner
        if rule.cost_rate is not None:
            per = format_duration(period)
            found.append(CostUsage(name, key, charged, rule.cost_rate, per))
        if rule.cost_allowed is not None:
            found.append(CostUsage(name, key, running, rule.cost_allowed, None))
    return found


def explain_cost(
    store: Store, job: JobRecord, declared: DeclaredLimits
) -> Op[JobExplanation | None]:
    """Say which limit a waiting job does not fit into by what it costs; None where it fits, or costs do not count."""
    rows = yield Statement("cost_of_job", {"id": job.id})
    cost, gate, _ = rows[0] if rows else (0, None, None)
    if gate is None:
        return None
    key = declared.per_key if split_partition(gate)[1] else None
    rules = [*([msgspec.structs.replace(key, id=gate)] if key else []), *declared.shared]
    now = yield from store.schema.clock()
    for rule in rules:
        for each in (yield from _read_rule(rule, None)) if _counts(rule) else ():
            if each.used + min(cost, each.max) > each.max:
                return (yield from _explain(rule, each, declared, min(cost, each.max), now))
    return None


def _explain(
    rule: PartitionRule, usage: CostUsage, declared: DeclaredLimits, cost: int, now: Instant
) -> Op[JobExplanation]:
    of = f"{declared.by}={usage.key}" if usage.key else partition_words(rule.id)
    sentence = f"{max(0, usage.left):,} of {usage.max:,} left, needs {cost:,}"
    if usage.per is None:
        return JobExplanation(f"Waiting for limit {of}: {sentence}")
    steps = yield Statement("cost_steps", {"gate": rule.id})
    period_us = (rule.cost_period_ms or 0) * 1000
    used, at = usage.used, now
    for began, freed in steps:
        if began > now - period_us and used + cost > usage.max:
            used, at = used - freed, began + period_us
    sentence = f"{sentence}, free in {format_span(at - now)}"
    return JobExplanation(f"Waiting for rate {of}: {sentence}", next_permit_at=at)


EXPLANATIONS = (explain_cost,)
