"""What a job type declares about its flow, as workers tell it and people read it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from holdfast.core.duration import format_duration
from holdfast.core.flow import MAX_ALLOWED, Flow, OnFailure
from holdfast.core.partitions import (
    BatchRule,
    LimitSetting,
    PartitionRule,
    every_key,
    partition_id,
    split_partition,
)
from holdfast.core.worker_presence import WorkerRecord

ANY_FUNCTION = "key"
"""What a key is called that a function without a name computes."""


class DeclaredLimits(msgspec.Struct, frozen=True, omit_defaults=True):
    """The limits of one type: those of each key and of all, whether keys take turns or keep order, and batches."""

    type: str
    by: str = ""
    per_key: PartitionRule | None = msgspec.field(default=None, name="line")
    shared: tuple[PartitionRule, ...] = ()
    ordered: OnFailure | None = None
    fair: bool = False
    batch: BatchRule | None = None

    @property
    def total(self) -> PartitionRule | None:
        """What holds for the type as a whole."""
        return next((each for each in self.shared if each.id == self.type), None)

    def rule(self, id: str, known: Mapping[str, LimitSetting] | None = None) -> PartitionRule:
        """Return what holds in a partition: what was set for it, else for every key, else what the code says."""
        code = next((each for each in self.shared if each.id == id), None)
        has_key = split_partition(id)[1]
        known = known or {}
        found: list[PartitionRule | LimitSetting | None] = [known.get(id)]
        if has_key:
            found += [known.get(every_key(self.type)), _in_jobs(self.per_key)]
        elif code is not None:
            found.append(_in_jobs(code))
        names = ("allowed", "rate", "period_ms")
        numbers = [[getattr(each, name) for each in found if each] for name in names]
        return PartitionRule(
            id, *(next((one for one in each if one is not None), None) for each in numbers)
        )

    @property
    def words(self) -> str:
        """Say it in a line, such as `3 per tenant_id · 50 in total · 100/1m per tenant_id`."""
        per_key = self.per_key or PartitionRule(partition_id(self.type, ""))
        parts = []
        if self.ordered is not None:
            parts.append(f"in order per {self.by}")
            per_key = msgspec.structs.replace(per_key, allowed=None)
        parts += [f"{each} per {self.by}" for each in _rule_words(per_key)]
        for rule in self.shared:
            of = "in total" if rule.id == self.type else f"for {split_partition(rule.id)[0]}"
            parts += [f"{each} {of}" for each in _rule_words(rule)]
        if self.fair:
            parts.append(f"fair by {self.by}")
        if self.batch is not None:
            parts.append(self._batch_words(self.batch))
        return " · ".join(parts)

    def _batch_words(self, batch: BatchRule) -> str:
        of = f" per {self.by}" if self.by else ""
        within = f" within {format_duration(batch.wait_ms)}" if batch.wait_ms else ""
        return f"batches of {batch.size}{of}{within}"


def _in_jobs(rule: PartitionRule | None) -> PartitionRule | None:
    """Return a rule without the number of jobs that one which counts costs has of necessity."""
    if rule is None or rule.allowed != (rule.cost_allowed and MAX_ALLOWED):
        return rule
    return msgspec.structs.replace(rule, allowed=None)


def _rule_words(rule: PartitionRule) -> list[str]:
    words = [] if rule.allowed in (None, rule.cost_allowed and MAX_ALLOWED) else [str(rule.allowed)]
    words += [] if rule.rate is None else [rate_words(rule)]
    words += [] if rule.cost_allowed is None else [f"cost {rule.cost_allowed:,}"]
    rate = PartitionRule("", None, rule.cost_rate, rule.cost_period_ms)
    return words + ([] if rate.rate is None else [f"cost {rate_words(rate)}"])


def rate_words(rule: PartitionRule) -> str:
    """Write a rate as people do: `100/1m`."""
    return f"{rule.rate}/{format_duration(rule.period_ms or 0)}"


def declared_by(flow: Flow) -> DeclaredLimits:
    """Return what a type's flow says, without its code."""
    by = flow.by if isinstance(flow.by, str) else getattr(flow.by, "__name__", "")
    is_bare = not flow.has_rate and flow.per_key.allowed is None and flow.ordered is None
    return DeclaredLimits(
        type=flow.type,
        by="" if flow.by is None else by.strip("<>").replace("lambda", "") or ANY_FUNCTION,
        per_key=flow.per_key if flow.by is not None else None,
        shared=flow.shared,
        ordered=flow.ordered,
        fair=bool(flow.weights) or (flow.by is not None and is_bare and flow.batch is None),
        batch=flow.batch,
    )


def encode_declared(flows: Iterable[Flow]) -> str:
    """Write what types declare as a worker's sign carries it."""
    return msgspec.json.encode({each.type: declared_by(each) for each in flows}).decode()


def declared_in(worker: WorkerRecord) -> dict[str, DeclaredLimits]:
    """Read what a worker's types declare."""
    return msgspec.convert(worker.limits, dict[str, DeclaredLimits])


def declared_in_fleet(workers: Iterable[WorkerRecord]) -> dict[str, DeclaredLimits]:
    """Return what types declare by the newest worker that has them; older code may say something else."""
    found: dict[str, DeclaredLimits] = {}
    for worker in sorted(workers, key=lambda each: each.started_at):
        found.update(declared_in(worker))
    return found
