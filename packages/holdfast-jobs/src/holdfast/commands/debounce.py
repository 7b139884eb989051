"""Debounced starts: the last input, once, after a time of quiet.

A job takes further inputs until it starts; they are appended, so that its producers do not wait for one another. One
that is asked for while it runs is followed by another, which takes over the key and waits for the run to end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from holdfast.commands.blockers import attach_blockers
from holdfast.core.errors import DatabaseBusy
from holdfast.core.instants import Instant
from holdfast.core.records import (
    ChainState,
    Debounce,
    JobRecord,
    NewBlocker,
    NewJob,
    NewKey,
    NewRevision,
    State,
    TakenKey,
)
from holdfast.storage.operation import Op
from holdfast.storage.store import Store


class Unsealed(msgspec.Struct, frozen=True):
    """An input in clear that is stored sealed, and how: which job it becomes that of is known when it is written."""

    text: str
    seal: Callable[[str, str], str]


class DebouncedStart(msgspec.Struct, frozen=True):
    """A job to be started once its key is quiet."""

    job: NewJob
    key: NewKey
    debounce: Debounce
    unsealed: Unsealed | None = None

    def input_for(self, job_id: str) -> str:
        """Return its input as it is stored for a job, which may be an earlier one."""
        if self.unsealed is None or job_id == self.job.id:
            return self.job.input
        return self.unsealed.seal(job_id, self.unsealed.text)

    @property
    def name(self) -> tuple[str, str]:
        """What its starts share."""
        return self.key.type, self.key.key


class DebouncedChain(msgspec.Struct, frozen=True):
    """The chain that a start led to, an earlier one unless it `is_new`."""

    id: str
    state: ChainState
    is_new: bool


def start_debounced(
    store: Store,
    starts: Sequence[DebouncedStart],
    channel: str | None = None,
    now: Instant | None = None,
) -> Op[dict[str, DebouncedChain]]:
    """Write debounced starts; return their chains by the ids that they were asked for with.

    Concurrency: waits for another producer only where that one begins the same key, or its next run, at this moment.
    """
    writer = _KeyedWriter(store, channel, now)
    left = yield from writer.append(starts)
    if left:
        left = yield from writer.begin(left)
    if left:
        # The lost claims hold the keys from here on: the chain that has one now still has it when it is handed over.
        left = yield from writer.append(left)
    if left:
        left = yield from writer.follow(left)
    if left:
        raise DatabaseBusy("the keys changed hands faster than they could be locked")
    return (yield from writer.answers())


class _KeyedWriter:
    """One call: which start led to which chain so far."""

    def __init__(self, store: Store, channel: str | None, now: Instant | None) -> None:
        self._store = store
        self._channel = channel
        self._now = now
        self._led_to: dict[str, str] = {}
        self._made: dict[str, State] = {}

    def append(self, starts: Sequence[DebouncedStart]) -> Op[list[DebouncedStart]]:
        """Append to the jobs that hold the keys; return the starts that none of them took."""
        holders = yield from self._holders(starts)
        return (yield from self._append_to(holders, starts))

    def begin(self, starts: Sequence[DebouncedStart]) -> Op[list[DebouncedStart]]:
        """Start a job for each key that is free; return the starts of the others."""
        first = _first_of_each(starts)
        keys = [each.key for each in sorted(first.values(), key=lambda each: each.name)]
        won = yield from self._store.chains.claim_keys(keys, self._now)
        return (
            yield from self._write(
                [first[key.type, key.key] for key in keys if key.chain_id in won], {}, starts
            )
        )

    def follow(self, starts: Sequence[DebouncedStart]) -> Op[list[DebouncedStart]]:
        """Start a job for each key that waits for the end of the chain that holds it; return what is left over."""
        first = _first_of_each(starts)
        holders = yield from self._holders(starts)
        taken = [
            TakenKey(*each.name, each.job.id, holders[each.name])
            for each in sorted(first.values(), key=lambda each: each.name)
            if each.name in holders
        ]
        won = (yield from self._store.chains.take_keys(taken)) if taken else set()
        fresh = [first[each.type, each.key] for each in taken if each.chain_id in won]
        behind = {each.chain_id: each.holder for each in taken}
        return (yield from self._write(fresh, behind, starts))

    def answers(self) -> Op[dict[str, DebouncedChain]]:
        """Say what each start led to."""
        earlier = sorted(set(self._led_to.values()) - self._made.keys())
        tails = (yield from self._store.chains.tails(earlier)) if earlier else []
        states: dict[str, State] = {tail.chain_id: tail.state for tail in tails} | self._made
        return {
            asked: DebouncedChain(led_to, states.get(led_to, "pending"), asked == led_to)
            for asked, led_to in self._led_to.items()
        }

    def _holders(self, starts: Iterable[DebouncedStart]) -> Op[dict[tuple[str, str], str]]:
        names = sorted({each.name for each in starts})
        found = yield from self._store.chains.key_holders(names)
        return {(each.type, each.key): each.chain_id for each in found}

    def _append_to(
        self, holders: Mapping[tuple[str, str], str], starts: Sequence[DebouncedStart]
    ) -> Op[list[DebouncedStart]]:
        """Append to jobs that begin their chains, whose id is the chain's."""
        revisions = [
            NewRevision(
                holders[each.name],
                each.input_for(holders[each.name]),
                each.debounce.quiet_ms,
                each.debounce.latest_ms,
                each.job.version,
            )
            for each in starts
            if each.name in holders
        ]
        if not revisions:
            return list(starts)
        took = yield from self._store.debounce.append(revisions, self._now)
        left = []
        for each in starts:
            holder = holders.get(each.name)
            if holder in took:
                self._led_to[each.job.id] = str(holder)
            else:
                left.append(each)
        return left

    def _write(
        self,
        fresh: Sequence[DebouncedStart],
        behind: Mapping[str, str],
        starts: Sequence[DebouncedStart],
    ) -> Op[list[DebouncedStart]]:
        """Write jobs that have their keys, `behind` the chains they wait for, and append all starts of their keys."""
        if not fresh:
            return list(starts)
        jobs = [
            msgspec.structs.replace(each.job, blockers=1)
            if each.job.id in behind
            else msgspec.structs.replace(each.job, debounced=True)
            for each in fresh
        ]
        yield from self._store.jobs.insert(jobs, self._channel, self._now)
        edges = [
            NewBlocker(each.id, 0, behind[each.id], "run") for each in jobs if each.id in behind
        ]
        states: dict[str, State] = {}
        if edges:
            yield from self._store.debounce.mark([edge.job_id for edge in edges])
            states = yield from attach_blockers(self._store, edges, self._now)
        for each in jobs:
            usual: State = "blocked" if each.id in behind else "pending"
            self._made[each.id] = states.get(each.id, usual)
        return (yield from self._append_to({each.name: each.job.id for each in fresh}, starts))


def with_last_input(store: Store, job: JobRecord) -> Op[JobRecord]:
    """Return a job that has not run yet, or failed, with the input it was last asked for with."""
    if job.key is None or job.chain_index or job.state not in ("blocked", "pending", "failed"):
        return job
    last = yield from store.debounce.of_job(job.id)
    if last is None:
        return job
    return msgspec.structs.replace(job, input=last.input, version=last.version or 1)


def _first_of_each(starts: Sequence[DebouncedStart]) -> dict[tuple[str, str], DebouncedStart]:
    return {each.name: each for each in reversed(starts)}
