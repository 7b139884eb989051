"""The coalescing sender on a clock that the test moves."""

import queue
import subprocess
import sys
import threading
from collections.abc import Sequence

import pytest

from holdfast.notify.base import Hint, SendCounts
from holdfast.notify.sender import CoalescingSender, SenderTimings
from tests.support.absent import skip_without_fork
from tests.support.until import PATIENCE_S

FORK = """
import os, sys
from holdfast.notify.base import Hint
from holdfast.notify.sender import CoalescingSender

class Outlet:
    def publish(self, hints):
        os.write(1, f"{'child' if os.getpid() != parent else 'parent'} {hints[0].type}\\n".encode())
    def close(self):
        pass

parent = os.getpid()
sender = CoalescingSender(Outlet)
with sender._changed:
    child = os.fork()
    if child == 0:
        sender.send([Hint("due", "mail")])
        sender.close()
        os._exit(0)
os.waitpid(child, 0)
sender.send([Hint("due", "print")])
"""


class ManualTime:
    """A clock for one sender; the sender's waits are the test's signals."""

    def __init__(self) -> None:
        self.now = 100.0
        self.waits: queue.Queue[float] = queue.Queue()
        self._condition: threading.Condition | None = None

    def clock(self) -> float:
        return self.now

    def wait(self, condition: threading.Condition, timeout: float) -> None:
        self._condition = condition
        self.waits.put(timeout)
        condition.wait(PATIENCE_S)

    def advance(self, seconds: float) -> None:
        assert self._condition is not None
        with self._condition:
            self.now += seconds
            self._condition.notify()

    def next_wait(self) -> float:
        return self.waits.get(timeout=PATIENCE_S)


class RecordingOutlet:
    """Keeps what was published; fails as often as it is told to."""

    def __init__(self) -> None:
        self.batches: queue.Queue[list[Hint]] = queue.Queue()
        self.closed = threading.Event()
        self.failures = 0

    def publish(self, hints: Sequence[Hint]) -> None:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("nobody there")
        self.batches.put(list(hints))

    def close(self) -> None:
        self.closed.set()

    def next_batch(self) -> list[Hint]:
        return self.batches.get(timeout=PATIENCE_S)


@pytest.fixture
def time() -> ManualTime:
    return ManualTime()


@pytest.fixture
def outlet() -> RecordingOutlet:
    return RecordingOutlet()


@pytest.fixture
def sender(time: ManualTime, outlet: RecordingOutlet) -> CoalescingSender:
    return CoalescingSender(lambda: outlet, SenderTimings(), time.clock, time.wait)


def due(*types: str) -> list[Hint]:
    return [Hint("due", type) for type in types]


def test_the_first_hint_goes_at_once_and_the_next_ones_together_after_the_window(
    sender: CoalescingSender, time: ManualTime, outlet: RecordingOutlet
) -> None:
    sender.send(due("a"))
    assert outlet.next_batch() == due("a")
    assert time.next_wait() == 5.0
    sender.send(due("b"))
    assert time.next_wait() == pytest.approx(0.01)
    sender.send(due("c", "b"))
    assert time.waits.empty(), "a thread that waits for its window is left alone"
    assert outlet.batches.empty()
    time.advance(0.01)
    assert outlet.next_batch() == due("b", "c")
    sender.close()
    assert sender.counts == SendCounts(batches=2, dropped=0)


def test_a_hint_after_a_quiet_window_goes_at_once(
    sender: CoalescingSender, time: ManualTime, outlet: RecordingOutlet
) -> None:
    sender.send(due("a"))
    assert outlet.next_batch() == due("a")
    time.next_wait()
    time.now += 0.02
    sender.send(due("b"))
    assert outlet.next_batch() == due("b")
    sender.close()


def test_who_takes_a_turn_publishes_what_waits_and_the_next_ones_wait_a_little_longer(
    sender: CoalescingSender, time: ManualTime, outlet: RecordingOutlet
) -> None:
    assert sender.take_turn() == []
    assert sender.take_turn() is None, "one batch in a window, whoever publishes it"
    sender.send(due("b"))
    assert time.next_wait() == pytest.approx(0.015)
    time.now += 0.01
    assert sender.take_turn() == due("b")
    assert outlet.batches.empty()
    sender.send(due("c"))
    time.next_wait()
    time.advance(0.015)
    assert outlet.next_batch() == due("c")
    sender.close()
    assert sender.counts == SendCounts(batches=3, dropped=0)
    assert sender.take_turn() is None


def test_an_idle_sender_gives_up_its_connection_and_thread_and_starts_again(
    sender: CoalescingSender, time: ManualTime, outlet: RecordingOutlet
) -> None:
    sender.send(due("a"))
    assert time.next_wait() == 5.0
    time.advance(5.0)
    assert outlet.closed.wait(PATIENCE_S)
    outlet.closed.clear()
    outlet.next_batch()
    sender.send(due("b"))
    assert outlet.next_batch() == due("b")
    sender.close()
    assert outlet.closed.is_set()


def test_a_failed_batch_is_dropped_and_the_next_ones_wait_longer_and_longer(
    sender: CoalescingSender, time: ManualTime, outlet: RecordingOutlet
) -> None:
    outlet.failures = 12
    sender.send(due("first"))
    assert time.next_wait() == 5.0
    pauses = []
    for _ in range(11):
        sender.send(due("next"))
        pauses.append(time.next_wait())
        time.advance(pauses[-1] + 0.001)
        assert time.next_wait() == 5.0
    assert pauses[:3] == pytest.approx([0.02, 0.04, 0.08])
    assert pauses[-1] == pytest.approx(5.0)
    sender.close()
    assert sender.counts == SendCounts(batches=0, dropped=12)


def test_closing_sends_what_waits(
    sender: CoalescingSender, time: ManualTime, outlet: RecordingOutlet
) -> None:
    sender.send(due("a"))
    outlet.next_batch()
    time.next_wait()
    sender.send(due("b"))
    time.next_wait()
    sender.close()
    assert outlet.next_batch() == due("b")
    assert outlet.closed.is_set()
    sender.close()


def test_closing_does_not_wait_for_ever_for_an_outlet_that_hangs() -> None:
    hanging, release = threading.Event(), threading.Event()

    class HangingOutlet(RecordingOutlet):
        def publish(self, hints: Sequence[Hint]) -> None:
            hanging.set()
            release.wait(PATIENCE_S)

    outlet = HangingOutlet()
    sender = CoalescingSender(lambda: outlet, SenderTimings(close_s=0.01))
    sender.send(due("a"))
    assert hanging.wait(PATIENCE_S)
    sender.close()
    assert not outlet.closed.is_set()
    release.set()
    assert outlet.closed.wait(PATIENCE_S)


def test_a_thread_that_cannot_start_costs_the_hints_and_nothing_else(
    sender: CoalescingSender, outlet: RecordingOutlet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        sender.send(due("a"))
    assert sender.counts == SendCounts(batches=0, dropped=1)
    sender.send(due("b"))
    assert outlet.next_batch() == due("b")
    sender.close()


def test_nothing_to_send_starts_nothing(sender: CoalescingSender) -> None:
    before = threading.active_count()
    sender.send([])
    assert threading.active_count() == before
    sender.close()


def test_parent_and_child_of_a_fork_both_send_also_when_the_lock_was_held() -> None:
    skip_without_fork()
    done = subprocess.run(
        [sys.executable, "-c", FORK], capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    assert done.stdout.splitlines() == ["child mail", "parent print"]
    assert done.stderr == ""


def test_a_publisher_that_cannot_be_made_costs_its_batch_and_not_the_next(
    time: ManualTime, outlet: RecordingOutlet
) -> None:
    made: list[ConnectionError | RecordingOutlet] = [outlet, ConnectionError("no bus yet")]

    def make() -> RecordingOutlet:
        each = made.pop()
        if isinstance(each, Exception):
            raise each
        return each

    sender = CoalescingSender(make, SenderTimings(), time.clock, time.wait)
    sender.send(due("a"))
    time.next_wait()
    sender.send(due("b"))
    time.next_wait()
    time.advance(1)
    assert outlet.next_batch() == due("b")
    sender.close()
    assert sender.counts == SendCounts(batches=1, dropped=1)
