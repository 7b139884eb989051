"""Durable functions where two sessions meet: no record of a lost lease, no lost wake-up, one end for each wait."""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest
from psycopg import IsolationLevel

from holdfast.core.records import ClaimedJob, Ending
from holdfast.notify.base import Hint
from holdfast.notify.encoding import decode
from tests.contract.functions import (
    STORE,
    Functions,
    Session,
    changed,
    in_threads,
    recording,
    stops,
)
from tests.support.until import PATIENCE_S

ROUNDS = 15
LOCKED = {
    "step_record": ("for share skip locked", ""),
    "step_append": ("for share skip locked", ""),
}


@pytest.fixture
def functions(postgres_url: str) -> Iterator[Functions]:
    """Functions at a new database."""
    with closing(Functions(postgres_url)) as made:
        yield made


# ---- Records and leases


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("is_locked", [True, False], ids=["as it is", "without the lock"])
def test_whoever_takes_a_job_over_sees_its_records(
    postgres_url: str, is_locked: bool, number: int
) -> None:
    with changed({} if is_locked else LOCKED), closing(Functions(postgres_url)) as functions:
        job = functions.start_running()
        late = functions.session(autocommit=False)
        steps = [functions.step(job, f"step {place}") for place in range(number)]
        assert len(functions.record(*steps, on=late)) == number
        seen = [len(functions.steps(each.id)) for each in functions.take_over()]
        late.commit()
        seen += [len(functions.steps(each.id)) for each in functions.take_over()][: not seen]
        assert (seen == [number]) is is_locked


@pytest.mark.parametrize("number", [1, 2])
def test_a_record_that_marks_the_row_is_seen_by_whoever_takes_it_over(
    functions: Functions, number: int
) -> None:
    job = functions.start_running()
    late = functions.session(autocommit=False)
    steps = [functions.step(job, f"step {place}", marks=True) for place in range(number)]
    assert len(functions.record(*steps, on=late)) == number
    assert functions.take_over() == []
    late.commit()
    (again,) = functions.take_over()
    assert (again.steps, len(functions.steps(job.id))) == (True, number)


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("marks", [False, True])
def test_a_record_whose_snapshot_is_older_than_the_takeover_is_refused(
    postgres_url: str, marks: bool, number: int
) -> None:
    statements = stops("step_record", "step_append")
    with changed(statements), closing(Functions(postgres_url)) as functions:
        job = functions.start_running()
        steps = [functions.step(job, f"step {place}", marks=marks) for place in range(number)]
        late = functions.session()
        with functions.held():
            begun = late.begin(recording(steps))
            functions.wait_until_stopped()
            assert functions.take_over()
        assert begun.result() == []
        assert functions.steps(job.id) == []


def test_a_record_does_not_wait_for_a_takeover_that_is_under_way(functions: Functions) -> None:
    job = functions.start_running()
    other = functions.session(autocommit=False)
    assert functions.take_over(on=other)
    assert functions.record(functions.step(job)) == []
    other.commit()
    assert functions.record(functions.step(job)) == []


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_users_open_cancel_holds_up_one_function_and_no_other(
    functions: Functions, is_kept: bool
) -> None:
    jobs = [functions.start_running(), functions.start_running()]
    user = functions.session(autocommit=False)
    user.run(STORE.jobs.end([Ending(jobs[0].id, "cancelled")]))
    steps = [functions.step(job, marks=True) for job in jobs]
    assert [each.job_id for each in functions.record(*steps)] == [jobs[1].id]
    user.commit() if is_kept else user.rollback()
    assert len(functions.record(functions.step(jobs[0]))) == (not is_kept)


def test_an_atomic_step_holds_up_only_what_changes_the_live_row(functions: Functions) -> None:
    job = functions.start_running()
    user = functions.session(autocommit=False)
    assert functions.record(functions.step(job, "reserve"), on=user)
    assert functions.record(functions.step(job, "charge"))
    assert functions.record(functions.step(job, "ship", marks=True)) == []
    assert not functions.own.run(functions.park(job))
    user.commit()
    assert functions.record(functions.step(job, "ship", marks=True))
    assert functions.own.run(functions.park(job))


# ---- Signals and parking


@pytest.mark.parametrize("looks", [True, False], ids=["as it is", "without a look at signals"])
def test_parking_finds_the_signal_that_a_router_had_no_wait_for(
    postgres_url: str, looks: bool
) -> None:
    blind = {"job_park": ("case when q.woken or", "case when q.woken or false and")}
    with (
        changed(stops("signal_route") | ({} if looks else blind)),
        closing(Functions(postgres_url)) as functions,
    ):
        job = functions.start_running()
        functions.send(functions.signal())
        router = functions.session()
        with functions.held():
            routing = router.begin(STORE.signals.route(500))
            functions.wait_until_stopped()
            assert functions.record(functions.wait(job))
            assert functions.own.run(functions.park(job))
        assert routing.result() == []
        assert functions.is_due(job) is looks
        assert functions.value("select count(*) from holdfast.signal where fresh") == 0


@pytest.mark.parametrize("looks", [True, False], ids=["as it is", "without the mark"])
def test_parking_by_an_older_snapshot_sees_that_it_was_woken(
    postgres_url: str, looks: bool
) -> None:
    blind = {"signal_route": ("then true end,", "then null::boolean end,")}
    with (
        changed(stops("job_park") | ({} if looks else blind)),
        closing(Functions(postgres_url)) as functions,
    ):
        job = functions.start_running()
        assert functions.record(functions.wait(job))
        worker = functions.session()
        with functions.held():
            parking = worker.begin(functions.park(job))
            functions.wait_until_stopped()
            functions.send(functions.signal())
            assert functions.route() == []
        assert parking.result()
        assert functions.is_due(job) is looks


def test_parking_by_an_older_snapshot_sees_that_a_child_has_ended(postgres_url: str) -> None:
    with changed(stops("job_park")), closing(Functions(postgres_url)) as functions:
        job, child = functions.parent()
        worker, ending = functions.session(), functions.session(autocommit=False)
        with functions.held():
            parking = worker.begin(functions.park(job))
            functions.wait_until_stopped()
            assert ending.run(functions.end_of(child)) == []
            ending.commit()
        assert parking.result()
        assert functions.is_due(job)


def test_a_child_that_ends_and_a_parent_that_parks_do_not_miss_each_other(
    functions: Functions,
) -> None:
    job, child = functions.parent()
    ending = functions.session(autocommit=False)
    assert ending.run(functions.end_of(child)) == []
    assert not functions.own.run(functions.park(job))
    ending.commit()
    assert functions.own.run(functions.park(job))
    assert functions.is_due(job)


def test_the_end_of_a_child_waits_for_its_parent_that_parks(functions: Functions) -> None:
    job, child = functions.parent()
    parking, ending = functions.session(autocommit=False), functions.session()
    assert parking.run(functions.park(job))
    opened = ending.begin(functions.end_of(child))
    functions.wait_until_blocked(ending)
    parking.commit()
    assert [each.id for each in opened.result()] == [job.id]
    assert functions.is_due(job)


def test_a_user_who_signals_holds_up_nobody(functions: Functions) -> None:
    job = functions.start_running()
    assert functions.record(functions.wait(job))
    user = functions.session(autocommit=False)
    functions.send(functions.signal(), on=user)
    assert functions.route() == []
    assert functions.own.run(functions.park(job))
    assert not functions.is_due(job)
    user.commit()
    assert [each.id for each in functions.route()] == [job.id]
    assert functions.is_due(job)


def test_a_signal_is_announced_with_its_commit(functions: Functions) -> None:
    listener = functions.session()
    listener.connection.execute("listen hints")
    user = functions.session(autocommit=False)
    signals = [functions.signal("a"), functions.signal("b")]
    user.run(STORE.signals.append(signals, "hints"))
    assert list(listener.connection.notifies(timeout=0)) == []
    user.commit()
    (heard,) = listener.connection.notifies(timeout=60, stop_after=1)
    assert decode(heard.payload) == (Hint("signal", "approved"),)


def test_two_routers_share_the_signals(functions: Functions) -> None:
    jobs = {functions.parked(str(place)).id for place in range(10)}
    functions.send(*(functions.signal(str(place)) for place in range(10)))
    first = functions.session(autocommit=False)
    some = first.run(STORE.signals.route(4))
    rest = functions.route()
    first.commit()
    assert len(some) == 4
    assert {each.id for each in [*some, *rest]} == jobs
    assert functions.route() == []


def test_a_router_passes_over_a_locked_function_and_comes_back_to_it(functions: Functions) -> None:
    locked, free = functions.parked("a"), functions.parked("b")
    user = functions.session(autocommit=False)
    user.run(STORE.jobs.lock([locked.id]))
    functions.send(functions.signal("a"), functions.signal("b"))
    assert [each.id for each in functions.route()] == [free.id]
    assert functions.route() == []
    user.rollback()
    assert [each.id for each in functions.route()] == [locked.id]
    assert functions.value("select count(*) from holdfast.signal where fresh") == 0


@pytest.mark.parametrize("is_kept", [True, False])
def test_two_functions_that_want_one_signal_get_it_once(
    functions: Functions, is_kept: bool
) -> None:
    jobs = [functions.start_running(), functions.start_running()]
    waits = [functions.wait(job) for job in jobs]
    assert len(functions.record(*waits)) == 2
    signal = functions.signal()
    functions.send(signal)
    first, second = functions.session(autocommit=False), functions.session()
    ends = [functions.ended(wait, signal=signal.id) for wait in waits]
    assert first.run(STORE.steps.close([ends[0]]))
    closing_second = second.begin(STORE.steps.close([ends[1]]))
    functions.wait_until_blocked(second)
    first.commit() if is_kept else first.rollback()
    assert len(closing_second.result()) == (not is_kept)
    taken_by = functions.value("select taken_by::text from holdfast.signal")
    assert taken_by == jobs[not is_kept].id


@pytest.mark.parametrize("winner", ["signal", "timeout"])
@pytest.mark.parametrize("is_kept", [True, False])
def test_a_wait_ends_once_by_its_signal_or_by_its_timeout(
    functions: Functions, winner: str, is_kept: bool
) -> None:
    job = functions.start_running()
    wait = functions.wait(job, lasts_ms=0)
    assert functions.record(wait)
    signal = functions.signal()
    functions.send(signal)
    ends = {
        "signal": functions.ended(wait, signal=signal.id),
        "timeout": functions.ended(wait, "timed_out"),
    }
    loser = "timeout" if winner == "signal" else "signal"
    first, second = functions.session(autocommit=False), functions.session()
    assert first.run(STORE.steps.close([ends[winner]]))
    later = second.begin(STORE.steps.close([ends[loser]]))
    functions.wait_until_blocked(second)
    first.commit() if is_kept else first.rollback()
    assert len(later.result()) == (not is_kept)
    ended_by = winner if is_kept else loser
    (record,) = functions.steps(job.id)
    assert record.state == ("done" if ended_by == "signal" else "timed_out")
    is_taken = functions.value("select taken_by is not null from holdfast.signal")
    assert is_taken is (ended_by == "signal")


class Storm:
    """Functions that park while users signal them at every isolation level, a quarter of them rolled back."""

    def __init__(self, functions: Functions) -> None:
        self._functions = functions
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._wanted: list[str] = []
        self.rolled_back: set[str] = set()
        self.taken: list[str] = []
        self.lost: list[str] = []
        self.errors: list[str] = []

    def user(self, session: Session) -> None:
        """Signal those who want to be, in the end with a commit."""
        luck = random.Random()
        while not self._stopped.is_set():
            with self._lock:
                key = self._wanted.pop() if self._wanted else None
            if key is None:
                time.sleep(0.002)
                continue
            while not self._try(session, key, luck):
                pass

    def _try(self, session: Session, key: str, luck: random.Random) -> bool:
        session.connection.isolation_level = luck.choice(
            [
                IsolationLevel.READ_COMMITTED,
                IsolationLevel.REPEATABLE_READ,
                IsolationLevel.SERIALIZABLE,
            ]
        )
        signal = self._functions.signal(key)
        try:
            session.connection.execute("select count(*) from holdfast.identity")
            time.sleep(luck.random() * 0.01)
            self._functions.send(signal, on=session)
            time.sleep(luck.random() * 0.01)
            if luck.random() < 0.25:
                session.rollback()
                self.rolled_back.add(signal.id)
                return False
            session.commit()
            return True
        except psycopg.Error as error:
            self.errors.append(str(error))
            session.rollback()
            return True

    def router(self, session: Session) -> None:
        """Route all the time."""
        while not self._stopped.is_set():
            self._functions.route(on=session)
            time.sleep(0.003)

    def parker(self, session: Session, type: str) -> None:
        """Park one function after the other until each is woken by its signal."""
        luck = random.Random()
        for _ in range(ROUNDS):
            job = self._functions.start_running(type)
            with self._lock:
                self._wanted.append(job.id)
            time.sleep(luck.random() * 0.02)
            assert session.run(STORE.steps.record([self._functions.wait(job, job.id)]))
            while not session.run(self._functions.park(job)):
                time.sleep(0.001)
            if not self._wake(session, job, type):
                self.lost.append(job.id)

    def _wake(self, session: Session, job: ClaimedJob, type: str) -> bool:
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            for again in self._functions.claim(type, on=session):
                (wait,) = self._functions.steps(job.id, on=session)
                assert wait.signal_id, "a function was woken for nothing"
                end = self._functions.ended(
                    self._functions.wait(again, job.id), signal=wait.signal_id
                )
                while not session.run(STORE.steps.close([end])):
                    time.sleep(0.001)  # a router has the row
                self.taken.append(wait.signal_id)
                return True
            time.sleep(0.002)
        return False

    def stop(self) -> None:
        """Let users and routers end."""
        self._stopped.set()


def test_no_wake_up_is_lost_in_a_storm(functions: Functions) -> None:
    storm = Storm(functions)
    users = [functions.session(autocommit=False) for _ in range(8)]
    routers = [functions.session() for _ in range(2)]
    parkers = [functions.session() for _ in range(6)]
    left = [*parkers]

    def work(place: int) -> None:
        if place < len(users):
            storm.user(users[place])
        elif place < len(users) + len(routers):
            storm.router(routers[place - len(users)])
        else:
            session = parkers[place - len(users) - len(routers)]
            try:
                storm.parker(session, f"order {place}")
            finally:
                left.pop()
                if not left:
                    storm.stop()

    in_threads(len(users) + len(routers) + len(parkers), work)
    assert (storm.lost, storm.errors) == ([], [])
    assert len(storm.taken) == ROUNDS * len(parkers)
    assert not storm.rolled_back & set(storm.taken)
    assert len(set(storm.taken)) == len(storm.taken)
