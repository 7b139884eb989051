"""A believable afternoon in a database: an hour of work in every state, for browser tests and pictures."""

from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec

from holdfast.commands.attempts import finish_attempts
from holdfast.commands.cycles import begin_slot, complete_slot, fail_slot
from holdfast.commands.start import StartRequest, start_chains
from holdfast.core.cycle import NewCycle, NewRun, slot_at
from holdfast.core.ids import uuid7_text
from holdfast.core.instants import Instant
from holdfast.core.records import (
    AuditRecord,
    Claim,
    ClaimedJob,
    Finish,
    FinishKind,
    LeaseClass,
    NewBlocker,
    NewJob,
    Probe,
)
from holdfast.core.worker_presence import WorkerSign
from holdfast.storage.database import Database
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op, at
from holdfast_archive.manifest import ArchivedObject
from holdfast_archive.manifest_store import ARCHIVING

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR, DAY = 60 * MINUTE, 24 * 60 * MINUTE
MINUTES = 58
WORKERS = ("berlin-1", "berlin-2")
TYPES = ("order.charge", "order.ship", "mail.send", "image.resize", "report.page", "report.build")

_FIRST = "00000000-0000-0000-0000-000000000000"
_WEIGHTED = ("mail.send",) * 5 + ("order.charge",) * 4 + ("image.resize",) * 3
_ERRORS = {
    "mail.send": "TimeoutError: smtp.example.com did not answer within 10 s",
    "order.charge": "CardDeclined: the bank declined the card ending in 4242",
    "image.resize": "ValueError: image has 0 bytes",
}

_TALLY = {
    "sqlite": "insert into holdfast_tally (at, type, started, completed, failed) "
    "values (?, 'mail.send', ?, ?, ?)",
    "postgresql": "insert into holdfast.tally (at, type, started, completed, failed) "
    "values (to_timestamp(%s / 1000000.0), 'mail.send', %s, %s, %s)",
}

_COUNTERS = '{"processed": 1240, "updated": 12, "payments_matched": 1228, "payments_missing": 0}'


class Afternoon:
    """Fills a database by the store's own operations, each at an instant of the last hour."""

    def __init__(self, database: Database, seed: int = 7) -> None:
        self._database = database
        self._store = database.store
        self._random = Random(seed)
        self.now: Instant = database.read(self._store.schema.clock())
        self.failed: list[str] = []
        self.report = ""

    def fill(self) -> None:
        """Let the afternoon happen."""
        self._sign_workers()
        self._pass_week()
        for minute in range(MINUTES, 0, -1):
            self._work(self.now - minute * MINUTE)
        self._build_report()
        self._leave_work()
        self._run_cycles()
        self._archive()
        self._note_deeds()

    def start(self, type: str, when: Instant, blockers: Sequence[str] = (), **fields: Any) -> str:
        """Start a chain at an instant; return its id."""
        id = self._id(when)
        input = msgspec.json.encode(self._input(type)).decode()
        job = NewJob(id=id, chain_id=id, type=type, input=input, blockers=len(blockers), **fields)
        edges = tuple(NewBlocker(id, place, chain) for place, chain in enumerate(blockers))
        self._run(start_chains(self._store, [StartRequest(job, None, edges)]), when)
        return id

    def claim(
        self, when: Instant, types: Sequence[str] = TYPES, limit: int = 100, lease_ms: int = 45_000
    ) -> list[ClaimedJob]:
        """Let a worker take what is due."""
        token = new_id()
        probes = tuple(Probe(type, 5, token, limit, 0, _FIRST) for type in types)
        lease = LeaseClass(token, lease_ms, 8, 1_000, 5_000)
        worker = self._random.choice(WORKERS)
        claim = Claim(worker, limit, probes, (lease,))
        claimed: list[ClaimedJob] = self._run(self._store.jobs.claim(claim), when)
        return claimed

    def finish(self, job: ClaimedJob, kind: FinishKind, when: Instant, **fields: Any) -> None:
        """End an attempt."""
        finish = Finish(
            job.id,
            job.token,
            kind,
            self._random.choice(WORKERS),
            job.chain_id,
            started_at=job.claimed_at,
            **fields,
        )
        self._run(finish_attempts(self._store, [finish]), when)

    def _pass_week(self) -> None:
        """Leave the counts of a week's hours, whose jobs retention has removed since."""
        random, rows = Random(11), []
        for hour in range(self.now - self.now % DAY - 6 * DAY, self.now - 2 * HOUR, HOUR):
            is_busy = 9 <= hour // HOUR % 24 < 19 and (hour // DAY + 4) % 7 not in (0, 6)
            started = random.randint(180, 900) if is_busy else random.randint(0, 60)
            failed = random.randint(1, 9) if started and random.random() < 0.08 else 0
            failed = min(failed, started)
            rows.append((hour, started, started - failed, failed))
            rows.append((self.now - 60 * DAY, -started, failed - started, -failed))
        with self._database.transaction() as tx:
            for row in rows:
                tx.execute(_TALLY[self._store.dialect], row)

    def _work(self, when: Instant) -> None:
        for _ in range(self._random.randint(2, 9)):
            self.start(
                self._random.choice(_WEIGHTED),
                when,
                key=f"order:{self._random.randint(1000, 9999)}",
            )
        claimed = self.claim(when + self._random.randint(20, 2_500) * 1_000)
        for job in claimed:
            self._end(job, job.claimed_at + self._random.randint(40, 8_000) * 1_000)
        shipped = self.claim(when + 12 * SECOND, ("order.ship",))
        for job in shipped:
            self._end(job, job.claimed_at + self._random.randint(40, 3_000) * 1_000)
        tokens = {job.token for job in (*claimed, *shipped)}
        self._run(self._store.leases.free(sorted(tokens)), when + 30 * SECOND)

    def _end(self, job: ClaimedJob, when: Instant) -> None:
        luck = self._random.random()
        if luck < 0.05 and job.type in _ERRORS:
            error = _ERRORS[job.type]
            kind = error.partition(":")[0]
            self.finish(job, "fail", when, error=error, fingerprint=kind)
            self.failed.append(job.id)
        elif luck < 0.12:
            error = "ConnectionError: the provider closed the connection"
            self.finish(job, "retry", when, error=error, delay_ms=500)
        elif job.type == "order.charge":
            ship = NewJob(
                id=self._id(when),
                chain_id=job.chain_id,
                type="order.ship",
                input="{}",
                chain_index=1,
            )
            self.finish(job, "continue", when, output='{"paid": true}', next=ship)
        else:
            self.finish(job, "complete", when, output='{"ok": true}')

    def _build_report(self) -> None:
        begun = self.now - 3 * MINUTE
        pages = [self.start("report.page", begun + place * 40_000) for place in range(6)]
        cover = self.start("image.resize", begun)
        self.report = self.start("report.build", begun + SECOND, (*pages, cover))
        done = self.claim(begun + 2 * SECOND, ("report.page",), 4)
        for job in done:
            self.finish(job, "complete", begun + self._random.randint(5, 50) * SECOND, output="1")
        self._run(self._store.leases.free([done[0].token]), begun + MINUTE)

    def _leave_work(self) -> None:
        late = self.now - 8 * SECOND
        for type in ("order.charge", "image.resize", "mail.send"):
            self.start(type, late)
        self.claim(late + 200_000, lease_ms=60_000)
        for place in range(9):
            self.start(_WEIGHTED[place], self.now - (9 - place) * 400_000)
        self.start("mail.send", self.now, at=self.now + 2 * 3_600 * SECOND)
        self.start("invoice.archive", self.now - 4 * SECOND)

    def _sign_workers(self) -> None:
        types = msgspec.json.encode(TYPES).decode()
        for place, id in enumerate(WORKERS):
            sign = WorkerSign(
                id, id, "worker-a", 4711 + place, "0.1.0", 8, types, '{"processed": 318}', None
            )
            self._run(self._store.workers.sign(sign), self.now)
        gone = WorkerSign("berlin-0", "berlin-0", "worker-b", 97, "0.1.0", 8, types, "{}", None)
        self._run(self._store.workers.sign(gone), self.now - 50 * MINUTE)
        self._run(self._store.workers.stop("berlin-0", "{}"), self.now - 20 * MINUTE)

    def _run_cycles(self) -> None:
        cycles = [
            NewCycle("cleanup", "17 3 * * *", "America/Santiago", True, "last"),
            NewCycle("reconcile", "every 5m", "UTC", True, "last"),
        ]
        self._run(self._store.cycles.register(cycles), self.now - 30 * MINUTE)
        step = 5 * MINUTE
        for place in range(5, 0, -1):
            due = (self.now // step - place + 1) * step
            run = NewRun(new_id(), "reconcile", WORKERS[place % 2], slot_at(due).name)
            held = self._run(
                begin_slot(self._store, run, slot_at(due), new_id(), 60_000), due + 30_000
            )
            assert held is not None
            ended = due + 1_900_000
            if place == 3:
                error = "ApiError: 503 from the bank"
                self._run(
                    fail_slot(self._store, held, "failed", '{"processed": 3}', error, None), ended
                )
            else:
                self._run(complete_slot(self._store, held, _COUNTERS), ended + place * 20_000_000)

    def _archive(self) -> None:
        """Leave manifests in several states; their objects are nowhere."""
        for place, period in enumerate(("2026-08", "2026-09", "2026-10")):
            id, token, when = new_id(), new_id(), self.now - (9 - place) * MINUTE
            claim = ARCHIVING.claim(id, "deliveries", period, 0, "{}", token, 60_000)
            assert self._run(claim, when) is not None
            if place == 2:
                error = "HF107: the bucket cannot be reached"
                self._run(ARCHIVING.release(id, token, error, "failed"), when)
                continue
            digest = f"{place}" * 64
            key = f"deliveries/{period}/0-{digest}.parquet"
            objects = [ArchivedObject("deliveries", key, 41_200, 812_000, digest)]
            self._run(ARCHIVING.mark_exported(id, token, objects, 41_200, "{}"), when)
            self._run(ARCHIVING.mark_verified(id, token, 30 * 86_400_000), when)

    def _note_deeds(self) -> None:
        deeds = [
            AuditRecord(
                new_id(),
                "ana",
                "operator",
                "job.retry",
                f"job {each}",
                '{"state":"failed"}',
                '{"state":"pending"}',
                "the bank is back",
                new_id(),
            )
            for each in self.failed[:3]
        ]
        pause = AuditRecord(
            new_id(),
            "ben",
            "operator",
            "type.pause",
            "type image.resize",
            '{"paused":false}',
            '{"paused":true}',
            "disk is full",
            new_id(),
        )
        many = AuditRecord(
            new_id(),
            "ana",
            "operator",
            "dead.redrive",
            "14 jobs",
            '{"states":{"failed":14}}',
            msgspec.json.encode(
                {
                    "bulk": new_id(),
                    "count": 14,
                    "filter": "type:mail.send",
                    "ids": [new_id() for _ in range(14)],
                    "states": {"pending": 14},
                }
            ).decode(),
            "the bank is back",
            new_id(),
        )
        self._run(self._store.audit.append([*deeds, pause, many]), self.now - 12 * MINUTE)

    def _input(self, type: str) -> dict[str, Any]:
        number = self._random.randint(1000, 9999)
        return {
            "order": number,
            "to": f"customer-{number}@example.com",
            "api_key": "sk_live_12345678",
        }

    def _id(self, when: Instant) -> str:
        return uuid7_text(when // 1000, self._random.getrandbits(25), self._random.randbytes(6))

    def _run(self, op: Op[Any], when: Instant) -> Any:
        return self._database.run(at(op, when))
