"""What must hold of limits at any moment, asked of the database itself and of nothing that keeps them.

Never more than allowed bear a token, of a key and in all; never more start in any period than a rate allows, by the
database's clock; and no job waits for nothing: where a queue has room and a due job, a signal is on record. Where costs
count, it is what jobs cost together that is never more. Checks that know how partitions are kept are apart: what breaks
a limit must be found without them.
"""

import math
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, Protocol

import msgspec
import psycopg

from holdfast.core.partitions import BatchRule, PartitionRule

Counted = Literal["key", "type", "name"]
SHARED = "everything"
UNBOUNDED = 1 << 30
COSTS = 8
"""Jobs of checked fleets cost less than this, from 0 on."""


def cost_of(id: str) -> int:
    """What a job costs, where costs count: chance, but the same for everyone who asks."""
    return int(id[-4:], 16) % COSTS


class Start(msgspec.Struct, frozen=True, tag=True):
    """A job that was claimed: at which line, when by the database's clock, and in which claim."""

    id: str
    gate: str
    at: int
    token: str


class Settlement(msgspec.Struct, frozen=True, tag=True):
    """What an attempt said it spent, never more than it was to cost."""

    id: str
    token: str
    spent: int


class Bounds(msgspec.Struct, frozen=True):
    """What claims are told to hold, and checkers that it holds: of a key, of all that share a name, in a period.

    `counted` says whose starts the rate is for. With a `batch`, a claim is for so many `calls`. If jobs are `weighed`,
    all numbers are of what they cost together.
    """

    allowed: int | None = None
    total: int | None = None
    rate: int | None = None
    period_ms: int = 0
    counted: Counted = "key"
    ordered: bool = False
    holds: bool = False
    batch: BatchRule | None = None
    calls: int = 1
    weighed: bool = False

    @property
    def max_cost(self) -> int | None:
        """The most that a job may cost, for claims."""
        return COSTS if self.weighed else None

    def line(self, type: str) -> PartitionRule:
        """What holds for each key of a type."""
        return self._rule(type, self.allowed, "key")

    def shared(self, type: str) -> tuple[PartitionRule, ...]:
        """What holds for all keys of a type, and for all types."""
        rules = (self._rule(type, None, "type"), self._rule(f"@{SHARED}", self.total, "name"))
        return tuple(each for each in rules if each != PartitionRule(each.id))

    def _rule(self, id: str, allowed: int | None, counted: Counted) -> PartitionRule:
        is_rated = self.rate is not None and self.counted == counted
        rate = (self.rate, self.period_ms) if is_rated else (None, None)
        if not self.weighed:
            return PartitionRule(id, allowed, *rate)
        return PartitionRule(id, None if allowed is None else 10_000, None, None, allowed, *rate)

    def crowded(self, starts: Iterable[Start], settlements: Iterable[Settlement] = ()) -> list[str]:
        """Find more starts in a period than the rate allows, or starts that cost more."""
        if self.rate is None:
            return []
        spent = {(each.id, each.token): each.spent for each in settlements}
        lines: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for each in starts:
            owner = each.gate.partition("#")[0]
            cost = spent.get((each.id, each.token), cost_of(each.id)) if self.weighed else 1
            line = {"key": each.gate, "type": owner, "name": "all"}[self.counted]
            lines[line].append((each.at, cost))
        return [
            f"too many starts: {total} of {line} within {at - first} µs"
            for line, found in lines.items()
            for first, at, total in _windows(sorted(found), self.period_ms * 1000)
            if total > self.rate
        ]

    def oversized(self, starts: Iterable[Start]) -> list[str]:
        """Find claims of more calls than they asked for, where a call takes a batch of one key at most."""
        if self.batch is None:
            return []
        claims: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for each in starts:
            claims[each.token][each.gate] += 1
        return [
            f"too large a batch: {dict(lines)}"
            for lines in claims.values()
            if sum(math.ceil(number / self.batch.size) for number in lines.values()) > self.calls
        ]


def _windows(starts: list[tuple[int, int]], period: int) -> Iterator[tuple[int, int, int]]:
    """The first and last start of each period that ends with a start, and what started in it."""
    total, place = 0, 0
    for at, cost in starts:
        total += cost
        while at - starts[place][0] >= period:
            total -= starts[place][1]
            place += 1
        yield starts[place][0], at, total


_POSTGRES = {
    "more than allowed run": """
select q.gate, sum(u.unit) from holdfast.queue q cross join lateral ({unit}) u
 where token is not null and gate is not null and right(gate, 1) <> '#'
 group by gate having sum(u.unit) > %(allowed)s""",
    "more than allowed run in all": """
select sum(u.unit) from holdfast.queue q cross join lateral ({unit}) u
 where token is not null and gate is not null having sum(u.unit) > %(total)s""",
    "too many starts": """
select s.line, s.at, s.at - s.earlier
  from (
    select x.line, x.at, lag(x.at, %(rate)s) over (partition by x.line order by x.at) as earlier
      from (
        select n.at, case %(counted)s when 'key' then j.type || '#' || j.input when 'type' then j.type end as line
          from (
            select job_id, started_at as at from holdfast.outcome where started_at is not null
            union
            select job_id, started_at from holdfast.attempt where started_at is not null
            union
            select q.job_id, l.claimed_at from holdfast.queue q join holdfast.lease l on l.token = q.token) n
          join holdfast.job j on j.id = n.job_id) x) s
 where s.at - s.earlier < %(period_ms)s * interval '1 ms'""",
    "a job bears a token without a lease": """
select q.job_id from holdfast.queue q
 where q.token is not null and not exists (
   select from holdfast.lease l where l.token = q.token and q.job_id = any (l.job_ids))""",
    "a queue has room and a due job but no signal": """
select w.gate, count(*) from holdfast.queue w
 where w.gate is not null and w.token is null and w.gate_at <= %(now)s
   and (select coalesce(sum(u.unit), 0) from holdfast.queue q cross join lateral ({unit}) u
         where q.gate = w.gate and q.token is not null)
     + (select u.unit from holdfast.queue q cross join lateral ({unit}) u
         where q.gate = w.gate and q.token is null and q.gate_at <= coalesce(%(instant)s, clock_timestamp())
         order by q.priority, q.gate_at, q.job_id limit 1) <= %(allowed)s
   and not exists (select from holdfast.wakeup k where k.gate = w.gate and k.type = w.type)
   and not (%(holds)s and exists (
     select from (select holders from holdfast.gate g where g.id = w.gate order by turn desc limit 1) g
       join holdfast.outcome o on o.job_id = any (g.holders) and o.state = 'failed'))
 group by w.gate""",
}
_POSTGRES_INSIDE = {
    "a job runs that its partition did not let in": """
select q.job_id, q.gate from holdfast.queue q
 where %(allowed)s < 1 << 30 and q.token is not null and q.gate is not null and right(q.gate, 1) <> '#' and not exists (
   select from (select holders from holdfast.gate g where g.id = q.gate order by turn desc limit 1) g
    where q.job_id = any (g.holders))""",
    "two states of one gate": """
select id, count(*) from holdfast.gate where turn > 0 group by id having count(*) > 1""",
}

_SQLITE = {
    "more than allowed run": """
select q.gate, sum({unit}) from holdfast_queue q
 where token is not null and gate is not null and substr(gate, -1) <> '#'
 group by gate having sum({unit}) > :allowed""",
    "more than allowed run in all": """
select sum({unit}) from holdfast_queue q where token is not null and gate is not null having sum({unit}) > :total""",
    "too many starts": """
select s.line, s.at, s.at - s.earlier
  from (
    select x.line, x.at, lag(x.at, :rate) over (partition by x.line order by x.at) as earlier
      from (
        select n.at, case :counted when 'key' then j.type || '#' || j.input when 'type' then j.type end as line
          from (
            select job_id, started_at as at from holdfast_outcome where started_at is not null
            union
            select job_id, started_at from holdfast_attempt where started_at is not null
            union
            select q.job_id, l.claimed_at from holdfast_queue q join holdfast_lease l on l.token = q.token) n
          join holdfast_job j on j.id = n.job_id) x) s
 where s.at - s.earlier < :period_ms * 1000""",
    "a job bears a token without a lease": """
select q.job_id from holdfast_queue q
 where q.token is not null and not exists (
   select 1 from holdfast_lease l join json_each(l.job_ids) j where l.token = q.token and j.value = q.job_id)""",
    "a queue has room and a due job but no signal": """
select w.gate, count(*) from holdfast_queue w
 where w.gate is not null and w.token is null and w.gate_at <= :now
   and (select coalesce(sum({unit}), 0) from holdfast_queue q where q.gate = w.gate and q.token is not null)
     + (select {unit} from holdfast_queue q
         where q.gate = w.gate and q.token is null and q.gate_at <= :now
         order by q.priority, q.gate_at, q.job_id limit 1) <= :allowed
   and not exists (select 1 from holdfast_wakeup k where k.gate = w.gate and k.type = w.type)
   and not (:holds and exists (
     select 1 from holdfast_gate g join json_each(g.holders) h join holdfast_outcome o
         on o.job_id = h.value and o.state = 'failed' where g.id = w.gate))
 group by w.gate""",
}
_SQLITE_INSIDE = {
    "a job runs that its partition did not let in": """
select q.job_id, q.gate from holdfast_queue q
 where :allowed < 1 << 30 and q.token is not null and q.gate is not null and substr(q.gate, -1) <> '#' and not exists (
   select 1 from holdfast_gate g join json_each(g.holders) h where g.id = q.gate and h.value = q.job_id)"""
}


_POSTGRES_UNIT = """select case when %(weighed)s
       then (select coalesce(j.cost, 1) from holdfast.job j where j.id = q.job_id) else 1 end as unit"""
_SQLITE_UNIT = """case when :weighed
       then (select coalesce(j.cost, 1) from holdfast_job j where j.id = q.job_id) else 1 end"""
_POSTGRES_AHEAD = """
select w.job_id::text from holdfast.queue q join holdfast.queue w on w.gate = q.gate and w.token is null
 where q.job_id = %(id)s::uuid and (w.gate_at, w.job_id) < (q.gate_at, q.job_id)"""
_SQLITE_AHEAD = """
select w.job_id from holdfast_queue q join holdfast_queue w on w.gate = q.gate and w.token is null
 where q.job_id = :id and (w.gate_at, w.job_id) < (q.gate_at, q.job_id)"""


class LimitChecker(Protocol):
    """Asks one database."""

    def ahead(self, id: str) -> list[str]:
        """Return the jobs that wait before this one in its line: none when it has just begun in its order."""

    def broken(self, bounds: Bounds, inside: bool = True, now: int | None = None) -> list[str]:
        """Say what does not hold, at an instant or by the database's clock; `inside` asks how partitions are kept."""

    def close(self) -> None:
        """Give the connection up."""


class PostgresLimitChecker:
    """See `LimitChecker`. All questions are asked of one snapshot."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url)

    def ahead(self, id: str) -> list[str]:
        with self._connection.transaction():
            return [
                row[0] for row in self._connection.execute(_POSTGRES_AHEAD, {"id": id}).fetchall()
            ]

    def broken(self, bounds: Bounds, inside: bool = True, now: int | None = None) -> list[str]:
        texts = {**_POSTGRES, **(_POSTGRES_INSIDE if inside else {})}
        with self._connection.transaction():
            self._connection.execute("set transaction isolation level repeatable read, read only")
            # A job has a second to be called, but may be behind one that is due only since then.
            row: Any = self._connection.execute(
                "select i, coalesce(i, now() - interval '1 s') from to_timestamp(%s / 1000000.0) i",
                [now],
            ).fetchone()
            params = {**_params(bounds, row[1]), "instant": row[0]}
            return [
                f"{claim}: {row}"
                for claim, text in texts.items()
                for row in self._connection.execute(
                    text.replace("{unit}", _POSTGRES_UNIT).encode(), params
                ).fetchmany(3)
            ]

    def close(self) -> None:
        self._connection.close()


class SqliteLimitChecker:
    """See `LimitChecker`."""

    def __init__(self, path: str) -> None:
        self._connection = sqlite3.connect(
            path, timeout=60, isolation_level=None, check_same_thread=False
        )

    def ahead(self, id: str) -> list[str]:
        return [row[0] for row in self._connection.execute(_SQLITE_AHEAD, {"id": id}).fetchall()]

    def broken(self, bounds: Bounds, inside: bool = True, now: int | None = None) -> list[str]:
        texts = {**_SQLITE, **(_SQLITE_INSIDE if inside else {})}
        self._connection.execute("begin")
        try:
            (clock,) = self._connection.execute("select now from holdfast_clock").fetchone()
            params = _params(bounds, clock if now is None else now)
            return [
                f"{claim}: {row}"
                for claim, text in texts.items()
                for row in self._connection.execute(
                    text.replace("{unit}", _SQLITE_UNIT), params
                ).fetchmany(3)
            ]
        finally:
            self._connection.execute("rollback")

    def close(self) -> None:
        self._connection.close()


def _params(bounds: Bounds, now: Any) -> Mapping[str, Any]:
    return {
        "allowed": UNBOUNDED if bounds.allowed is None else bounds.allowed,
        "total": UNBOUNDED if bounds.total is None else bounds.total,
        # What attempts were charged is not on record one by one: weighed starts are checked as they are told.
        "rate": UNBOUNDED if bounds.rate is None or bounds.weighed else bounds.rate,
        "weighed": bounds.weighed,
        "period_ms": bounds.period_ms,
        "counted": bounds.counted,
        "holds": bounds.holds,
        "now": now,
    }
