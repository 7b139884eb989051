"""What a job type says about its flow over the whole fleet: limits, rates, fairness and order per key.

`Flow` is that as the rest of the package uses it; what cannot be combined is refused when it is made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, TypeVar, get_args

import msgspec

from holdfast.core.codec import TypeCodec
from holdfast.core.duration import Duration, format_duration, milliseconds
from holdfast.core.errors import InputInvalid, InvalidName, InvalidOption
from holdfast.core.partitions import BatchRule, PartitionRule, partition_id, shared_partition

By: TypeAlias = str | Callable[[Any], object]
"""A field of the input, as "tenant_id" or "order.customer", or a function of it. None is no key."""

OnFailure = Literal["hold", "skip"]

MAX_ALLOWED = 10_000
"""What one partition lets in at most: it looks up each of those it let in."""
MAX_COST = 1_000_000_000
MAX_PERIOD_MS = 31 * 86_400_000
MAX_WEIGHT = 100
MAX_PER_ROUND = 10
"""So many jobs of a key are taken at once where nothing else is said: a round costs more than a job."""
MAX_KEY_BYTES = 1_024
MAX_BATCH_WAIT_MS = 86_400_000

_NAME = re.compile(r"\w[\w.-]{0,99}")


@dataclass(frozen=True, slots=True, init=False)
class Limit:
    """Limits how many jobs run at once in the fleet, or what they `cost`: per key, per type, or by a shared name."""

    max: int
    by: By | None
    name: str | None
    cost: By | None

    def __init__(
        self, max: int, *, by: By | None = None, name: str | None = None, cost: By | None = None
    ) -> None:
        """Take the number and, where it is not for the whole type, what it is counted by. Raises: InvalidOption."""
        _fill(self, max, MAX_ALLOWED, by, name, cost)


@dataclass(frozen=True, slots=True, init=False)
class Rate:
    """Limits how many jobs start within any period: per key, per type, or for all types that share a name.

    Every attempt counts, by the database's clock, from the moment a worker takes it: as one, or as what it costs.
    """

    max: int
    period_ms: int
    by: By | None
    name: str | None
    cost: By | None

    def __init__(
        self,
        max: int,
        per: Duration,
        *,
        by: By | None = None,
        name: str | None = None,
        cost: By | None = None,
    ) -> None:
        """Take the number, the period and what it is counted by. Raises: InvalidOption, InvalidDuration."""
        period_ms = milliseconds(per)
        if not 100 <= period_ms <= MAX_PERIOD_MS:
            raise InvalidOption(
                f"a rate per {format_duration(period_ms)} is not supported",
                help="use a period from 100ms to 31d",
            )
        object.__setattr__(self, "period_ms", period_ms)
        _fill(self, max, 1_000_000, by, name, cost)


@dataclass(frozen=True, slots=True, init=False)
class Fair:
    """Keys take turns, so a large backlog of one key doesn't delay the others. A key of weight 3 gets three a round."""

    by: By
    weights: Mapping[str, int]

    def __init__(self, *, by: By, weights: Mapping[str, int] | None = None) -> None:
        """Take what the rounds are by, and the weights that are not 1. Raises: InvalidOption."""
        for key, weight in (weights or {}).items():
            if not isinstance(key, str):
                raise InvalidOption(f"weights are by key, a text, not {repr(key)[:60]}")
            _check_number(f"the weight of {key[:60]!r}", weight, MAX_WEIGHT)
        object.__setattr__(self, "by", _check_by("Fair", by, None))
        object.__setattr__(self, "weights", MappingProxyType(dict(weights or {})))


@dataclass(frozen=True, slots=True, init=False)
class Ordered:
    """Jobs of one key run one at a time, first in, first out.

    A job waiting for a retry keeps its place. After a job failed for good, the key waits until that job is redriven or
    dropped ("hold"), or continues with the next ("skip").
    """

    by: By
    on_failure: OnFailure

    def __init__(self, *, by: By, on_failure: OnFailure = "hold") -> None:
        """Take what the order is by, and what a dead letter means for those behind it. Raises: InvalidOption."""
        if on_failure not in get_args(OnFailure):
            raise InvalidOption(
                f"on_failure={repr(on_failure)[:60]} is unknown", help='use "hold" or "skip"'
            )
        object.__setattr__(self, "by", _check_by("Ordered", by, None))
        object.__setattr__(self, "on_failure", on_failure)


def _fill(
    bound: Limit | Rate, max: int, high: int, by: By | None, name: str | None, cost: By | None
) -> None:
    what = type(bound).__name__
    object.__setattr__(bound, "max", _check_number(what, max, high if cost is None else MAX_COST))
    object.__setattr__(bound, "by", _check_by(what, by, name))
    object.__setattr__(bound, "name", _check_name(name))
    object.__setattr__(bound, "cost", _check_by("cost", cost, None))


def _check_number(what: str, number: object, maximum: int) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= maximum:
        raise InvalidOption(
            f"{what}: {repr(number)[:60]} is not a whole number from 1 to {maximum}"
        )
    return number


def _check_by(what: str, by: object, name: str | None) -> Any:
    if by is not None and name is not None:
        raise InvalidOption(
            f"{what}(by=…, name=…): a limit with a name is shared by all jobs of its types and has no key",
            help="omit one of the two",
        )
    if by is None and what in ("Fair", "Ordered"):
        raise InvalidOption(f"{what} needs by=, a field of the input or a function of it")
    if by is not None and not callable(by) and not (isinstance(by, str) and by.strip(".")):
        raise InvalidOption(
            f"{what if what in ('batch_by', 'cost') else 'by'}={repr(by)[:60]} is no field of the input",
            help='use "tenant_id" or a function',
        )
    return by


def _check_name(name: object) -> Any:
    if name is not None and (not isinstance(name, str) or not _NAME.fullmatch(name)):
        raise InvalidName(f"{repr(name)[:60]} is not a valid name of a limit")
    return name


class Flow(msgspec.Struct, frozen=True):
    """Everything a job type says about its flow. `per_key` is what holds for each key, `shared` what holds for all.

    `per_round` is how many jobs of a key are taken at once; a `batch` is handled in one call. A job has a `cost`, up to
    `max_cost`, where a rule counts costs.
    """

    type: str
    codec: TypeCodec
    by: By | None
    per_key: PartitionRule
    shared: tuple[PartitionRule, ...] = ()
    ordered: OnFailure | None = None
    weights: Mapping[str, int] = msgspec.field(default_factory=dict)
    per_round: int = 1
    batch: BatchRule | None = None
    cost: By | None = None
    max_cost: int | None = None

    @property
    def has_rate(self) -> bool:
        """Whether starts are counted, so that no job may be taken before there is a slot for it."""
        return any(each.rate or each.cost_rate for each in (self.per_key, *self.shared))

    @property
    def period_ms(self) -> int:
        """The longest period of its rates, 0 without one."""
        rules = (self.per_key, *self.shared)
        return max(max(each.period_ms or 0, each.cost_period_ms or 0) for each in rules)

    def partition_of(self, text: str) -> str:
        """Return the partition where a job with this stored input waits. Raises: InputInvalid."""
        return partition_id(self.type, self.key_of(text))

    def key_of(self, text: str) -> str:
        """Return the key of an input as it is stored, "" without one. Raises: InputInvalid."""
        if self.by is None:
            return ""
        return _key_text(self.type, read_field(self.by, self.codec, text))

    def weight_by_partition(self) -> dict[str, int]:
        """Return the weights that are not 1, by partition."""
        return {partition_id(self.type, key): weight for key, weight in self.weights.items()}


def read_field(by: By, codec: TypeCodec, text: str) -> object:
    """Return what a field or a function says of a stored input; None where there is no such field."""
    if not isinstance(by, str):
        return by(codec.decode(text))
    value = msgspec.json.decode(text)
    for name in by.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def is_flow_key(text: str) -> bool:
    """Whether a text can be the key of a limit: both databases keep it exactly."""
    try:
        return "\0" not in text and len(text.encode()) <= MAX_KEY_BYTES
    except UnicodeEncodeError:
        return False


def _key_text(type: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool | list | dict | set | tuple):
        raise InputInvalid(
            f"{type} is limited by a key, and {repr(value)[:60]} is none",
            help="make by= return text or a number",
        )
    key = str(value)
    if not is_flow_key(key):
        raise InputInvalid(
            f"{type} is limited by a key, and {repr(key)[:60]} cannot be one",
            help=f"a key has at most {MAX_KEY_BYTES} bytes and no NUL; use a hash of it",
        )
    return key


def flow_of(type: str, codec: TypeCodec, options: Mapping[str, Any]) -> Flow | None:
    """Return the flow that the options of a job type describe, None without any. Raises: InvalidOption."""
    limits = _each_of("limits", options.get("limits"), Limit)
    rates = _each_of("rates", options.get("rates"), Rate)
    fair: Fair | None = options.get("fair")
    ordered: Ordered | None = options.get("ordered")
    batch = _batch_rule(type, options)
    if not (limits or rates or fair or ordered or batch):
        return None
    _check_ordered(type, limits, options)
    bounds: list[Limit | Rate] = [*limits, *rates]
    bys = [each.by for each in (*bounds, fair, ordered) if each is not None and each.by is not None]
    batch_by = _check_by("batch_by", options.get("batch_by"), None)
    if batch is not None:
        _check_batch(type, batch, batch_by, bys, fair, bounds)
    if batch_by is not None:
        bys.append(batch_by)
    costs = [each.cost for each in bounds if each.cost is not None]
    if any(each != bys[0] for each in bys) or any(each != costs[0] for each in costs):
        raise InvalidOption(
            f"job type {type} is limited by two different keys or costs, but a job waits in one queue only",
            help="use the same by= and cost= everywhere, or a limit with a name= for one of the two keys",
        )
    per_key = _rule(type, "", [each for each in bounds if each.by is not None])
    if ordered is not None:
        per_key = msgspec.structs.replace(per_key, allowed=1)
    return Flow(
        type=type,
        codec=codec,
        by=bys[0] if bys else None,
        per_key=per_key,
        shared=_shared_rules(type, bounds),
        ordered=ordered.on_failure if ordered else None,
        weights=fair.weights if fair else {},
        per_round=batch.size if batch else _per_round(per_key, fair),
        batch=batch,
        cost=costs[0] if costs else None,
        max_cost=min((each.max for each in bounds if each.cost is not None), default=None),
    )


def _per_round(per_key: PartitionRule, fair: Fair | None) -> int:
    return min(MAX_PER_ROUND, per_key.allowed or 1) if fair is None else 1


def _batch_rule(type: str, options: Mapping[str, Any]) -> BatchRule | None:
    """What `batch_by` and `batch_wait` ask for, None without them. Raises: InvalidOption, InvalidDuration."""
    size, by, wait = (options.get(name) for name in ("batch", "batch_by", "batch_wait"))
    if by is None and wait is None:
        return None
    if size is None:
        option = "batch_wait" if by is None else "batch_by"
        raise InvalidOption(
            f"job type {type} sets {option} but takes one job at a time", help="add batch="
        )
    wait_ms = 0 if wait is None else milliseconds(wait)
    if not 0 <= wait_ms <= MAX_BATCH_WAIT_MS:
        raise InvalidOption(
            f"job type {type} cannot wait {format_duration(wait_ms)} for a batch",
            help="use a batch_wait of at most 1d",
        )
    return BatchRule(size, wait_ms)


def _check_batch(
    type: str,
    batch: BatchRule,
    by: By | None,
    bys: Sequence[By],
    fair: Fair | None,
    bounds: Sequence[Limit | Rate],
) -> None:
    if fair is not None:
        raise InvalidOption(
            f"job type {type} is handled in batches of a key, so its keys already take turns",
            help="omit fair=",
        )
    if by is None and bys:
        raise InvalidOption(
            f"job type {type} is limited by a key, and its batches wait in the queue of that key",
            help="add batch_by= with the same key, or omit batch_wait=",
        )
    for each in bounds:
        if each.cost is None and each.max < batch.size:
            raise InvalidOption(
                f"a batch of {batch.size} {type} jobs never fits in a limit or rate of {each.max}: "
                "each job counts",
                help=f"raise the limit to at least {batch.size}, or make the batch smaller",
            )


T = TypeVar("T")


def _each_of(option: str, given: Sequence[object] | None, kind: type[T]) -> list[T]:
    found = []
    for each in given or ():
        if not isinstance(each, kind):
            help = "a Limit goes into limits=[…], and a Rate into rates=[…]"
            text = f"{option}=[…] takes {kind.__name__}(…), not {repr(each)[:60]}"
            raise InvalidOption(text, help=help)
        found.append(each)
    return found


def _check_ordered(type: str, limits: Sequence[Limit], options: Mapping[str, Any]) -> None:
    if options.get("ordered") is None:
        return
    why = help = None
    if any(each.by is not None for each in limits):
        why, help = "so jobs of one key already run one at a time", "omit Limit(…, by=…)"
    elif options.get("fair") is not None:
        why, help = "so its keys already take turns", "omit fair="
    elif options.get("batch") is not None:
        why = "and cannot be handled in batches: one job of a key runs at a time"
        help = "omit batch= or ordered="
    if why is not None:
        raise InvalidOption(f"job type {type} is ordered, {why}", help=help)


def _shared_rules(type: str, bounds: Sequence[Limit | Rate]) -> tuple[PartitionRule, ...]:
    """The rules of all keys together: the type's own, then those with a name."""
    names = dict.fromkeys(each.name for each in bounds if each.by is None)
    return tuple(
        _rule(
            type if name is None else shared_partition(name),
            name or "",
            [each for each in bounds if each.by is None and each.name == name],
        )
        for name in sorted(names, key=lambda name: name or "")
    )


def _rule(id: str, name: str, bounds: Sequence[Limit | Rate]) -> PartitionRule:
    numbers: list[int | None] = []
    for by_cost in (False, True):
        alike = [each for each in bounds if bool(each.cost) == by_cost]
        limit = _only("limits", name, [each for each in alike if isinstance(each, Limit)])
        rate = _only("rates", name, [each for each in alike if isinstance(each, Rate)])
        numbers.append(None if limit is None else limit.max)
        numbers += (None, None) if rate is None else (rate.max, rate.period_ms)
    if numbers[3] is not None and numbers[0] is None:
        numbers[0] = MAX_ALLOWED  # whatever they cost, those let in are looked up one by one
    return PartitionRule(id, *numbers)


def _only(word: str, name: str, given: list[T]) -> T | None:
    if len(given) > 1:
        of = f"with the name {name}" if name else "of one kind"
        raise InvalidOption(
            f"there are {len(given)} {word} {of}, but only one can apply",
            help="keep the smaller one, or give each its own name=",
        )
    return given[0] if given else None
