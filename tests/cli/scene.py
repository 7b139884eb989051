"""Jobs in every state, made by the store's own operations."""

from typing import Any

from holdfast.commands.start import StartRequest, start_chains
from holdfast.core.records import (
    Claim,
    ClaimedJob,
    Finish,
    FinishKind,
    Held,
    LeaseClass,
    LeaseStatus,
    NewBlocker,
    NewJob,
    Probe,
)
from holdfast.core.subscriptions import Subscription
from holdfast.core.worker_presence import WorkerSign
from holdfast.storage.database import Database
from holdfast.storage.id_generator import new_id

WORKER = "w-7"
_FIRST = "00000000-0000-0000-0000-000000000000"


class Scene:
    """What a command finds in the database."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.store = database.store

    def start(self, type: str = "mail.send", blockers: tuple[str, ...] = (), **fields: Any) -> str:
        """Start a chain; return its id."""
        id = new_id()
        known = {"id": id, "chain_id": id, "type": type, "input": '{"to":"ana"}'}
        job = NewJob(**known | {"blockers": len(blockers)} | fields)
        edges = tuple(NewBlocker(id, place, chain) for place, chain in enumerate(blockers))
        self.database.run(start_chains(self.store, [StartRequest(job, None, edges)]))
        return id

    def claim(self, type: str = "mail.send", lease_ms: int = 60_000) -> list[ClaimedJob]:
        """Claim what is due of a type."""
        token = new_id()
        probe = Probe(type, 5, token, 100, 0, _FIRST)
        lease = LeaseClass(token, lease_ms, 25, 1_000, 5_000)
        return self.database.run(self.store.jobs.claim(Claim(WORKER, 100, (probe,), (lease,))))

    def running(self, type: str = "mail.send", lease_ms: int = 60_000) -> ClaimedJob:
        """Start a job and claim it."""
        self.start(type)
        (claimed,) = self.claim(type, lease_ms)
        return claimed

    def abandoned(self, type: str = "mail.send", ago_s: int = 600, input: str = "{}") -> str:
        """Make a job whose worker took it long ago and is gone; return its id."""
        past = self.database.read(self.store.schema.clock()) - ago_s * 1_000_000
        id, token = new_id(), new_id()
        job = NewJob(id=id, chain_id=id, type=type, input=input)
        self.database.run(self.store.jobs.insert([job], now=past))
        probe, lease = Probe(type, 5, token, 1, 0, _FIRST), LeaseClass(token, 1, 25, 1_000, 5_000)
        claim = Claim(WORKER, 1, (probe,), (lease,))
        assert self.database.run(self.store.jobs.claim(claim, past))
        return id

    def ended(self, kind: FinishKind, type: str = "mail.send", **fields: Any) -> str:
        """Start a job, claim it and end its attempt; return its id."""
        job = self.running(type)
        self.finish(job, kind, **fields)
        return job.id

    def finish(self, job: ClaimedJob, kind: FinishKind, **fields: Any) -> None:
        """End the attempt of a claimed job."""
        proof = {"id": job.id, "token": job.token, "chain_id": job.chain_id, "worker": WORKER}
        finish = Finish(**proof | {"kind": kind} | fields)
        accepted = self.database.run(self.store.jobs.finish([finish], awaited=True))
        assert [each.id for each in accepted] == [job.id]

    def failed(self, error: str = "ValueError: boom", type: str = "mail.send") -> str:
        """Make a dead letter; return its id."""
        return self.ended("fail", type, error=error, fingerprint=error.partition(":")[0])

    def continued(self, job: ClaimedJob, type: str) -> str:
        """End a claimed job by a next one in its chain; return the next one's id."""
        id = new_id()
        index = job.chain_index + 1
        next_job = NewJob(id=id, chain_id=job.chain_id, type=type, input="{}", chain_index=index)
        self.finish(job, "continue", next=next_job)
        return id

    def worker(
        self, *types: str, id: str = WORKER, slots: int = 4, ago_s: int = 0, **said: Any
    ) -> None:
        """Let a worker give a sign of life."""
        listed = "[" + ",".join(f'"{each}"' for each in types) + "]"
        sign = WorkerSign(
            id, "w", "host", 1, "0.1.0", slots, listed, '{"processed": 3}', None, **said
        )
        now = self.database.read(self.store.schema.clock()) - ago_s * 1_000_000
        self.database.run(self.store.workers.sign(sign, now if ago_s else None))

    def subscribe(self, event: str, *handlers: str) -> None:
        """Let handlers subscribe to an event."""
        wanted = [Subscription(event, each) for each in handlers]
        self.database.run(self.store.events.subscribe(wanted))

    def subscribed(self, event: str) -> list[str]:
        """Read which handlers subscribe to an event."""
        found = self.database.read(self.store.events.subscriptions([event]))
        return [each.handler for each in found]

    def state(self, id: str) -> str:
        """Read a job's state."""
        (record,) = self.database.read(self.store.jobs.get([id]))
        return record.state

    def lease_status(self, job: ClaimedJob) -> LeaseStatus:
        """Ask what became of a claimed job."""
        (status,) = self.database.read(self.store.jobs.lease_status([Held(job.id, job.token)]))
        return status

    def deeds(self) -> list[tuple[str, str, str | None]]:
        """Read what was audited: action, target and reason, the oldest first."""
        records = self.database.read(self.store.audit.page(100))
        return [(each.action, each.target, each.reason) for each in reversed(records)]
