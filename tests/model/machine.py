"""What all rules of the state machine share: the model, both stores, the time, and what must hold after every move."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from holdfast.core.errors import HoldfastError
from holdfast.core.instants import Instant
from holdfast.core.records import ClaimedJob, NewBlocker, OnBlockerFailure
from holdfast.storage.database import Database
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op
from holdfast.storage.store import Store
from holdfast.storage.store.pagination import JobQuery
from tests.model.event_model import EventModel
from tests.model.records import picture_of, picture_of_model
from tests.support.laws import check_rows

EVENTS = ["e", "f"]
HANDLERS = ["mail", "stock"]
TYPES = ["a", "b", *(f"{event}/{handler}" for event in EVENTS for handler in HANDLERS)]
EPOCH: Instant = 1_800_000_000_000_000

policies: st.SearchStrategy[OnBlockerFailure] = st.sampled_from(get_args(OnBlockerFailure))


class Machine(RuleBasedStateMachine):
    """`fresh` is set by the test and makes an empty pair of stores for each example."""

    fresh: Callable[[], list[Database]]

    def __init__(self) -> None:
        super().__init__()
        self.databases = type(self).fresh()
        self.model = EventModel()
        self.now = EPOCH
        self.held: list[ClaimedJob] = []
        self.stale: list[ClaimedJob] = []

    def teardown(self) -> None:
        try:
            for database in self.databases:
                check_rows(database)
        finally:
            for database in self.databases:
                database.close()

    def both(self, op: Callable[[Store], Op[Any]]) -> list[Any]:
        """Run an operation on each store; errors are answers too."""
        answers: list[Any] = []
        for database in self.databases:
            try:
                answers.append(database.run(op(database.store)))
            except HoldfastError as error:
                answers.append(type(error))
        return answers

    def same(self, op: Callable[[Store], Op[Any]]) -> Any:
        """Run an operation on each store and return the answer they agree on."""
        first, second = self.both(op)
        assert first == second, (first, second)
        return first

    def draw_some(self, data: st.DataObject, among: list[str], least: int = 0) -> list[str]:
        """Draw a few of these, each once."""
        if not among:
            return []
        some = st.lists(st.sampled_from(among), min_size=least, max_size=3, unique=True)
        return data.draw(some)

    def draw_edges(
        self, data: st.DataObject, job_id: str, among: list[str], least: int = 0
    ) -> list[NewBlocker]:
        """Draw chains to wait for, each with a policy of its own."""
        chains = self.draw_some(data, among, least)
        return [
            NewBlocker(job_id, place, each, data.draw(policies))
            for place, each in enumerate(chains)
        ]

    @rule(seconds=st.integers(0, 90))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds * 1_000_000 + 1000

    @invariant()
    def all_three_agree(self) -> None:
        pictures = [
            picture_of(database.run(database.store.jobs.page(JobQuery(limit=10_000), self.now)))
            for database in self.databases
        ]
        assert pictures[0] == pictures[1]
        assert pictures[0] == picture_of_model(self.model.jobs.values())

    @invariant()
    def edges_agree(self) -> None:
        ids = sorted(self.model.jobs)
        edges = [
            {
                (each.job_id, each.position, each.chain_id, each.open)
                for each in database.run(database.store.blockers.of_jobs(ids))
            }
            for database in self.databases
        ]
        expected = {
            (each.edge.job_id, each.edge.position, each.edge.chain_id, each.open)
            for each in self.model.edges
        }
        assert edges == [expected, expected]

    @invariant()
    def keys_agree(self) -> None:
        names = [(type, key) for type in ("a", "b") for key in ("k1", "k2")]
        holders = [
            {
                (each.type, each.key): each.chain_id
                for each in database.run(database.store.chains.key_holders(names))
            }
            for database in self.databases
        ]
        expected = {name: held[0] for name, held in self.model.keys.items()}
        assert holders == [expected, expected]


def some_ids(number: int) -> list[str]:
    """Make ids in order."""
    return sorted(new_id() for _ in range(number))
