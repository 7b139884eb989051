"""What must hold of limits at any moment, asked of the database itself and of nothing that keeps them.

Never more than allowed bear a token at a gate; every one of them was let in by it and has a lease; and no job waits for
nothing: where a line has room and a due job, a wakeup is on record.
"""

import sqlite3
from typing import Any, Protocol

import psycopg

_POSTGRES = {
    "more than allowed run": """
select gate, count(*) from holdfast.queue
 where token is not null and gate is not null and right(gate, 1) <> '#' group by gate having count(*) > %(allowed)s""",
    "a job runs that its gate did not let in": """
select q.job_id, q.gate from holdfast.queue q
 where q.token is not null and q.gate is not null and right(q.gate, 1) <> '#' and not exists (
   select from (select holders from holdfast.gate g where g.id = q.gate order by turn desc limit 1) g
    where q.job_id = any (g.holders))""",
    "a job bears a token without a lease": """
select q.job_id from holdfast.queue q
 where q.token is not null and not exists (
   select from holdfast.lease l where l.token = q.token and q.job_id = any (l.job_ids))""",
    "a line has room and a due job but no wakeup": """
select w.gate, count(*) from holdfast.queue w
 where w.gate is not null and w.token is null and w.gate_at <= %(now)s
   and (select count(*) from holdfast.queue r where r.gate = w.gate and r.token is not null) < %(allowed)s
   and not exists (select from holdfast.wakeup k where k.gate = w.gate and k.type = w.type)
   and not (%(holds)s and exists (
     select from (select holders from holdfast.gate g where g.id = w.gate order by turn desc limit 1) g
       join holdfast.outcome o on o.job_id = any (g.holders) and o.state = 'failed'))
 group by w.gate""",
    "two states of one gate": """
select id, count(*) from holdfast.gate where turn > 0 group by id having count(*) > 1""",
}

_SQLITE = {
    "more than allowed run": """
select gate, count(*) from holdfast_queue
 where token is not null and gate is not null and substr(gate, -1) <> '#' group by gate having count(*) > :allowed""",
    "a job runs that its gate did not let in": """
select q.job_id, q.gate from holdfast_queue q
 where q.token is not null and q.gate is not null and substr(q.gate, -1) <> '#' and not exists (
   select 1 from holdfast_gate g join json_each(g.holders) h where g.id = q.gate and h.value = q.job_id)""",
    "a job bears a token without a lease": """
select q.job_id from holdfast_queue q
 where q.token is not null and not exists (
   select 1 from holdfast_lease l join json_each(l.job_ids) j where l.token = q.token and j.value = q.job_id)""",
    "a line has room and a due job but no wakeup": """
select w.gate, count(*) from holdfast_queue w
 where w.gate is not null and w.token is null and w.gate_at <= :now
   and (select count(*) from holdfast_queue r where r.gate = w.gate and r.token is not null) < :allowed
   and not exists (select 1 from holdfast_wakeup k where k.gate = w.gate and k.type = w.type)
   and not (:holds and exists (
     select 1 from holdfast_gate g join json_each(g.holders) h join holdfast_outcome o
         on o.job_id = h.value and o.state = 'failed' where g.id = w.gate))
 group by w.gate""",
}


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

    def broken(self, allowed: int, holds: bool = False, now: int | None = None) -> list[str]:
        """Say what does not hold, at an instant or by the database's clock."""

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

    def broken(self, allowed: int, holds: bool = False, now: int | None = None) -> list[str]:
        with self._connection.transaction():
            self._connection.execute("set transaction isolation level repeatable read, read only")
            instant: Any = self._connection.execute(
                "select coalesce(to_timestamp(%s / 1000000.0), now() - interval '1 s')", [now]
            ).fetchone()
            params = {"allowed": allowed, "holds": holds, "now": instant[0]}
            return [
                f"{claim}: {row}"
                for claim, text in _POSTGRES.items()
                for row in self._connection.execute(text, params).fetchmany(3)
            ]

    def close(self) -> None:
        self._connection.close()


class SqliteLimitChecker:
    """See `LimitChecker`."""

    def __init__(self, path: str) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)

    def ahead(self, id: str) -> list[str]:
        return [row[0] for row in self._connection.execute(_SQLITE_AHEAD, {"id": id}).fetchall()]

    def broken(self, allowed: int, holds: bool = False, now: int | None = None) -> list[str]:
        self._connection.execute("begin")
        try:
            (clock,) = self._connection.execute("select now from holdfast_clock").fetchone()
            params = {"allowed": allowed, "holds": holds, "now": clock if now is None else now}
            return [
                f"{claim}: {row}"
                for claim, text in _SQLITE.items()
                for row in self._connection.execute(text, params).fetchmany(3)
            ]
        finally:
            self._connection.execute("rollback")

    def close(self) -> None:
        self._connection.close()
