"""A campaign: processes under load, the faults of a seed, a drain, and what the checker makes of all of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from holdfast.app import Holdfast
from holdfast.cli.orphan_guard import OrphanGuard
from holdfast.core.errors import DatabaseUnreachable
from holdfast.version import VERSION
from holdfast_chaos.actors import CampaignActor, make_producer, make_worker
from holdfast_chaos.checker import (
    CampaignVerdict,
    LeftEffect,
    LeftJob,
    LeftReap,
    LeftRows,
    TakenEvent,
    judge,
)
from holdfast_chaos.errors import CampaignStalled
from holdfast_chaos.event_log import refuse_events
from holdfast_chaos.faults import KINDS, Fault, FaultScene, PlannedFault, make_plan
from holdfast_chaos.journal import FaultRecord, History, Journal, now, read_journals
from holdfast_chaos.producer import ProducerOptions
from holdfast_chaos.subject import SubjectOptions
from holdfast_chaos.target import CampaignTarget
from holdfast_verify.laws import check_laws

POLL_S = 0.2
SAMPLE_S = 0.5
WARM_UP_S = 60.0
MAX_AT_ONCE = 4
STALL_TICK_S = 0.05
IDLE_S = 30.0
"""So long, and three leases more, may nothing happen, or may the database stay away."""

ProgressCounts = tuple[int, int, int, int]
"""How many jobs have ended and have not, and how many events were taken and were not."""


class CampaignPlan(msgspec.Struct, frozen=True):
    """How a campaign runs; together with its seed it decides every fault."""

    seconds: float
    seed: int
    workers: int = 3
    producers: int = 2
    slots: int = 5
    per_second: float = 50.0
    lease_s: float = 3.0
    interval_s: float = 3.0
    only: Sequence[str] = ()
    app: str | None = None
    starts: Sequence[tuple[str, Any]] = ()
    unstarted: Sequence[str] = ()
    """The job types that could begin a chain and are not among the starts."""


class CampaignSample(msgspec.Struct, frozen=True):
    """How far a campaign was at a moment; None while nothing answers.

    ended, open: jobs that had ended, and those that had not. taken, behind: events that the consumer had taken, and
    those that it had not.
    """

    at: float
    ended: int | None
    open: int | None
    taken: int | None
    behind: int | None


class CampaignResult(msgspec.Struct, frozen=True):
    """A campaign and its verdict, with all that its page shows."""

    plan: CampaignPlan
    store: str
    version: str
    date: str
    verdict: CampaignVerdict
    skipped: Mapping[str, str]
    history: History
    samples: Sequence[CampaignSample]
    began_at: float
    faults_ended_at: float
    ended_at: float
    away_since: float | None = None
    """Since when the database has not answered, if it stayed away."""

    @property
    def not_started(self) -> list[str]:
        """The job types that could begin a chain and never ran, not even as continuations of others."""
        ran = {each.type for each in self.history.began}
        return [each for each in self.plan.unstarted if each not in ran]

    def to_json(self) -> dict[str, Any]:
        """Return what scripts read: the figures first."""
        found: dict[str, Any] = msgspec.to_builtins(self.verdict)
        for name in ("recoveries", "charged"):
            del found[name]
        plan = msgspec.to_builtins(self.plan)
        del plan["unstarted"]
        about = {"seed": plan.pop("seed"), "seconds": plan.pop("seconds"), "store": self.store}
        return {
            **found,
            **about,
            "skipped": dict(self.skipped),
            "not_started": self.not_started,
            "date": self.date,
            "version": self.version,
            "plan": plan,
        }


class Campaign:
    """One campaign on a database; `run` does all of it."""

    def __init__(self, plan: CampaignPlan, target: CampaignTarget, journals: Path) -> None:
        self.plan = plan
        self.target = target
        self.journals = journals
        self.active: dict[int, Fault] = {}
        """The faults that are made right now."""

        self.history: list[FaultRecord] = []
        self.samples: list[CampaignSample] = []
        self.began_at = 0.0
        self.phase = "starting"
        self.is_stopping = threading.Event()
        """Set to end the campaign early; it is drained and judged all the same."""

        self._journal: Journal | None = None
        self._is_over = threading.Event()
        self._stalls = 0
        self._seen_at = 0.0
        self._store = ""
        self._patience_s = IDLE_S + 3 * plan.lease_s
        self._answered_at = 0.0
        self._away_since: float | None = None
        self._is_silent = False
        refused = target.refusals()
        wanted = plan.only or tuple(KINDS)
        self.skipped = {kind: refused[kind] for kind in wanted if kind in refused}
        unpublished = refuse_events(plan.app)
        self.has_events = unpublished is None
        if unpublished is not None:
            self.skipped["events"] = unpublished
        self.kinds = [kind for kind in wanted if kind not in refused]
        self.faults = make_plan(plan.seed, plan.seconds, self.kinds, plan.interval_s)

    def run(self) -> CampaignResult:
        """Run it, and judge what is left. Raises: CampaignStalled, SchemaInUse, and the errors of databases."""
        self.target.prepare()
        self._store = self.target.name
        with ExitStack() as stack:
            guard = stack.enter_context(OrphanGuard())
            self._journal = stack.enter_context(closing(Journal(self.journals, "faults")))
            scene = self._make_scene(stack, guard)
            self._seen_at = self._answered_at = now()
            for each in (
                self._repeat(STALL_TICK_S, self._watch_clock),
                self._repeat(SAMPLE_S, self._sample),
            ):
                stack.callback(each.join)
            stack.callback(self._is_over.set)
            self._warm_up(scene)
            self.began_at = now()
            self.phase = "faults"
            self._make_faults(scene)
            faults_ended_at = now()
            self.phase = "draining"
            self._stop(scene.producers)
            self._drain()
            self.phase = "judging"
            self._stop(scene.workers)
        return self._judge(faults_ended_at)

    def _stop(self, actors: Sequence[CampaignActor]) -> None:
        """Ask processes to stop; without a database they have nothing to write, and are killed."""
        for each in actors:
            if self._away_since is None:
                each.stop()
            else:
                each.kill()

    def _make_scene(self, stack: ExitStack, guard: OrphanGuard) -> FaultScene:
        def options_of(name: str) -> tuple[SubjectOptions, Any]:
            proxy = self.target.make_proxy()
            url = self.target.url if proxy is None else stack.enter_context(proxy).url
            lease_ms = int(self.plan.lease_s * 1_000)
            told = SubjectOptions(
                url, self.target.schema, name, str(self.journals), lease_ms, self.plan.app
            )
            return told, proxy

        workers = []
        for number in range(1, self.plan.workers + 1):
            told, proxy = options_of(f"worker-{number}")
            workers.append(make_worker(told, proxy, guard, self.plan.slots))
        producers = []
        for number in range(1, self.plan.producers + 1):
            told, proxy = options_of(f"producer-{number}")
            rate = self.plan.per_second / self.plan.producers
            about = ProducerOptions(self.plan.seed + number, rate, list(self.plan.starts))
            producers.append(make_producer(told, proxy, guard, about))
        for each in (*workers, *producers):
            stack.callback(_end, each)
            each.start()
        is_own = self.plan.app is None
        return FaultScene(self.target, workers, producers, self.plan.lease_s, is_own)

    def _warm_up(self, scene: FaultScene) -> None:
        """Wait until jobs are completed and events taken before anything is broken. Raises: CampaignStalled."""
        deadline = now() + WARM_UP_S
        while (missing := self._find_gap()) is not None and not self.is_stopping.is_set():
            for each in (*scene.workers, *scene.producers):
                each.check()
            if now() > deadline:
                raise CampaignStalled(f"no {missing} within {WARM_UP_S:.0f} seconds")
            time.sleep(POLL_S)

    def _find_gap(self) -> str | None:
        """Return what has not happened yet."""
        last = self.samples[-1] if self.samples else None
        if last is None or not last.ended:
            return "job was completed"
        return "event was taken" if self.has_events and not last.taken else None

    def _make_faults(self, scene: FaultScene) -> None:
        """Make every planned fault at its time, several at once; return when the last has ended."""
        with ThreadPoolExecutor(MAX_AT_ONCE, "chaos-fault") as pool:
            made: list[Future[None]] = []
            try:
                for planned in self.faults:
                    if self._sleep_until(self.began_at + planned.at):
                        break
                    made.append(pool.submit(self._make_fault, planned, scene))
                    _raise_first(made)
                self._sleep_until(self.began_at + self.plan.seconds)
            except BaseException:
                self.is_stopping.set()
                raise
        _raise_first(made)

    def _make_fault(self, planned: PlannedFault, scene: FaultScene) -> None:
        fault = KINDS[planned.kind](planned, scene)
        with fault.lock:
            if self.is_stopping.is_set():
                return
            fault.began_at = now()
            self.active[planned.number] = fault
            try:
                fault.begin()
                self.is_stopping.wait(fault.seconds)
            finally:
                fault.end()
                if fault.was_made:
                    self._note(fault.to_record())
                del self.active[planned.number]

    def _note(self, record: FaultRecord) -> None:
        assert self._journal is not None
        self._journal.write(record)
        self.history.append(record)

    def _sleep_until(self, moment: float) -> bool:
        """Return early, and whether that is so, when the campaign is to end."""
        return self.is_stopping.wait(max(0.0, moment - now()))

    def _note_stall(self, began_at: float) -> None:
        """Note that the machine or its database was too slow by itself, long enough to cost a lease."""
        self._stalls += 1
        self._note(FaultRecord(-self._stalls, "stall", began_at, now(), is_injected=False))

    def _drain(self) -> None:
        """Wait until every job has ended and every event was taken, or nothing has happened for long."""
        last: ProgressCounts | None = None
        idle_s, seen_at = 0.0, now()
        while self._away_since is None and idle_s < self._patience_s:
            found = self._look()
            before, seen_at = seen_at, now()
            if found is not None:
                if found[1] == 0 and found[3] <= 0:
                    return
                # What is away does not idle.
                idle_s = idle_s + seen_at - before if found == last else 0.0
                last = found
            time.sleep(POLL_S)

    def _look(self) -> ProgressCounts | None:
        """Return how far it is; note that the database was away by itself, and end when it stays so."""
        found = read_progress(self.target)
        if found is not None and self._is_silent:
            self._is_silent = False
            self._note_stall(self._answered_at)
        if found is not None or any(each.is_outage for each in list(self.active.values())):
            self._answered_at = now()
            return found
        self._is_silent = True
        if self._away_since is None and now() - self._answered_at > self._patience_s:
            self._away_since = self._answered_at
            self.is_stopping.set()
        return None

    def _judge(self, faults_ended_at: float) -> CampaignResult:
        history = read_journals(self.journals)
        rows = self._read_rows()
        is_own = self.plan.app is None
        verdict = judge(history, rows, self.plan.lease_s, is_own=is_own, has_events=self.has_events)
        return CampaignResult(
            plan=self.plan,
            store=self._store,
            version=VERSION,
            date=datetime.now(UTC).date().isoformat(),
            verdict=verdict,
            skipped=self.skipped,
            history=history,
            samples=self.samples,
            began_at=self.began_at,
            faults_ended_at=faults_ended_at,
            ended_at=now(),
            away_since=self._away_since,
        )

    def _read_rows(self) -> LeftRows | None:
        """Read what is left in the database; None if it is away."""
        if self._away_since is not None:
            return None
        try:
            return read_rows(self.target)
        except DatabaseUnreachable:
            self._away_since = self._answered_at
            return None

    def _repeat(self, interval_s: float, call: Callable[[], None]) -> threading.Thread:
        """Call something in a thread, again and again until the campaign is over."""

        def run() -> None:
            while not self._is_over.wait(interval_s):
                call()

        thread = threading.Thread(target=run, name="chaos-watch", daemon=True)
        thread.start()
        return thread

    def _watch_clock(self) -> None:
        before, self._seen_at = self._seen_at, now()
        if self._seen_at - before > STALL_TICK_S + self.plan.lease_s / 4:
            self._note_stall(before)

    def _sample(self) -> None:
        at = now()
        self.target.probe()
        found = self._look()
        if now() - at > self.plan.lease_s / 4:
            self._note_stall(at)
        self.samples.append(CampaignSample(at, *(found or (None,) * 4)))


def read_progress(target: CampaignTarget) -> ProgressCounts | None:
    """Return how many jobs have ended and have not, and how many events were taken and were not.

    None while the database does not answer.
    """
    try:
        ((ended, waiting, taken, behind),) = target.execute("progress")
    except Exception:
        # Whatever the driver says: it is meant to be away now and then.
        return None
    return int(ended), int(waiting), int(taken), int(behind)


def read_rows(target: CampaignTarget) -> LeftRows:
    """Read what is left in the database, and what breaks the laws of rows."""
    with closing(Holdfast(target.url, schema=target.schema)) as app:
        breaches = [
            f"{each.law.name}: {breach.subject}: {breach.text}"
            for each in app.database.run(check_laws())
            for breach in each.breaches
        ]
    return LeftRows(
        jobs=[LeftJob(*row) for row in target.execute("jobs")],
        effects=[LeftEffect(*row) for row in target.execute("effects")],
        reaps=[LeftReap(*row) for row in target.execute("reaps")],
        taken=[TakenEvent(*row) for row in target.execute("taken")],
        keys={str(key): int(n) for key, n in target.execute("keys")},
        breaches=breaches,
    )


def _end(actor: CampaignActor) -> None:
    """Have a process gone, whatever state it is in."""
    if actor.is_up:
        actor.kill()


def _raise_first(made: Sequence[Future[None]]) -> None:
    """Raise what a fault could not do: its campaign shows nothing."""
    for each in made:
        if each.done():
            each.result()
