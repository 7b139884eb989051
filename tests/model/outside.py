"""Rules of what is done from outside: complete, continue over several steps, cancel, trigger, retry, delete."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from holdfast.commands.chains import (
    cancel_chain,
    delete_chains,
    end_chain,
    retry_chain,
    run_chain_now,
)
from holdfast.commands.jobs import cancel_jobs, redrive_jobs, run_jobs_now
from holdfast.core.errors import StillReferenced, WrongState
from holdfast.core.records import TERMINAL, Ending, NewJob
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op, at
from holdfast.storage.store import Store
from tests.model.machine import Machine


class Outside(Machine):
    """Others interfere."""

    @precondition(lambda self: self.model.jobs)
    @rule(steps=st.integers(0, 3), ends=st.booleans(), data=st.data())
    def walk_a_chain(self, steps: int, ends: bool, data: st.DataObject) -> None:
        """Go on with a chain for some steps, and end it at the last, all in one transaction."""
        chain_id = data.draw(st.sampled_from(self.model.chains))
        tail = self.model.tail(chain_id)
        jobs = [
            NewJob(
                id=new_id(),
                chain_id=chain_id,
                chain_index=tail.new.chain_index + 1 + place,
                type="b",
                input="4",
            )
            for place in range(steps)
        ]
        answers = self.both(lambda store: at(_walk(store, chain_id, jobs, ends), self.now))
        over = tail.state in TERMINAL and bool(steps or ends)
        assert [each is WrongState for each in answers] == [over, over]
        if over:
            return
        for job in jobs:
            last_id = self.model.tail(chain_id).new.id
            self.model.end_outside([Ending(last_id, "completed", next=job)], self.now)
        if ends:
            last_id = self.model.tail(chain_id).new.id
            self.model.end_outside([Ending(last_id, "completed", "5")], self.now)

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data())
    def cancel_a_chain(self, data: st.DataObject) -> None:
        chain_id = data.draw(st.sampled_from(self.model.chains))
        tail = self.model.tail(chain_id)
        over = tail.state in TERMINAL
        answers = self.both(lambda store: at(cancel_chain(store, chain_id), self.now))
        assert [each is WrongState for each in answers] == [over, over]
        self.model.end_outside([Ending(tail.new.id, "cancelled")], self.now)

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data())
    def cancel_jobs(self, data: st.DataObject) -> None:
        ids = self.draw_some(data, sorted(self.model.jobs), 1)
        reports = self.both(lambda store: at(cancel_jobs(store, ids), self.now))
        ended = self.model.end_outside([Ending(each, "cancelled") for each in ids], self.now)
        told = [set() if each is WrongState else set(each.answer) for each in reports]
        assert told == [set(ended)] * 2

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data())
    def run_jobs_now(self, data: st.DataObject) -> None:
        ids = self.draw_some(data, sorted(self.model.jobs), 1)
        answers = self.both(lambda store: at(run_jobs_now(store, ids), self.now))
        moved = {each for each in ids if self.model.trigger([each], self.now)}
        told = [set() if each is WrongState else set(each.answer) for each in answers]
        assert told == [moved] * 2

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data())
    def trigger_a_chain(self, data: st.DataObject) -> None:
        chain_id = data.draw(st.sampled_from(self.model.chains))
        answers = self.both(lambda store: at(run_chain_now(store, chain_id), self.now))
        moved = self.model.trigger([self.model.tail(chain_id).new.id], self.now)
        assert [each is not WrongState for each in answers] == [moved, moved]

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data())
    def redrive(self, data: st.DataObject) -> None:
        ids = self.draw_some(data, sorted(self.model.jobs), 1)
        answers = self.both(lambda store: at(redrive_jobs(store, ids), self.now))
        moved = {each for each in ids if self.model.redrive(each, self.now)}
        told = [set() if each is WrongState else set(each.answer) for each in answers]
        assert told == [moved] * 2

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data())
    def retry_a_chain(self, data: st.DataObject) -> None:
        chain_id = data.draw(st.sampled_from(self.model.chains))
        answers = self.both(lambda store: at(retry_chain(store, chain_id), self.now))
        moved = self.model.redrive(self.model.tail(chain_id).new.id, self.now)
        assert [each is not WrongState for each in answers] == [moved, moved]

    @precondition(lambda self: self.model.jobs)
    @rule(cascade=st.booleans(), data=st.data())
    def delete(self, cascade: bool, data: st.DataObject) -> None:
        chains = set(self.draw_some(data, self.model.chains, 1))
        answers = self.both(
            lambda store: at(delete_chains(store, sorted(chains), cascade), self.now)
        )
        doomed = self.model.below(chains) if cascade else chains
        refused = self.model.waiting_for(doomed)
        assert [each is StillReferenced for each in answers] == [refused, refused]
        if refused:
            return
        gone = {each.new.id for chain in doomed for each in self.model.chain(chain)}
        assert [set(each.answer) for each in answers] == [gone, gone]
        for chain in doomed:
            self.model.delete(chain)


def _walk(store: Store, chain_id: str, jobs: Sequence[NewJob], ends: bool) -> Op[None]:
    for job in jobs:
        yield from end_chain(store, chain_id, "completed", next=job)
    if ends:
        yield from end_chain(store, chain_id, "completed", output="5")
