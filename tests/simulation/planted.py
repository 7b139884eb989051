"""Defects that are planted on purpose: the laws must find each of them, and none is written for one.

Most change one statement; a defect that no longer fits the text it changes fails loudly.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar
from unittest import mock

import msgspec

from holdfast.commands import attempts, blockers
from holdfast.commands.attempts import finish_attempts
from holdfast.core.instants import Instant
from holdfast.core.records import ClosedEdge, Finish, Finished, JobRef, State
from holdfast.storage.operation import Op, Statement
from holdfast.storage.sqlite import jobs, transaction
from holdfast.storage.sqlite.limits import OpenPartition
from holdfast.storage.sqlite.steps import SqliteSignalStore
from holdfast.storage.sqlite.store import sqlite_statements
from holdfast.storage.sqlite.tally import Tally
from holdfast.storage.store.chains import BlockerStore
from holdfast.storage.store.params import document, texts
from holdfast.worker import handler_transactions, worker
from holdfast.worker.heartbeat import Deadlines, Heartbeat
from holdfast.worker.options import PollBackoff
from holdfast_streams.consumer import ConsumerDelivery, raise_failure
from holdfast_streams.line_reader import HeldLine
from holdfast_streams.reader_store import READERS, SUSPECTED_AFTER, ClaimedLine, LineStore
from tests.simulation import process
from tests.simulation.server import Request, Server

Plant = Callable[[], AbstractContextManager[Any]]


class Defect(msgspec.Struct, frozen=True):
    """A defect, and what plants it for the length of a block."""

    text: str
    planted: Plant
    is_rare: bool = False
    """Whether it takes more seeds to be found than there is time for in every run of the tests."""


def edited(*edits: tuple[str, str, str]) -> Plant:
    """Have statements say something else: of each (name, text, another text)."""

    @contextmanager
    def plant() -> Iterator[None]:
        statements = dict(sqlite_statements())
        for name, old, new in edits:
            assert old in statements[name], f"{name} does not say {old!r} any more"
            statements[name] = statements[name].replace(old, new)
        with patched(transaction, "sqlite_statements", lambda: statements)():
            yield

    return plant


def patched(owner: Any, name: str, replacement: Any) -> Plant:
    """Have something done by other code."""
    return partial(mock.patch.object, owner, name, replacement)


_finish = jobs.SqliteJobStore.finish


def _finish_by_worker(
    self: jobs.SqliteJobStore, finishes: list[Finish], *args: Any, **more: Any
) -> Op[list[Finished]]:
    """Whatever the token: the worker has the job, so it may end it."""
    held: dict[str, str] = {}
    for name in sorted({each.worker for each in finishes}):
        rows = yield Statement("lease_held", {"worker": name})
        held |= dict(rows)
    trusted = [
        msgspec.structs.replace(each, token=held.get(each.id, each.token)) for each in finishes
    ]
    return (yield from _finish(self, trusted, *args, **more))


_end_work = worker.Worker._end_work


async def _end_work_without_heartbeat(self: worker.Worker, claiming: Any) -> None:
    for each in self._background_loops:
        if isinstance(each, Heartbeat):
            self._threads.to_background(each.stop)
    await _end_work(self, claiming)


def _finish_unfenced(store: Any, finish: Finish, idle_ms: int) -> Op[Any]:
    yield from store.leases.guard(idle_ms)
    return (yield from finish_attempts(store, [finish]))


class FanInLook:
    """Which edges were open when a request was sent, and which chains it has ended."""

    edges: ClassVar[list[tuple[str, str]]] = []
    ended: ClassVar[set[str]] = set()

    @staticmethod
    def receive(self: Server, delay: float, request: Request) -> None:
        """Look, and send."""
        looked = self.query("select job_id, chain_id from holdfast_blocker where open")
        work = request.work

        def look_back(executor: Any) -> Any:
            FanInLook.edges, FanInLook.ended = looked, set()
            return work(executor)

        request.work = look_back
        _receive(self, delay, request)

    @staticmethod
    def close(self: BlockerStore, ended: Sequence[tuple[str, State]]) -> Op[list[ClosedEdge]]:
        """Close edges, and note whose."""
        FanInLook.ended.update(chain_id for chain_id, _ in ended)
        return (yield from _close(self, ended))

    @staticmethod
    def open_jobs(
        self: jobs.SqliteBlockerStore, ids: Sequence[str], now: Instant | None = None
    ) -> Op[list[JobRef]]:
        """Open what waited for nothing else when the request was sent."""
        waiting = {job for job, chain_id in FanInLook.edges if chain_id not in FanInLook.ended}
        return (yield from _open_jobs(self, [each for each in ids if each not in waiting], now))


@contextmanager
def _look_before_fan_in() -> Iterator[None]:
    with (
        patched(Server, "receive", FanInLook.receive)(),
        patched(BlockerStore, "close", FanInLook.close)(),
        patched(jobs.SqliteBlockerStore, "open_jobs", FanInLook.open_jobs)(),
    ):
        yield


def _write_successors_later(successors: Any, now: Instant, tally: Any) -> Op[None]:
    Later.waiting.append(("successors", successors, now))
    yield from ()


def _close_chains_later(store: Any, ended: Any, now: Instant | None = None) -> Op[Any]:
    if ended:
        Later.waiting.append(("fan-in", store, ended))
    yield from ()
    return blockers.FanIn([], [])


_write_successors = jobs.write_successors
_close_chains = blockers.close_chains
_execute = Server._execute
_receive = Server.receive
_close = BlockerStore.close
_open_jobs = jobs.SqliteBlockerStore.open_jobs


class Later:
    """Writes that belong to a transaction and are sent after it."""

    waiting: ClassVar[list[Any]] = []

    @staticmethod
    def execute(self: Server, request: Request) -> None:
        """Execute a request; what it was to write as well is written a moment later, if its process still lives."""
        Later.waiting = []
        _execute(self, request)
        left, Later.waiting = Later.waiting, []
        for each in left:
            request._loop.call_soon_threadsafe(
                request._loop.call_later, 0.03, Later.write, self, each
            )

    @staticmethod
    def write(server: Server, left: Any) -> None:
        """Write what was left for later."""
        Later.waiting = []
        if left[0] == "fan-in":
            server.run(_close_chains(left[1], left[2]))
            return
        tally = Tally()

        def op() -> Op[None]:
            yield from _write_successors(left[1], left[2], tally)
            yield from tally.write(left[2])

        server.run(op())


@contextmanager
def _continue_later() -> Iterator[None]:
    with (
        patched(jobs, "write_successors", _write_successors_later)(),
        patched(Server, "_execute", Later.execute)(),
    ):
        yield


@contextmanager
def _fan_in_later() -> Iterator[None]:
    with (
        patched(attempts, "close_chains", _close_chains_later)(),
        patched(Server, "_execute", Later.execute)(),
    ):
        yield


def _expire_fixed(self: OpenPartition, bearing: set[str], now: Instant) -> None:
    """Count starts by the clock's own periods, not by any."""
    self.holders = [each for each in self.holders if each in bearing]
    if self.rule.rate is None or self.rule.period_ms is None:
        self.spent = []
        return
    since = now - now % (self.rule.period_ms * 1000)
    self.spent = [each for each in self.spent if each[0] >= since]


_expire = OpenPartition.expire


def _expire_nothing(self: OpenPartition, bearing: set[str], now: Instant) -> None:
    _expire(self, {*bearing, *self.holders}, now)


def _expire_everything(self: OpenPartition, bearing: set[str], now: Instant) -> None:
    _expire(self, set(), now)


def _append_only(self: Any, signals: Any, channel: Any = None, now: Any = None) -> Op[set[str]]:
    rows = yield Statement("signal_append", {"rows": document(signals), "now": now})
    return {row[0] for row in rows}


async def _commit_rows_first(
    self: ConsumerDelivery, held: HeldLine, events: Any, last: Op[None]
) -> None:
    """The rows in one transaction, the position in the next."""
    async with self.database.transaction_async(None) as tx:
        try:
            await self.consumer.handler(events, tx)
        except Exception as error:
            raise_failure(error)
    await self.database.run_async(last)


class Looked:
    """Which lines were free when a process looked for them."""

    free: ClassVar[dict[str, str]] = {}

    @staticmethod
    def claim(
        self: LineStore,
        reader: str,
        worker: str,
        token: str,
        limit: int,
        lease_ms: int,
        now: Any = None,
    ) -> Op[list[ClaimedLine]]:
        """Take what was free at the last look, and look what is free now."""
        params: dict[str, Any] = {"reader": reader, "worker": worker, "token": token, "now": now}
        free = Looked.free.get(worker, "[]")
        params |= {"limit": limit, "lease_ms": lease_ms, "free": free}
        params["suspected"] = SUSPECTED_AFTER
        found = [ClaimedLine(*row) for row in (yield Statement("line_claim", params))]
        lines = yield from READERS.lines(now)
        Looked.free[worker] = texts([str(each.line) for each in lines if each.worker is None])
        return found


@contextmanager
def _look_before_lock() -> Iterator[None]:
    Looked.free = {}
    with (
        edited(("line_claim", "token is null or expires_at <=", _LOOKED))(),
        patched(LineStore, "claim", Looked.claim)(),
    ):
        yield


_LOOKED = "line in (select cast(value as integer) from json_each(:free)) or 0 >"
_HELD = "q.token = :token"

DEFECTS: Mapping[str, Defect] = {
    "outcome-without-token": Defect(
        "the end of an attempt asks for no token", edited(("job_finish_held", f" and {_HELD}", ""))
    ),
    "return-without-token": Defect(
        "an attempt is given back without its token",
        edited(("job_finish_return", "and holdfast_queue.token = x.token", "")),
    ),
    "fence-by-worker": Defect(
        "a worker may end a job that it has claimed again",
        patched(jobs.SqliteJobStore, "finish", _finish_by_worker),
        is_rare=True,
    ),
    "attempt-counted-late": Defect(
        "an attempt counts when it fails, not when it begins",
        edited(
            ("job_claim_take", "attempt = attempt + 1", "attempt = max(attempt, 1)"),
            (
                "job_finish_return",
                "attempt = attempt - x.refund",
                "attempt = attempt + 1 - x.refund",
            ),
            ("lease_release", "attempt = attempt - 1", "attempt = attempt"),
        ),
    ),
    "reap-without-recheck": Defect(
        "the reaper takes back what others have claimed since",
        edited(("lease_reap_jobs", " and q.token = l.token", "")),
        is_rare=True,
    ),
    "reap-early": Defect(
        "the reaper does not wait for the end of leases",
        edited(("lease_reap", "l.expires_at <= :now", "l.expires_at <= :now + 1700000")),
    ),
    "no-reaper": Defect(
        "expired leases are not found",
        edited(("lease_reap", "l.expires_at <= :now", "l.expires_at <= :now - 900000000")),
    ),
    "host-clock": Defect(
        "a lease begins by the clock of a host that is behind",
        edited(
            (
                "job_claim_lease",
                ":now + :lease_ms * 1000",
                ":now + :lease_ms * 1000 - (substr(:worker, 1, 2) = 'w1') * 1800000",
            )
        ),
    ),
    "no-heartbeat-in-a-drain": Defect(
        "leases are not renewed any more once a worker is to end",
        patched(worker.Worker, "_end_work", _end_work_without_heartbeat),
        is_rare=True,
    ),
    "slot-without-record": Defect(
        "a slot of a cycle is taken by everyone who looks",
        edited(
            (
                "slot_claim",
                "or (s.state in ('running', 'failed') and s.expires_at <=",
                "or (true or s.expires_at <=",
            ),
            ("slot_claim", "and (:requested or (not c.paused and c.last_slot < :due_at))", ""),
        ),
    ),
    "hints-only": Defect(
        "jobs are looked for only after a hint",
        patched(PollBackoff, "poll_s", lambda self, random: 1e6),
    ),
    "continuation-after-the-commit": Defect(
        "the next job of a chain is written after the end of the last one", _continue_later
    ),
    "fan-in-after-the-commit": Defect(
        "what waits for a chain is released after its end", _fan_in_later
    ),
    "claim-of-what-is-held": Defect(
        "a claim takes jobs that others hold",
        edited(("job_claim_poll", " and q.token is null", "")),
    ),
    "ended-and-queued": Defect(
        "a job that has ended stays in the queue",
        edited(
            (
                "queue_drop",
                "delete from holdfast_queue where",
                "delete from holdfast_queue where false and",
            )
        ),
    ),
    "effects-of-the-lost": Defect(
        "a transaction commits though its job was lost",
        patched(handler_transactions, "finish_fenced", _finish_unfenced),
        is_rare=True,
    ),
    "one-fence": Defect(
        "a claim has the fence of the one before it",
        edited(("job_claim_take", "fence = max(fence + 1, :now / 1000)", "fence = max(fence, 1)")),
    ),
    "last-in-first-out": Defect(
        "an ordered key begins with its last job",
        edited(
            ("limit_poll", "order by q.gate_at, q.job_id", "order by q.gate_at desc, q.job_id desc")
        ),
    ),
    "rate-by-the-clock": Defect(
        "a rate counts from the full period on", patched(OpenPartition, "expire", _expire_fixed)
    ),
    "permit-kept": Defect(
        "a limited job keeps its permit when it ends",
        patched(OpenPartition, "expire", _expire_nothing),
    ),
    "permit-forgotten": Defect(
        "a limit forgets who has a permit", patched(OpenPartition, "expire", _expire_everything)
    ),
    "fan-in-by-an-old-look": Defect(
        "an end opens what waited for nothing else when it was sent, not when it is written",
        _look_before_fan_in,
    ),
    "handler-past-its-lease": Defect(
        "a handler runs on when its lease can no longer be relied on",
        patched(Deadlines, "_check_lease", lambda self, lease, attempts, now: math.inf),
        is_rare=True,
    ),
    "step-without-token": Defect(
        "what a step returned is recorded without a token",
        edited(("step_record", " and q.token = json_extract(x.value, '$.token')", "")),
        is_rare=True,
    ),
    "lazy-claims-with-a-standby": Defect(
        "a claim does not wait for the standby",
        patched(process, "OPTIONS", replace(process.OPTIONS, claims="lazy")),
        is_rare=True,
    ),
    "signal-unheard": Defect(
        "a signal wakes nobody", patched(SqliteSignalStore, "append", _append_only)
    ),
    "position-apart": Defect(
        "a consumer's position is committed after its rows, not with them",
        patched(ConsumerDelivery, "_run_async", _commit_rows_first),
        is_rare=True,
    ),
    "line-without-token": Defect(
        "a consumer moves its position without the token of its line",
        edited(("line_advance", "and token = :token and position = :from", "")),
        is_rare=True,
    ),
    "look-before-lock": Defect(
        "a process takes lines that were free when it looked", _look_before_lock, is_rare=True
    ),
}
"""By name, in the order in which they are looked for."""
