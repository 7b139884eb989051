"""What the stores mean, as plain dictionaries: the judge of the state machine, written from the design."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.core.instants import Instant
from holdfast.core.records import (
    TERMINAL,
    Ending,
    Finish,
    LeaseClass,
    NewBlocker,
    NewJob,
    NewKey,
    State,
)
from tests.model.records import ModelEdge, ModelJob, ModelLease


@dataclass
class Model:
    """The whole state, and the moves on it."""

    jobs: dict[str, ModelJob] = field(default_factory=dict)
    leases: dict[str, ModelLease] = field(default_factory=dict)
    edges: list[ModelEdge] = field(default_factory=list)
    keys: dict[tuple[str, str], tuple[str, Instant | None]] = field(default_factory=dict)
    signals: list[tuple[str, str]] = field(default_factory=list)

    @property
    def chains(self) -> list[str]:
        """The ids of all chains."""
        return sorted({each.new.chain_id for each in self.jobs.values()})

    def chain(self, chain_id: str) -> list[ModelJob]:
        """The jobs of a chain in order."""
        mine = [each for each in self.jobs.values() if each.new.chain_id == chain_id]
        return sorted(mine, key=lambda each: each.new.chain_index)

    def tail(self, chain_id: str) -> ModelJob:
        """The last job of a chain."""
        return self.chain(chain_id)[-1]

    def key_holder(self, key: NewKey, now: Instant) -> str | None:
        """The chain that holds a key, if it is not free."""
        held = self.keys.get((key.type, key.key))
        if held is None:
            return None
        chain_id, until = held
        if (until is not None and until <= now) or chain_id in key.exclude:
            return None
        if key.scope == "open" and self.tail(chain_id).state in ("completed", "cancelled"):
            return None
        return chain_id

    def start(
        self, starts: list[tuple[NewJob, NewKey | None, list[NewBlocker]]], now: Instant
    ) -> list[str]:
        """Start chains together; return the ids of the chains that stand for them. Of a key the first start counts."""
        stands: list[str] = []
        claimed: set[tuple[str, str]] = set()
        for job, key, edges in starts:
            if key is not None:
                name = (key.type, key.key)
                holder = self.keys[name][0] if name in claimed else self.key_holder(key, now)
                claimed.add(name)
                if holder is not None:
                    stands.append(holder)
                    continue
                until = None if key.window_ms is None else now + key.window_ms * 1000
                self.keys[name] = (job.id, until)
            self.add(job, edges, now)
            stands.append(job.id)
        return stands

    def add(self, job: NewJob, edges: list[NewBlocker], now: Instant) -> None:
        """Write a job, blocked while an edge is open."""
        due = max(job.at or now, now)
        self.jobs[job.id] = ModelJob(job, now, "pending", due)
        if not edges:
            return
        added = self.jobs[job.id]
        added.state, added.available_at = "blocked", None
        self.edges += [ModelEdge(edge) for edge in edges]
        for chain_id in {edge.chain_id for edge in edges}:
            if self.tail(chain_id).state in TERMINAL:
                self._chain_ended(chain_id, now)

    def claim(
        self,
        types: list[str],
        tokens: dict[str, LeaseClass],
        limit: int,
        share: int | None,
        now: Instant,
        reads: int | None = None,
    ) -> list[str]:
        """Take due jobs: priorities are strict, lines of one priority take turns, a line gives its oldest first.

        What has a newer version than the claimer `reads` is as if it was not there.
        Of the jobs within reach that crashed before only the first is taken; the others leave their places empty.
        """
        reached: list[ModelJob] = []
        for priority in range(10):
            lines = [self._line(each, priority, now, reads) for each in types]
            reached += [each for line in lines for each in line[:share]]
            if share is not None:
                reached += [each for line in lines for each in line[share:]]
        taken = sorted(
            reached[:limit], key=lambda each: (each.new.priority, each.available_at, each.new.id)
        )
        crashed = [each for each in taken if each.crashes > 0]
        taken = [each for each in taken if each.crashes == 0 or each is crashed[0]]
        for each in taken:
            rules = tokens[each.new.type]
            each.state, each.token = "running", rules.token
            each.attempt += 1
            each.fence = max(each.fence + 1, now // 1000)
            lease = self.leases.setdefault(
                rules.token, ModelLease(now + rules.lease_ms * 1000, rules, [])
            )
            lease.job_ids.append(each.new.id)
        return [each.new.id for each in taken]

    def _line(
        self, type: str, priority: int, now: Instant, reads: int | None = None
    ) -> list[ModelJob]:
        """What is due of a type at a priority and readable, oldest first."""
        due = [
            each
            for each in self.jobs.values()
            if each.state == "pending"
            and (each.new.type, each.new.priority) == (type, priority)
            and (each.available_at or 0) <= now
            and (reads is None or (each.new.version or 1) <= reads)
        ]
        return sorted(due, key=lambda each: (each.available_at, each.new.id))

    def finish(self, finish: Finish, now: Instant) -> bool:
        """End or give back an attempt; False when the token is not the job's."""
        job = self.jobs.get(finish.id)
        if job is None or job.token != finish.token:
            return False
        job.token = None
        match finish.kind:
            case "retry" | "snooze" | "release" | "park":
                self._give_back(job, finish, now)
            case "complete" | "continue":
                self._end(job, "completed", finish.output, None)
            case "fail":
                self._end(job, "failed", None, finish.error)
            case "cancel":
                self._end(job, "cancelled", None, finish.error)
        if finish.kind == "continue" and finish.next is not None:
            job.continued = True
            self.add(finish.next, finish.next_blockers, now)
        elif job.state in TERMINAL:
            self._chain_ended(job.new.chain_id, now)
        return True

    def _give_back(self, job: ModelJob, finish: Finish, now: Instant) -> None:
        if finish.kind != "retry":
            job.attempt -= 1
        if finish.kind == "park":
            self._park(job, finish.until, now)
            return
        job.state, job.woken = "pending", None
        if finish.kind != "release":
            job.available_at, job.crashes = now + finish.delay_ms * 1000, 0

    def _park(self, job: ModelJob, until: Instant | None, now: Instant) -> None:
        is_due = job.woken or any(self.signal_for(each) for each in job.waits.values())
        at = now if is_due else until
        job.state, job.available_at = ("blocked", None) if at is None else ("pending", at)
        job.woken = None if at is not None and at <= now else False

    def record_wait(self, job_id: str, token: str, nth: int, key: str) -> bool:
        """Record an open wait, which is progress; False when the token is not the job's."""
        job = self.jobs.get(job_id)
        if job is None or job.token != token:
            return False
        job.waits[nth] = key
        job.attempt = 1
        return True

    def signal_for(self, key: str) -> str | None:
        """The oldest signal of a key that nobody took."""
        return min((id for id, each in self.signals if each == key), default=None)

    def signal(self, id: str, key: str, now: Instant) -> None:
        """Send a signal: what is parked is due, what runs is due again when it parks."""
        self.signals.append((id, key))
        for job in self.jobs.values():
            if key not in job.waits.values() or job.state in TERMINAL:
                continue
            if job.token is not None:
                job.woken = True
            elif job.woken is False:
                job.state, job.woken = "pending", None
                job.available_at = min(now, job.available_at or now)

    def take(self, job_id: str, token: str, nth: int, signal_id: str) -> bool:
        """End a wait by a signal; False when the token is not the job's, or one of them is gone."""
        job = self.jobs.get(job_id)
        left = [each for each in self.signals if each[0] != signal_id]
        if job is None or job.token != token or nth not in job.waits or left == self.signals:
            return False
        self.signals = left
        del job.waits[nth]
        return True

    def end_outside(self, endings: list[Ending], now: Instant) -> list[str]:
        """End live jobs from outside, all at once; return which."""
        live = [each for each in endings if self.jobs[each.id].state not in TERMINAL]
        for ending in live:
            job = self.jobs[ending.id]
            self._end(job, ending.state, ending.output, ending.error)
            if ending.next is not None:
                job.continued = True
                self.add(ending.next, [], now)
        for ending in live:
            if ending.next is None:
                self._chain_ended(self.jobs[ending.id].new.chain_id, now)
        return [each.id for each in live]

    def reap(self, poison: int, now: Instant) -> None:
        """Take back what expired leases hold."""
        dead = sorted(
            (lease.expires_at, token)
            for token, lease in self.leases.items()
            if lease.expires_at <= now
        )
        for _, token in dead:
            lease = self.leases.pop(token)
            for job_id in lease.job_ids:
                job = self.jobs.get(job_id)
                if job is None or job.token != token:
                    continue
                job.token = None
                job.crashes += 1
                limit = job.new.max_attempts
                if limit is None:
                    limit = lease.rules.max_attempts
                if (lease.alone and job.crashes >= poison) or (limit > 0 and job.attempt >= limit):
                    self._end(job, "failed", None, None)
                    self._chain_ended(job.new.chain_id, now)
                    continue
                job.state = "pending"
                if job.crashes > 1:
                    delay = min(
                        lease.rules.backoff_cap_ms,
                        lease.rules.backoff_base_ms * 2 ** (job.crashes - 2),
                    )
                    job.available_at = now + delay * 1000

    def renew(self, token: str, now: Instant) -> bool:
        """Extend a lease that was not reaped."""
        lease = self.leases.get(token)
        if lease is None:
            return False
        lease.expires_at = now + lease.rules.lease_ms * 1000
        return True

    def isolate(self, token: str) -> bool:
        """Note that a lease's worker runs nothing else."""
        lease = self.leases.get(token)
        if lease is not None:
            lease.alone = True
        return lease is not None

    def trigger(self, job_ids: list[str], now: Instant) -> bool:
        """Make pending jobs due, all or none."""
        if any(self.jobs[each].state != "pending" for each in job_ids):
            return False
        for each in job_ids:
            self.jobs[each].available_at = now
        return True

    def redrive(self, job_id: str, now: Instant) -> bool:
        """Take a failed job back; one that failed with a chain may still wait for others."""
        job = self.jobs[job_id]
        if job.state != "failed":
            return False
        edges = [
            each for each in self.edges if each.edge.job_id == job_id and each.edge.step is None
        ]
        waits = any(each.open for each in edges)
        job.state, job.available_at = ("blocked", None) if waits else ("pending", now)
        job.attempt = job.crashes = 0
        job.error = job.output = job.woken = None
        return True

    def waiting_for(self, chain_ids: set[str]) -> bool:
        """Whether a job outside these chains has an open edge to one of them."""
        return any(
            each.open
            and each.edge.chain_id in chain_ids
            and self.jobs[each.edge.job_id].new.chain_id not in chain_ids
            for each in self.edges
        )

    def below(self, chain_ids: set[str]) -> set[str]:
        """These chains with all that any job of them waits or waited for, and so on."""
        known, fresh = set(chain_ids), set(chain_ids)
        while fresh:
            jobs = {each.new.id for each in self.jobs.values() if each.new.chain_id in fresh}
            found = {each.edge.chain_id for each in self.edges if each.edge.job_id in jobs}
            fresh = found - known
            known |= fresh
        return known & set(self.chains)

    def delete(self, chain_id: str) -> None:
        """Remove a chain with everything that belongs to it."""
        gone = {each.new.id for each in self.chain(chain_id)}
        for job_id in gone:
            del self.jobs[job_id]
        self.edges = [each for each in self.edges if each.edge.job_id not in gone]
        self.keys = {key: held for key, held in self.keys.items() if held[0] != chain_id}

    def _end(self, job: ModelJob, state: State, output: str | None, error: str | None) -> None:
        job.state, job.output, job.error = state, output, error
        job.token, job.available_at = None, None

    def _chain_ended(self, chain_id: str, now: Instant) -> None:
        """Close the edges that lead to an ended chain, as their policies say, and what follows from that."""
        state = self.tail(chain_id).state
        closed = []
        for each in self.edges:
            lets_through = state == "completed" or each.edge.on_failure != "wait"
            if each.open and each.edge.chain_id == chain_id and lets_through:
                each.open = False
                closed.append(each.edge)
        failing = {
            edge.job_id for edge in closed if state != "completed" and edge.on_failure == "fail"
        }
        for job_id in {edge.job_id for edge in closed} - failing:
            job = self.jobs[job_id]
            still = any(each.open and each.edge.job_id == job_id for each in self.edges)
            if job.state == "blocked" and not still:
                job.state, job.available_at = "pending", max(job.new.at or now, now)
        for job_id in sorted(failing):
            job = self.jobs[job_id]
            if job.state not in TERMINAL:
                self._end(job, "failed", None, None)
                self._chain_ended(job.new.chain_id, now)
