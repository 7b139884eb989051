"""Changes tables that are in use: a statement that waits for its lock gives up before those behind it notice.

A waiting `alter table` stops every statement that comes after it, so it waits for 200 ms and tries again once those who
were in its way are gone. Indexes of large tables are built concurrently, where nobody waits.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from psycopg import Connection, sql
from psycopg.errors import LockNotAvailable

from holdfast.core.duration import format_span
from holdfast.core.errors import MigrationBlocked
from holdfast.core.redaction import redact
from holdfast.storage.migrations import Tell
from holdfast.storage.postgres.qualify import qualify

LOCK_MS = 200
"""How long others may queue behind a statement of ours."""

PATIENT_LOCK_MS = 3_000
"""For locks behind which no job waits: after one second, the server ends an autovacuum that is in the way."""

LARGE_BYTES = 1_048_576
"""Indexes of larger tables are built concurrently: that takes long, and waits for every old transaction."""

BATCH = 10_000
"""How many rows a statement changes at once, as it says itself by its limit: their locks are held until it commits."""

LOOK_EVERY_S = 0.1
TELL_AFTER_S, TELL_EVERY_S = 0.5, 10.0
FIRST_PAUSE_S, MAX_PAUSE_S = 0.1, 2.0
QUERY_CHARS = 120

_NAME = r"(?:[\w\"]+\.)?(?P<name>\w+)"
_INDEX = r"create\s+(?:unique\s+)?index\s+(?P<index>\w+)\s+on"
_TRIGGER = r"create\s+trigger\s+\w+\s+after\s+\w+\s+on"
_TARGET = re.compile(
    rf"^(?:{_INDEX}|{_TRIGGER}|(?P<alter>alter\s+table)|drop\s+index|update|create\s+or\s+replace\s+view)\s+{_NAME}",
    re.IGNORECASE | re.MULTILINE,
)
_LITERAL = re.compile(r"'(?:[^']|'')*'?|\$(\w*)\$.*?(?:\$\1\$|\Z)", re.DOTALL)

# All of it is qualified: whatever a role's search path has before pg_catalog, it is not called.
_NO_LIMITS = qualify("""
select set_config(name, '0', true) from pg_settings
 where name in ('idle_in_transaction_session_timeout', 'transaction_timeout')
""")
_TRY_LOCK = qualify(
    "select pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtextextended(%s, 0))"
)
_LIMITS = qualify("""
select set_config('lock_timeout', %s, true), set_config('statement_timeout', '0', true),
       -- A server that crashes may lose the last statements, and with them the note that they were done.
       set_config('synchronous_commit', 'off', true),
       -- What rows are compared by is that of pg_catalog, as where a schema is new.
       set_config('search_path', 'pg_catalog', true)
""")
_COLUMNS = """
  l.pid, case when a.application_name <> '' then a.application_name else coalesce(a.usename, '') end,
  coalesce(a.query, ''), a.xact_start::text,
  coalesce(extract(epoch from clock_timestamp() - a.xact_start), 0)::float8"""
# The first that came among those with a lock on the table, or on the table of the index.
_HOLDERS = qualify(
    """
select distinct on (l.pid, a.xact_start) {columns}
  from pg_locks l left join pg_stat_activity a on a.pid = l.pid
 where l.locktype = 'relation' and l.granted and l.pid <> pg_backend_pid()
   and l.database = (select oid from pg_database where datname = current_database())
   and l.relation = coalesce(
         (select i.indrelid from pg_index i where i.indexrelid = pg_catalog.to_regclass(%(table)s)),
         pg_catalog.to_regclass(%(table)s))
   and (%(all)s or l.mode not in ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock'))
 order by a.xact_start, l.pid
""".replace("{columns}", _COLUMNS)
)
# Of a session that builds an index, also through a pooler, which hides its number.
_BUILD_WAITS_FOR = qualify(
    """
select distinct on (l.pid, a.xact_start) {columns}
  from pg_stat_progress_create_index p, unnest(pg_catalog.pg_blocking_pids(p.pid)) as l (pid)
  left join pg_stat_activity a on a.pid = l.pid
 where p.datname = current_database() and p.relid = pg_catalog.to_regclass(%(table)s)
 order by a.xact_start, l.pid
""".replace("{columns}", _COLUMNS)
)
# Of an advisory lock that is named by one number, `classid` is the upper half.
_ADVISORY = qualify(
    """
select {columns} from pg_locks l left join pg_stat_activity a on a.pid = l.pid
 where l.locktype = 'advisory' and l.granted and l.objsubid = 1 and l.pid <> pg_backend_pid()
   and l.database = (select oid from pg_database where datname = current_database())
   and ((l.classid::bigint << 32) | l.objid::bigint) = pg_catalog.hashtextextended(%(key)s, 0)
""".replace("{columns}", _COLUMNS)
)
_INDEX_STATE = qualify(
    "select i.indisvalid from pg_index i where i.indexrelid = pg_catalog.to_regclass(%s)"
)
_LOCK = sql.SQL("lock table {} in share update exclusive mode")
_DROP = sql.SQL("drop index {}")
_SIZE = qualify("select coalesce(pg_relation_size(pg_catalog.to_regclass(%s)), 0)")


@dataclass(frozen=True, slots=True)
class Blocker:
    """A session that is in the way, and since when its transaction has been open."""

    pid: int
    who: str
    query: str
    since: str | None
    seconds: float

    @property
    def transaction(self) -> tuple[int, str | None]:
        return self.pid, self.since

    def __str__(self) -> str:
        age = f", in a transaction for {format_span(int(self.seconds * 1e6))}" if self.since else ""
        query = " ".join(redact(_LITERAL.sub("'…'", self.query)).split())
        if len(query) > QUERY_CHARS:
            query = f"{query[:QUERY_CHARS]}…"
        return f"pid {self.pid} ({self.who or 'unknown'}{age})" + (f": {query}" if query else "")


class Patience:
    """How long a migration waits for others in all. It says for whom, now and then."""

    def __init__(self, wait_s: float, tell: Tell) -> None:
        self.tell = tell
        self._wait_s = self._left_s = wait_s
        self._told: tuple[int, str | None] | None = None
        self._tell_at = 0.0

    def use(self, seconds: float, blocker: Blocker | None, what: str) -> None:
        """Count time spent on waiting. Raises: MigrationBlocked when there is none left."""
        self._left_s -= seconds
        if blocker is not None and self._left_s > 0:
            self._say(blocker, what)
        if self._left_s <= 0:
            raise _blocked_error(blocker, what, self._wait_s)

    def sleep(self, seconds: float, blocker: Blocker | None, what: str) -> None:
        """Wait, and count it."""
        self.use(seconds, blocker, what)
        time.sleep(seconds)

    def _say(self, blocker: Blocker, what: str) -> None:
        now = time.monotonic()
        is_passing = blocker.since is not None and blocker.seconds < TELL_AFTER_S
        if is_passing or (blocker.transaction == self._told and now < self._tell_at):
            return
        self._told, self._tell_at = blocker.transaction, now + TELL_EVERY_S
        self.tell(f"waiting for {what}, held by {blocker}")


def _blocked_error(blocker: Blocker | None, what: str, wait_s: float) -> MigrationBlocked:
    waited = f"waited {format_span(int(wait_s * 1e6))} for {what}"
    if blocker is None:
        return MigrationBlocked(waited)
    return MigrationBlocked(
        f"{waited}, held by pid {blocker.pid}",
        details=[str(blocker)],
        help=f"let it end, or end it with `select pg_terminate_backend({blocker.pid})`; then migrate again, "
        "which continues where this stopped, or wait longer with `holdfast migrate --wait 1h`",
    )


class BlockerWatch:
    """Asks who is in the way, in transactions of a moment."""

    def __init__(self, connection: Connection[Any]) -> None:
        self._connection = connection

    def ask(self, query: str, **values: object) -> list[Blocker]:
        rows = self._connection.execute(query.encode(), values).fetchall()
        return [Blocker(*row) for row in rows]


class MigrationLock:
    """Admits one migration per schema: a lock in a transaction of its own, so that it also works through a pooler.

    While it is held, the transaction has no snapshot: an index that is built concurrently would wait for its end.
    """

    def __init__(self, connection: Connection[Any], key: str) -> None:
        self._connection = connection
        self._key = key

    @contextmanager
    def hold(self, patience: Patience, watch: BlockerWatch) -> Iterator[None]:
        """Hold the lock; between tries no transaction is open, for which a builder of indexes would wait."""
        while not self._try():
            holder = next(iter(watch.ask(_ADVISORY, key=self._key)), None)
            patience.sleep(LOOK_EVERY_S, holder, "another migration")
        try:
            yield
        finally:
            if not self._connection.broken:
                self._connection.execute("rollback")

    def _try(self) -> bool:
        self._connection.execute("begin isolation level read committed")
        self._connection.execute(_NO_LIMITS.encode())
        row = self._connection.execute(_TRY_LOCK.encode(), [self._key]).fetchone()
        if row is None or not row[0]:
            self._connection.execute("rollback")
            return False
        return True

    def check(self) -> None:
        """Ask for a sign of life, without a snapshot; an error means that the lock is lost."""
        self._connection.execute("show server_version")


class OnlineDdl:
    """Runs the statements of a migration on tables in use, under the lock of the migration."""

    def __init__(
        self,
        connection: Connection[Any],
        schema: str,
        lock: MigrationLock,
        watch: BlockerWatch,
        patience: Patience,
    ) -> None:
        self._connection = connection
        self._schema = schema
        self._lock = lock
        self._watch = watch
        self._patience = patience
        self._lock_ms = LOCK_MS

    def execute(self, statement: str, note: Callable[[], None]) -> None:
        """Run one statement and note, in the same transaction where there is one, that it was done.

        One that changes rows does so a batch at a time, and is run again until it finds less than that.
        """
        self._lock.check()
        target = _TARGET.search(statement)
        table = target["name"] if target else ""
        if target and target["index"] and self._size(table) > LARGE_BYTES:
            self._build(statement[target.start() :], target["index"], table)
            self._change(table, note)
            return

        is_done = False

        def act() -> None:
            nonlocal is_done
            if target and target["alter"]:
                self._keep_vacuum_out(table)
            self._limit(LOCK_MS)
            is_done = self._connection.execute(statement.encode()).rowcount < BATCH
            if is_done:
                note()

        while not is_done:
            self._change(table, act)

    def _change(self, table: str, act: Callable[[], None]) -> None:
        """Act in a transaction, again and again while it does not get its locks."""
        pause_s = FIRST_PAUSE_S
        while True:
            began = time.monotonic()
            try:
                with self._connection.transaction():
                    act()
                return
            except LockNotAvailable:
                self._wait(table, time.monotonic() - began)
            jitter = random.uniform(0.5, 1)
            self._patience.sleep(jitter * pause_s, None, self._lock_on(table))
            pause_s = min(2 * pause_s, MAX_PAUSE_S)

    def _keep_vacuum_out(self, table: str) -> None:
        """Take a lock behind which no job waits, and for which the server ends an autovacuum of the table."""
        self._limit(PATIENT_LOCK_MS)
        self._connection.execute(_LOCK.format(self._identifier(table)))

    def _limit(self, lock_ms: int) -> None:
        self._lock_ms = lock_ms
        self._connection.execute(_LIMITS.encode(), [str(lock_ms)])

    def _wait(self, table: str, seconds: float) -> None:
        """Wait for the transactions that are in the way now: before they end, another try would be in vain."""
        what = self._lock_on(table)
        blockers = self._holders(table)
        first = {each.transaction for each in blockers}
        self._patience.use(seconds, blockers[0] if blockers else None, what)
        while blockers and blockers[0].seconds > LOCK_MS / 1000:
            self._patience.sleep(LOOK_EVERY_S, blockers[0], what)
            blockers = [each for each in self._holders(table) if each.transaction in first]

    def _holders(self, table: str) -> list[Blocker]:
        return self._watch.ask(_HOLDERS, table=self._quote(table), all=self._lock_ms == LOCK_MS)

    def _build(self, statement: str, index: str, table: str) -> None:
        """Build an index concurrently, unless an earlier run has."""
        text = re.sub("index", "index concurrently", statement, count=1, flags=re.IGNORECASE)
        while not self._is_built(index, table):
            with ThreadPoolExecutor(1) as thread, suppress(LockNotAvailable):
                building = thread.submit(self._connection.execute, text.encode())
                try:
                    self._await(building, table)
                except BaseException:
                    if not building.done():
                        self._connection.cancel_safe()
                    raise

    def _is_built(self, index: str, table: str) -> bool:
        """Say whether an index is ready, once a build whose client is gone has ended; drop one that failed half way."""
        state: tuple[bool] | None = None

        def look() -> None:
            nonlocal state
            self._keep_vacuum_out(table)
            state = self._connection.execute(_INDEX_STATE.encode(), [self._quote(index)]).fetchone()
            if state == (False,):
                self._limit(LOCK_MS)
                self._connection.execute(_DROP.format(self._identifier(index)))

        self._change(table, look)
        return state == (True,)

    def _await(self, building: Future[Any], table: str) -> None:
        """Wait for a build, which itself waits for all transactions that are older."""
        what = f"older transactions, to build an index of {self._schema}.{table}"
        while not wait([building], LOOK_EVERY_S).done:
            blockers = self._watch.ask(_BUILD_WAITS_FOR, table=self._quote(table))
            if blockers:
                self._patience.use(LOOK_EVERY_S, blockers[0], what)
        building.result()

    def _size(self, table: str) -> int:
        row = self._connection.execute(_SIZE.encode(), [self._quote(table)]).fetchone()
        return int(row[0]) if row else 0

    def _lock_on(self, table: str) -> str:
        return f"a lock on {self._schema}.{table}"

    def _identifier(self, name: str) -> sql.Identifier:
        return sql.Identifier(self._schema, name)

    def _quote(self, name: str) -> str:
        return self._identifier(name).as_string(None)
