"""A state machine runs random programs as durable functions on both stores, disturbs them, and looks at the laws.

Programs take steps, write rows, sleep, wait, call chains and fail. Meanwhile signals come, time passes, workers die,
people cancel, retry and run again from a step. What the laws promise must hold after every move, and both stores must
have come to the same.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from holdfast import ChildFailed, Holdfast, Job, Permanent, SignalTimeout
from holdfast.commands.rerun import copy_records, find_step
from holdfast.core.steps import UNDO, StepId, StepRecord
from holdfast.storage.operation import run
from holdfast_testing.crashes import CrashRuns, Death
from holdfast_testing.fresh_state import clear_in_transaction
from holdfast_testing.kit import Kit

EXAMPLES = int(os.environ.get("HOLDFAST_MODEL_EXAMPLES", "12")) // 2 or 1
MAX_DEATHS = 2
"""A function that has killed more workers is given up."""
LIVE = ("blocked", "pending", "running")

Program = list[list[Any]]
hours = st.integers(1, 2)
moves: st.SearchStrategy[list[Any]] = st.one_of(
    st.just(["step"]),
    st.just(["row"]),
    st.tuples(st.just("sleep"), hours).map(list),
    st.tuples(st.just("wait"), st.none() | hours).map(list),
    st.tuples(st.just("child"), st.booleans()).map(list),
    st.just(["both"]),
)


@dataclass
class World:
    """One store, with an application whose functions run what they are given."""

    url: str
    app: Holdfast = field(init=False)
    kit: Kit = field(init=False)
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    jobs: list[str] = field(default_factory=list)
    known: dict[tuple[str, StepId], tuple[StepRecord, int]] = field(default_factory=dict)
    """What was recorded, as it was first seen, and how often its step had been called by then."""
    ended: dict[str, list[StepRecord]] = field(default_factory=dict)
    """The records of cancelled functions."""

    def __post_init__(self) -> None:
        self.app = Holdfast(self.url)
        self.app.job("function")(self.function)
        self.app.job("child")(self.child)
        self.app.migrate()
        with self.app.transaction() as tx:
            tx.execute("create table effect (text varchar(100))")
        self.kit = Kit(self.app, self.url)

    def clear(self) -> None:
        clear_in_transaction(self.app)
        with self.app.transaction() as tx:
            tx.execute("delete from effect")
        self.kit._clock.ahead_us = 0
        for each in (self.calls, self.jobs, self.known, self.ended):
            each.clear()

    def close(self) -> None:
        self.kit.close()
        self.app.close()

    # ---- What functions do

    async def function(self, job: Job[dict[str, Any]]) -> list[Any]:
        answers = []
        for place, (kind, *values) in enumerate(job.input["program"]):
            name = f"{kind}{place}"
            match kind:
                case "step":
                    answers.append(await job.step(name, self.note, str(job.id), name))
                case "row":
                    text = f"{job.id}/{name}"
                    row = job.step(name, self.write, text, atomic=True, undo=self.remove)
                    answers.append(await row)
                case "sleep":
                    await job.sleep(f"{values[0]}h")
                    answers.append("slept")
                case "wait":
                    limit = None if values[0] is None else f"{values[0]}h"
                    try:
                        key = job.input["number"]
                        answers.append(await job.wait_for("go", key=key, timeout=limit))
                    except SignalTimeout:
                        answers.append("timeout")
                case "child":
                    try:
                        answers.append(await job.run("child", values[0], key=None))
                    except ChildFailed:
                        answers.append("failed")
                case "both":
                    step = job.step(name, self.note, str(job.id), name)
                    answers.append((await asyncio.gather(step, job.sleep("1h", key=name)))[0])
                case _:
                    raise Permanent("as the program says")
        return answers

    async def child(self, job: Job[bool]) -> str:
        if job.input:
            raise Permanent("as its parent said")
        return "child"

    async def note(self, job_id: str, name: str) -> str:
        self.calls[job_id, name] += 1
        return name

    async def write(self, tx: Any, text: str) -> str:
        await tx.execute(f"insert into effect values ('{text}')")  # noqa: S608
        return text

    async def remove(self, tx: Any, text: str) -> None:
        await tx.execute(f"delete from effect where text = '{text}'")  # noqa: S608

    # ---- Looking

    def records(self, job_id: str) -> list[StepRecord]:
        store = self.app.database.store
        found: list[StepRecord] = self.app.database.read(
            store.steps.of_jobs([job_id], self.kit._clock.instant())
        )
        return found

    def effects(self) -> list[str]:
        with self.app.transaction() as tx:
            return sorted(row[0] for row in tx.execute("select text from effect").fetchall())

    def picture(self, job_id: str) -> Any:
        chain = self.app.chains.get(job_id)
        steps = sorted((str(each.id), each.kind, each.state) for each in self.records(job_id))
        output = str(chain.output).replace(job_id, "job")
        return chain.state, output, steps


class Functions(RuleBasedStateMachine):
    """`worlds` is set by the test."""

    worlds: list[World]

    def __init__(self) -> None:
        super().__init__()
        self.deaths = 0
        self.sent = 0
        self.programs: list[Program] = []
        for world in self.worlds:
            world.clear()

    def work(self, death: int = 0) -> None:
        """Run what is due; a worker that dies at a boundary is followed by another one."""
        for world in self.worlds:
            kit, ending = world.kit, Death(death)
            kit._complete(kit._work, "", 1_000, "30s", ending)
            if ending.boundary is not None:
                CrashRuns(kit, kit._clock, "function", None, {}, None, None)._recover()
            kit.run_until_idle()

    def start(self, program: Program) -> None:
        input = {"number": len(self.programs), "program": program}
        self.programs.append(program)
        for world in self.worlds:
            with world.app.transaction() as tx:
                world.jobs.append(str(world.app.start(tx, "function", input).id))

    @rule(program=st.lists(moves, min_size=1, max_size=5))
    def begin(self, program: Program) -> None:
        self.start(program)
        self.work()

    @rule(between=st.lists(st.sampled_from([["step"], ["row"], ["wait", 1]]), max_size=2))
    def begin_what_fails(self, between: Program) -> None:
        """It is undone."""
        self.start([["row"], *between, ["fail"]])
        self.work()

    @precondition(lambda self: self.programs)
    @rule(data=st.data())
    def signal(self, data: st.DataObject) -> None:
        self.sent += 1
        key = data.draw(st.integers(0, len(self.programs) - 1))
        for world in self.worlds:
            world.kit.signal("go", key=key, data=self.sent)
        self.work()

    @precondition(lambda self: self.programs)
    @rule(hours=hours)
    def time_passes(self, hours: int) -> None:
        """By more than a sleep of so long: what both stores take meanwhile makes no difference."""
        for world in self.worlds:
            world.kit.advance(f"{hours}h")
            world.kit.advance("1m")
        self.work()

    @precondition(lambda self: self.deaths < MAX_DEATHS)
    @rule(program=st.lists(moves, min_size=1, max_size=4), boundary=st.integers(1, 8))
    def begin_and_die(self, program: Program, boundary: int) -> None:
        self.deaths += 1
        self.start(program)
        self.work(boundary)

    @precondition(lambda self: self.programs and self.deaths < MAX_DEATHS)
    @rule(hours=hours, boundary=st.integers(1, 4))
    def time_passes_and_workers_die(self, hours: int, boundary: int) -> None:
        self.deaths += 1
        for world in self.worlds:
            world.kit.advance(f"{hours * 60 + 1}m")
        self.work(boundary)

    @precondition(lambda self: self.programs)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(0, len(self.programs) - 1))
        for world in self.worlds:
            job_id = world.jobs[place]
            if world.app.chains.get(job_id).state in LIVE:
                with world.app.transaction() as tx:
                    world.app.chains.cancel(tx, job_id)
                world.ended[job_id] = world.records(job_id)
        self.work()

    @precondition(lambda self: self.programs)
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        """What failed, and what was undone, is done again."""
        place = data.draw(st.integers(0, len(self.programs) - 1))
        for world in self.worlds:
            job_id = world.jobs[place]
            if world.app.chains.get(job_id).state == "failed":
                with world.app.transaction() as tx:
                    world.app.chains.retry(tx, job_id)
                world.known = {key: each for key, each in world.known.items() if key[0] != job_id}
        self.work()

    @precondition(lambda self: self.programs)
    @rule(data=st.data())
    def run_again(self, data: st.DataObject) -> None:
        """Start another one with what was recorded before one of its steps."""
        place = data.draw(st.integers(0, len(self.programs) - 1))
        program = self.programs[place]
        steps = [
            f"{kind}{number}"
            for number, (kind, *_) in enumerate(program)
            if kind in ("step", "row")
        ]
        known = {str(each.id) for each in self.worlds[0].records(self.worlds[0].jobs[place])}
        steps = [each for each in steps if each in known]
        if not steps or program[-1] == ["fail"]:
            return
        step = data.draw(st.sampled_from(steps))
        self.programs.append(program)
        for world in self.worlds:
            app, store = world.app, world.app.database.store
            job, records = app.database.read(find_step(store, world.jobs[place], step))
            input = {"number": len(self.programs) - 1, "program": program}
            with app.transaction() as tx:
                new = str(app.start(tx, "function", input).id)
                run(copy_records(store, app.registry.sealer, job, records, new), tx)
            world.jobs.append(new)
        self.work()

    # ---- Laws

    @invariant()
    def what_was_recorded_stays_and_does_not_run_again(self) -> None:
        """Laws 1 and 7."""
        for world in self.worlds:
            for job_id in world.jobs:
                for each in world.records(job_id):
                    calls = world.calls[job_id, each.name]
                    before, called = world.known.setdefault((job_id, each.id), (each, calls))
                    assert before.until == each.until
                    if before.state == "open":
                        world.known[job_id, each.id] = each, calls
                        continue
                    assert (before.state, before.output) == (each.state, each.output)
                    assert called == calls, f"{each.id} was called again"

    @invariant()
    def rows_are_there_if_and_only_if_they_are_recorded(self) -> None:
        """Law 3: an atomic step's row and its record, its undo and that record."""
        for world in self.worlds:
            expected = []
            for job_id in world.jobs:
                found = {str(each.id): each for each in world.records(job_id)}
                expected += [
                    f"{job_id}/{name}"
                    for name, each in found.items()
                    # Not what was copied from another one.
                    if name.startswith("row") and each.fence and UNDO + name not in found
                ]
            assert world.effects() == sorted(expected)

    @invariant()
    def what_failed_is_undone(self) -> None:
        """Law 12."""
        for world in self.worlds:
            for job_id in world.jobs:
                if world.app.chains.get(job_id).state == "failed":
                    assert not [each for each in world.effects() if each.startswith(job_id)]

    @invariant()
    def nothing_that_waits_holds_anything_or_misses_anything(self) -> None:
        """Laws 4, 5 and 6."""
        for world in self.worlds:
            taken: Counter[str] = Counter()
            for job_id in world.jobs:
                state = world.app.chains.get(job_id).state
                assert state != "running"
                for each in world.records(job_id):
                    if each.kind == "wait" and each.state == "open" and state in LIVE:
                        assert each.signal_id is None, "a signal is there and it sleeps on"
                    if each.kind == "wait" and each.state == "done" and each.fence:
                        assert each.signal_id is not None
                        taken[each.signal_id] += 1
                    if each.kind == "wait" and each.state == "timed_out":
                        assert each.signal_id is None
            assert not taken or max(taken.values()) == 1
            signals = world.app.database.read(world.app.database.store.signals.list(1_000))
            assert {each.id for each in signals if each.taken_by} == set(taken)

    @invariant()
    def after_a_cancel_nothing_is_recorded(self) -> None:
        """Law 13."""
        for world in self.worlds:
            for job_id, records in world.ended.items():
                assert [each.id for each in world.records(job_id)] == [each.id for each in records]

    @invariant()
    def what_a_function_returns_is_what_it_recorded(self) -> None:
        for world in self.worlds:
            for job_id in world.jobs:
                chain = world.app.chains.get(job_id)
                if chain.state != "completed":
                    continue
                ends = [each.state for each in world.records(job_id) if each.kind == "wait"]
                program = self.programs[world.jobs.index(job_id)]
                waits = [
                    answer
                    for (kind, *_), answer in zip(program, chain.output, strict=True)
                    if kind == "wait"
                ]
                assert ["timed_out" if each == "timeout" else "done" for each in waits] == ends

    @invariant()
    def both_stores_have_come_to_the_same(self) -> None:
        """Law 14."""
        first, second = self.worlds
        for mine, theirs in zip(first.jobs, second.jobs, strict=True):
            assert first.picture(mine) == second.picture(theirs)


@pytest.fixture
def worlds(postgres_url: str, sqlite_url: str) -> Iterator[list[World]]:
    made = [World(sqlite_url), World(postgres_url)]
    yield made
    for each in made:
        each.close()


def check(worlds: list[World], examples: int) -> None:
    machine = type("Machine", (Functions,), {"worlds": worlds})
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=12,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            # To make a failure smaller would take many times as long as to find it.
            phases=(Phase.reuse, Phase.generate),
            print_blob=True,
        ),
    )


@pytest.mark.timeout(120 + 60 * EXAMPLES)
def test_functions_keep_the_laws_whatever_happens_to_them(worlds: list[World]) -> None:
    check(worlds, EXAMPLES)
