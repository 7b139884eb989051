"""The rules of durable functions: waits that are recorded, parking, signals that wake, and taking them."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from holdfast.core.records import Claim, ClaimedJob, Finish, JobRef, LeaseClass, NewJob, Probe
from holdfast.core.steps import ClosedStep, NewSignal, NewStep, WrittenStep
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op
from holdfast.storage.store import Store
from tests.model.machine import Machine

FUNCTION = "function"
KEYS = ["x", "y"]
NIL = "00000000-0000-0000-0000-000000000000"
WEEK_MS = 7 * 24 * 3_600_000
# What is parked waits for something.
WAITS = [
    (None, 0),
    (None, 5),
    (None, 60),
    *((key, until_s) for key in KEYS for until_s in (None, 0, 5, 60)),
]


class Functions(Machine):
    """Moves of functions and of those who signal them."""

    def __init__(self) -> None:
        super().__init__()
        self.recorded = 0

    @rule()
    def begin_a_function(self) -> None:
        """Start one, and claim what is due of its type: this one, and others that were woken."""
        id, token = new_id(), new_id()
        job = NewJob(id, id, FUNCTION, "1")
        self.same(lambda store: store.jobs.insert([job], now=self.now))
        self.model.add(job, [], self.now)
        rules = LeaseClass(token, 60_000, 3, 5_000, 20_000)
        request = Claim("w", 3, (Probe(FUNCTION, 5, token, 3, 0, NIL),), (rules,))
        jobs = self.same(lambda store: store.jobs.claim(request, self.now))
        expected = self.model.claim([FUNCTION], {FUNCTION: rules}, 3, None, self.now)
        assert [each.id for each in jobs] == expected
        self.held += jobs

    @precondition(lambda self: self.held or self.stale)
    @rule(key=st.sampled_from(KEYS), data=st.data())
    def record_a_wait(self, key: str, data: st.DataObject) -> None:
        self._record(data.draw(st.sampled_from([*self.held, *self.stale])), key)

    def _record(self, claimed: ClaimedJob, key: str) -> None:
        self.recorded += 1
        nth = self.recorded
        step = NewStep(
            claimed.id, claimed.token, "wait", "", nth, nth, "wait", "open",
            signal="s", signal_key=key, marks=True,
        )  # fmt: skip
        written = self.same(lambda store: store.steps.record([step], self.now))
        assert bool(written) == self.model.record_wait(claimed.id, claimed.token, nth, key)

    @precondition(lambda self: self.held)
    @rule(wait=st.sampled_from(WAITS), data=st.data())
    def park(self, wait: tuple[str | None, int | None], data: st.DataObject) -> None:
        key, until_s = wait
        claimed: ClaimedJob = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.stale.append(claimed)
        if key is not None:
            self._record(claimed, key)
        until = None if until_s is None else self.now + until_s * 1_000_000
        finish = Finish(claimed.id, claimed.token, "park", "w", claimed.chain_id, until=until)
        done = self.same(lambda store: store.jobs.finish([finish], awaited=True, now=self.now))
        assert bool(done) == self.model.finish(finish, self.now)

    @precondition(lambda self: self.recorded)
    @rule(key=st.sampled_from(KEYS))
    def signal(self, key: str) -> None:
        signal = NewSignal(new_id(), "s", key, "1", WEEK_MS)

        def send(store: Store) -> Op[list[JobRef]]:
            yield from store.signals.append([signal], now=self.now)
            return (yield from store.signals.route(100, self.now))

        self.both(send)
        self.model.signal(signal.id, key, self.now)

    @precondition(lambda self: self.held or self.stale)
    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        claimed = data.draw(st.sampled_from([*self.held, *self.stale]))
        records = self.same(lambda store: store.steps.of_jobs([claimed.id], self.now))
        for record in records:
            if record.state == "open" and record.signal_id is not None:
                proof = (claimed.id, claimed.token, record.name, record.key, record.nth)
                end = ClosedStep(*proof, "done", signal_id=record.signal_id)
                taken = self.model.take(claimed.id, claimed.token, record.nth, record.signal_id)
                assert bool(self._close(end)) == taken

    def _close(self, end: ClosedStep) -> list[WrittenStep]:
        closed: list[WrittenStep] = self.same(lambda store: store.steps.close([end], self.now))
        return closed

    @invariant()
    def waits_agree(self) -> None:
        found = [
            {
                (each.job_id, each.nth, each.signal_id)
                for each in database.run(
                    database.store.steps.of_jobs(sorted(self.model.jobs), self.now)
                )
                if each.state == "open"
            }
            for database in self.databases
        ]
        expected = {
            (job.new.id, nth, self.model.signal_for(key))
            for job in self.model.jobs.values()
            for nth, key in job.waits.items()
        }
        assert found == [expected, expected]
