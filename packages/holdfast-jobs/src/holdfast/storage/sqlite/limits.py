"""Limits in SQLite: a claim through partitions is a walk over them here, under the write lock from the first one on.

It does what PostgreSQL's `limit_claim` does in one statement; with one writer, a partition is updated in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from holdfast.core.instants import Instant
from holdfast.core.partitions import (
    AHEAD_US,
    BatchRule,
    LimitedAnswer,
    LimitedClaim,
    PartitionRule,
    QueuedJob,
    every_key,
    partition_id,
    step_us,
)
from holdfast.core.records import ClaimedJob, Finish, JobRef
from holdfast.storage.operation import Op, Row, Statement, Value
from holdfast.storage.store.limits import LimitStore
from holdfast.storage.store.params import document, lists, resolve_now, texts

CRASHED_AGAIN_US = 250_000
"""When a job is polled again that only a worker without other such jobs may take."""
KEPT_US = 60_000_000
NEVER: Instant = 2**63 - 1
"""When what is blocked is due."""


def signal_leaving(ids: Sequence[str], now: Instant) -> Op[None]:
    """Signal the partitions that jobs are about to leave."""
    yield Statement("limit_signal_leaving", {"ids": texts(ids), "now": now})


def signal_placed(ids: Sequence[str], now: Instant | None = None) -> Op[None]:
    """Signal the partitions where jobs wait: at `now` if they were freed, otherwise once they are due."""
    yield Statement(
        "limit_signal_placed", {"ids": texts(ids), "freed": now is not None, "now": now or 0}
    )


def signal_returned(rows: Sequence[Row], now: Instant | None = None) -> Op[list[JobRef]]:
    """Signal the partitions where some of the jobs wait, of rows [job, type, gate]; return the jobs."""
    queued = [id for id, _, gate in rows if gate is not None]
    if queued:
        yield from signal_placed(queued, now)
    return [JobRef(id, type) for id, type, _ in rows]


def pause_partitions(finishes: Iterable[Finish], returned: Sequence[Row], now: Instant) -> Op[None]:
    """Let nothing through the partitions of handlers that asked for it; rows are [job, …, gate]."""
    partitions = {row[0]: row[-1] for row in returned}
    rows = [
        (partitions[each.id], now + each.delay_ms * 1000, each.error)
        for each in finishes
        if each.rest and partitions.get(each.id) is not None
    ]
    if rows:
        yield Statement("limit_pause_partitions", {"rows": document(rows), "now": now})


class OpenPartition(msgspec.Struct):
    """A partition while a claim polls it: its rule as it holds now, its state, and what this poll does to it."""

    id: str
    rule: PartitionRule
    paused_until: Instant
    mask: int = 0
    holders: list[str] = msgspec.field(default_factory=list)
    spent: list[list[int]] = msgspec.field(default_factory=list)
    front: tuple[Instant, str] = (-1, "")
    priority: int = 0
    at: Instant = 0
    weight: int = 1
    signals: list[int] = msgspec.field(default_factory=list)
    seen: list[Row] = msgspec.field(default_factory=list)
    got: list[Row] = msgspec.field(default_factory=list)
    room: int = 0
    ready_at: Instant | None = None
    is_left: bool = False
    opens: list[Instant | None] = msgspec.field(default_factory=list)

    def expire(self, bearing: set[str], now: Instant) -> None:
        """Forget holders that bear no token any more, and starts that no longer count."""
        self.holders = [each for each in self.holders if each in bearing]
        if self.rule.rate is None or self.rule.period_ms is None:
            self.spent = []
            return
        since = now - self.rule.period_ms * 1000
        self.spent = sorted(each for each in self.spent if since < each[0] <= now + AHEAD_US)

    @property
    def started(self) -> int:
        """How many starts count."""
        return sum(number for _, number in self.spent)

    def room_for(self, wanted: int, now: Instant) -> int:
        """How many of those wanted it lets in."""
        if self.paused_until > now:
            return 0
        if self.rule.allowed is not None:
            wanted = min(wanted, self.rule.allowed - len(self.holders))
        if self.rule.rate is not None:
            wanted = min(wanted, self.rule.rate - self.started)
        return max(0, wanted)

    def let_in(self, ids: Sequence[str], now: Instant) -> None:
        """Note who was let in."""
        if self.rule.allowed is not None:
            self.holders += ids
        if self.rule.rate is None or self.rule.period_ms is None or not ids:
            return
        step = step_us(self.rule.rate, self.rule.period_ms)
        if self.spent and self.spent[-1][0] // step == now // step:
            last_at, number = self.spent[-1]
            self.spent[-1] = [max(last_at, now), number + len(ids)]
        else:
            self.spent.append([now, len(ids)])

    def opens_at(self, now: Instant) -> Instant | None:
        """When it lets the next one in, if that is a matter of time."""
        if self.paused_until > now:
            return self.paused_until
        rule = self.rule
        if rule.rate is not None and rule.period_ms is not None and self.started >= rule.rate:
            return self.spent[0][0] + rule.period_ms * 1000
        return None

    def fit(self, claim: LimitedClaim, ids: Sequence[str], now: Instant) -> Op[int]:
        """How many of the first of these jobs it lets in by what they cost; `opens` is when the next may."""
        rule = self.rule
        if not ids or (rule.cost_allowed, rule.cost_rate) == (None, None):
            return len(ids)
        given: dict[str, Value] = {"max_cost": claim.max_cost, "now": now}
        given |= {"holders": texts(self.holders), "allow_crashed": claim.allow_crashed}
        given |= {**msgspec.structs.asdict(rule), "ids": texts(ids)}
        ((fits, at),) = yield Statement("limit_cost_room", given)
        self.opens = [at] if fits < len(ids) else []
        return int(fits)

    def charge(self, claim: LimitedClaim, ids: Sequence[str], now: Instant) -> Op[None]:
        """Write what jobs cost that were let in."""
        if (rate := self.rule.cost_rate) is not None and ids:
            given = {"max_cost": claim.max_cost, "now": now, **msgspec.structs.asdict(self.rule)}
            step = step_us(rate, self.rule.cost_period_ms or 0)
            yield Statement("limit_charge", {**given, "ids": texts(ids), "step": step})
            yield Statement("limit_charge_past", given)

    def row(self, now: Instant) -> tuple[object, ...]:
        """The columns of its row."""
        keep = now + max((self.rule.period_ms or 0) * 1000, KEPT_US)
        spent = document(self.spent)
        return (self.id, self.mask, texts(self.holders), spent, *self.front, keep)


def claim_limited(claim: LimitedClaim, now: Instant | None = None) -> Op[LimitedAnswer]:
    """Poll the partitions of a type that have signals, and take what they let through."""
    now = yield from resolve_now(now)
    shared = yield from _open_shared(claim, now)
    room = min([claim.limit, *(each.room_for(claim.limit, now) for each in shared)])
    if room == 0:
        opens = [at for each in shared if (at := each.opens_at(now)) is not None]
        next_us = max(opens) - now if opens else None
        return LimitedAnswer([], next_us=next_us, held_back=True)
    called = yield from _read_signals(claim, now)
    partitions = yield from _open_queues(claim, called, now)
    yield from _poll(claim, partitions, len(called), now)
    chosen = _deal(claim, partitions, room, now)
    for each in shared:
        fits = yield from each.fit(claim, [row[0] for _, row in chosen], now)
        chosen = chosen[:fits]
    if not chosen and (waits := [at for each in shared for at in each.opens]):
        # No signal is touched, as where there is no room.
        next_us = max((at for at in waits if at is not None), default=now) - now
        return LimitedAnswer([], next_us=next_us or None, held_back=True)
    jobs = yield from _take(claim, chosen, now)
    ids = [job.id for job in jobs]
    if ids:
        for each in shared:
            each.let_in(ids, now)
            yield from each.charge(claim, ids, now)
    more, next_at = yield from _answer(claim, partitions, now)
    yield from _put([*partitions, *(shared if ids else [])], now)
    rows = yield Statement("limit_next_signal", _claim_params(claim, now))
    nexts = [at for at in (next_at, rows[0][0]) if at is not None]
    opened = {each.id for each in partitions}
    left = sum(row[3] not in opened for row in called)
    asked = len({row[3] for row in called})
    return LimitedAnswer(jobs, len(called), asked, left + more, min(nexts) - now if nexts else None)


class SqliteLimitStore(LimitStore):
    """Limits, set in several statements."""

    def enqueue(
        self, jobs: Sequence[QueuedJob], ordered: bool, now: Instant | None = None
    ) -> Op[int]:
        rows = yield Statement("limit_enqueue", {"rows": document(jobs), "ordered": ordered})
        yield from signal_placed([row[0] for row in rows])
        if any(each.cost is not None for each in jobs):
            yield Statement("limit_put_costs", {"rows": document(jobs)})
        return len(rows)

    def _signal_queues(self, id: str, now: Instant | None) -> Op[None]:
        yield Statement("limit_signal_set", {"id": id, "now": now})

    def sweep(self, after: str, now: Instant | None = None) -> Op[tuple[str | None, int, int]]:
        ids = [row[0] for row in (yield Statement("limit_sweep_page", {"after": after}))]
        removed = yield Statement("limit_sweep", {"ids": texts(ids), "now": now})
        if not after:
            yield Statement("limit_sweep_pauses", {"now": now})
            yield Statement("limit_sweep_charges", {"now": now})
        return max(ids, default=None), len(ids), len(removed)


def _open_shared(claim: LimitedClaim, now: Instant) -> Op[list[OpenPartition]]:
    if not claim.shared:
        return []
    rules = {each.id: each for each in claim.shared}
    settings = yield from _settings(rules)
    partitions = [_open_partition(each, settings.get(each.id)) for each in claim.shared]
    yield from _read_states(partitions, False, now)
    return partitions


def _settings(ids: Iterable[str]) -> Op[dict[str, Row]]:
    rows = yield Statement("limit_settings_of", {"ids": texts(ids)})
    return {row[0]: row[1:] for row in rows}


def _open_partition(rule: PartitionRule, setting: Row | None) -> OpenPartition:
    """A partition with what was set for it at run time in the place of the code's own numbers."""
    if setting is None:
        return OpenPartition(rule.id, rule, 0)
    *given, paused_until = setting
    numbers = zip(("allowed", "rate", "period_ms"), given, strict=True)
    rule = msgspec.structs.replace(rule, **{name: new for name, new in numbers if new is not None})
    return OpenPartition(rule.id, rule, paused_until or 0)


def _read_states(partitions: Sequence[OpenPartition], holds: bool, now: Instant) -> Op[None]:
    rows = yield Statement("limit_partitions", {"ids": texts(each.id for each in partitions)})
    states = {row[0]: row[1:] for row in rows}
    for each in partitions:
        if each.id in states:
            mask, holders, spent, front_at, front_id = states[each.id]
            each.mask |= mask
            each.holders, each.spent = lists(holders), lists(spent)
            each.front = (front_at, front_id)
    held = [id for each in partitions for id in each.holders if each.rule.allowed is not None]
    bearing: set[str] = set()
    if held:
        rows = yield Statement("limit_bearing", {"ids": texts(held), "holds": holds})
        bearing = {row[0] for row in rows}
    for each in partitions:
        each.expire(bearing, now)


def _read_signals(claim: LimitedClaim, now: Instant) -> Op[list[Row]]:
    """The due signals, the most urgent and oldest first."""
    found: list[Row] = []
    asked = _claim_params(claim, now)
    for priority in sorted({each.priority for each in claim.marks}):
        if len(found) < claim.window:
            window = claim.window - len(found)
            found += yield Statement(
                "limit_signals", {**asked, "priority": priority, "window": window}
            )
    return found


def _claim_params(claim: LimitedClaim, now: Instant) -> dict[str, Value]:
    """What most statements of a claim ask about."""
    return {"type": claim.type, "reads": claim.reads, "now": now}


def _open_queues(
    claim: LimitedClaim, called: Sequence[Row], now: Instant
) -> Op[list[OpenPartition]]:
    ids = list(dict.fromkeys(row[3] for row in called))[: claim.partitions]
    if not ids:
        return []
    every = every_key(claim.type)
    settings = yield from _settings([*ids, every])
    keyed = _open_partition(claim.per_key, settings.get(every)).rule
    unkeyed = partition_id(claim.type, "")
    partitions = {}
    for id in ids:
        rule = PartitionRule(id) if id == unkeyed else msgspec.structs.replace(keyed, id=id)
        partitions[id] = _open_partition(rule, settings.get(id))
    yield from _read_states(list(partitions.values()), claim.holds, now)
    for _, priority, at, id, _ in reversed(called):
        if id in partitions:
            partitions[id].priority, partitions[id].at = priority, at
            partitions[id].weight = claim.weights.get(id, claim.per_round)
    # All signals of these partitions are answered, not only those that called: many starts of a key are one poll.
    for n, priority, id, since in (
        yield Statement("limit_signals_of", {"ids": texts(ids), "reads": claim.reads, "now": now})
    ):
        partition = partitions[id]
        partition.signals.append(n)
        partition.mask |= 1 << priority
        if since is not None and since <= partition.front[0]:
            partition.front = (since, "")
    return list(partitions.values())


def _poll(
    claim: LimitedClaim, partitions: Sequence[OpenPartition], called: int, now: Instant
) -> Op[None]:
    """See the first jobs of each queue, one more than there is room for."""
    share = 1 if called >= claim.window else max(1, -(-claim.limit // max(1, len(partitions))))
    crashed = {"ordered": claim.ordered, "allow_crashed": claim.allow_crashed}
    given: dict[str, Value] = {**_claim_params(claim, now), **crashed}
    for partition in partitions:
        max_jobs = share * partition.weight
        if claim.batch is not None:
            max_jobs = claim.batch.size * max(1, claim.calls // len(partitions))
        partition.room = partition.room_for(max_jobs, now)
        wanted = partition.room if claim.batch is None or not partition.room else max_jobs
        for priority in range(10):
            if (
                partition.room
                and partition.mask & (1 << priority)
                and len(partition.seen) <= wanted
            ):
                given["front_at"], given["front_id"] = partition.front
                given |= {"priority": priority, "wanted": wanted + 1 - len(partition.seen)}
                partition.seen += yield Statement("limit_poll", {**given, "gate": partition.id})
        if claim.batch is not None:
            _await_batch(partition, claim.batch, max_jobs, now)
        seen = partition.seen[: partition.room]
        places = [place for place, row in enumerate(seen) if row[4] <= now and not row[5]]
        fits = yield from partition.fit(claim, [seen[place][0] for place in places], now)
        if partition.opens and fits < len(places):
            partition.room = places[fits]
    if claim.batch is not None:
        for partition in [each for each in partitions if each.room][claim.calls :]:
            partition.is_left = True


def _await_batch(partition: OpenPartition, batch: BatchRule, max_jobs: int, now: Instant) -> None:
    """Let a queue through as far as it fills batches or has waited long enough for more."""
    ready = min(len(partition.seen), max_jobs)
    rest = partition.seen[ready - ready % batch.size : ready]
    ripe_at = min((row[2] for row in rest), default=0) + batch.wait_ms * 1000
    if rest and ripe_at > now:
        ready -= len(rest)
        partition.ready_at = ripe_at
    partition.room = min(partition.room, ready)


def _deal(
    claim: LimitedClaim, partitions: Sequence[OpenPartition], room: int, now: Instant
) -> list[tuple[OpenPartition, Row]]:
    """Choose jobs like cards: one of every queue, then the second; at most one of those whose workers died."""
    cards = [
        ((row[1], card // partition.weight, place), partition, row)
        for place, partition in enumerate(partitions)
        if not partition.is_left
        for card, row in enumerate(partition.seen[: partition.room])
        if row[4] <= now and not row[5]
    ]
    cards.sort(key=lambda each: each[0])
    chosen: list[tuple[OpenPartition, Row]] = []
    allow_crashed = claim.allow_crashed
    for _, partition, row in cards:
        if len(chosen) >= min(room, claim.limit):
            break
        if row[3] and not allow_crashed:
            continue
        allow_crashed = allow_crashed and not row[3]
        chosen.append((partition, row))
    return chosen


def _take(
    claim: LimitedClaim, chosen: Sequence[tuple[OpenPartition, Row]], now: Instant
) -> Op[list[ClaimedJob]]:
    if not chosen:
        return []
    rows = sorted((row for _, row in chosen), key=lambda row: (row[1], row[2], row[0]))
    ids = texts(row[0] for row in rows)
    taken: dict[str, Value] = {"token": claim.lease.token, "ids": ids, "now": now}
    take = "job_claim_take" if claim.max_cost is None else "job_claim_take_by_cost"
    yield Statement(take, taken)
    policy = msgspec.structs.asdict(claim.lease)
    yield Statement("job_claim_lease", {**policy, **taken, "worker": claim.worker})
    read = yield Statement("limit_claim_read", {"ids": ids, "now": now})
    for partition, row in chosen:
        partition.got.append(row)
    for partition in {partition.id: partition for partition, _ in chosen}.values():
        let_in = [row[0] for row in partition.got]
        partition.let_in(let_in, now)
        yield from partition.charge(claim, let_in, now)
    return [ClaimedJob(*row) for row in lists(read[0][0])]


def _answer(
    claim: LimitedClaim, partitions: Sequence[OpenPartition], now: Instant
) -> Op[tuple[int, Instant | None]]:
    """Delete the signals that were answered, and leave those that are needed; return how many are due, and the next."""
    again: list[tuple[str, int, Instant, str]] = []
    ns: list[int] = []
    answered: list[str] = []
    kept = 0
    asked = _claim_params(claim, now)
    newer = (yield Statement("limit_newer", asked))[0][0] if partitions else None
    for partition in partitions:
        at = partition.opens[0] if partition.opens else None
        if not partition.opens or len(partition.got) < partition.room:
            at = yield from _next_poll(claim, partition, now)
        if at is not None and at <= now and not partition.got:
            # It keeps its place in the round, and its signals.
            kept += 1
            continue
        ns += partition.signals
        answered.append(partition.id)
        if at is not None:
            left = _rows_left(partition)
            again.append((claim.type, left[0][1] if left else partition.priority, at, partition.id))
        if claim.allow_crashed and newer is None:
            _move_front(partition)
    if ns:
        yield Statement("limit_answer", {"ns": document(ns)})
    if again:
        yield Statement("limit_signal", {"rows": document(again)})
    if newer is not None:
        yield Statement("limit_signal_newer", {**asked, "version": newer, "ids": texts(answered)})
    later = [at for _, _, at, _ in again if at > now]
    return kept + len(again) - len(later), min(later, default=None)


def _next_poll(claim: LimitedClaim, partition: OpenPartition, now: Instant) -> Op[Instant | None]:
    """When to poll a partition again; None when it is full, because who leaves it writes a signal, or empty."""
    opens_at = partition.opens_at(now)
    if opens_at is not None:
        return opens_at
    if partition.rule.allowed is not None and len(partition.holders) >= partition.rule.allowed:
        return None
    if (
        partition.ready_at is not None
        and not partition.is_left
        and len(partition.got) == partition.room
    ):
        return partition.ready_at
    left = _rows_left(partition)
    if left:
        if left[0][5]:
            # A newer job at the head of an ordered queue holds it for workers that read it.
            return None
        if left[0][4] > now:
            due: Instant = left[0][4]
            # The first of an ordered queue may be parked for as long as nobody wakes it.
            return due if due < NEVER else None
        if len(left) == 1 and left[0][3]:
            return now + CRASHED_AGAIN_US
        return now if partition.got else partition.at
    if claim.ordered:
        return None
    given = {**_claim_params(claim, now), "gate": partition.id, "mask": partition.mask}
    if not claim.allow_crashed and (yield Statement("limit_crashed_in_queue", given))[0][0]:
        return now + CRASHED_AGAIN_US
    found: Instant | None = (yield Statement("limit_next_in_queue", given))[0][0]
    return found


def _rows_left(partition: OpenPartition) -> list[Row]:
    taken = {row[0] for row in partition.got}
    return [row for row in partition.seen if row[0] not in taken]


def _move_front(partition: OpenPartition) -> None:
    """Move the front behind what was taken, unless something before that was passed over."""
    if (
        partition.got
        and partition.seen[: len(partition.got)] == partition.got
        and partition.mask & (partition.mask - 1) == 0
    ):
        partition.front = (partition.got[-1][2], partition.got[-1][0])


def _put(partitions: Sequence[OpenPartition], now: Instant) -> Op[None]:
    if partitions:
        yield Statement(
            "limit_partitions_put", {"rows": document([each.row(now) for each in partitions])}
        )
