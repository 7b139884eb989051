"""Threads of sync handlers: what goes in comes back, whatever becomes of the call, its caller and their loop."""

import asyncio
import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import pytest
import uvloop

from holdfast.worker.handler_threads import AROUND_THREAD_CALLS, HandlerThreads
from tests.support.until import PATIENCE_S, until, wait_until

NAME = "handler-of-a-test"
colour: ContextVar[str] = ContextVar("colour", default="none")


@pytest.fixture
def threads() -> Iterator[HandlerThreads]:
    """Two threads."""
    made = HandlerThreads(2, NAME)
    yield made
    made.close()
    # They end a moment later.
    wait_until(lambda: living() == [])


class Gate:
    """A call that tells that it has begun and ends when it may."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.opened = threading.Event()

    def __call__(self, value: Any = None) -> Any:
        self.begun.set()
        assert self.opened.wait(PATIENCE_S)
        return value


def living() -> list[str]:
    """The threads there are."""
    return sorted(each.name for each in threading.enumerate() if each.name.startswith(NAME))


def name_of_thread() -> str:
    return threading.current_thread().name


def raise_it(error: BaseException) -> None:
    raise error


async def test_a_call_returns_what_its_function_does(threads: HandlerThreads) -> None:
    assert await threads.run(divmod, 7, 2) == (3, 1)


async def test_threads_are_started_when_they_are_needed_and_used_again(
    threads: HandlerThreads,
) -> None:
    assert living() == []
    assert {await threads.run(name_of_thread) for _ in range(5)} == {f"{NAME}_0"}
    gates = [Gate(), Gate()]
    running = [asyncio.create_task(threads.run(each)) for each in gates]
    await until(lambda: all(each.begun.is_set() for each in gates))
    assert living() == [f"{NAME}_0", f"{NAME}_1"]
    for each in gates:
        each.opened.set()
    await asyncio.gather(*running)


async def test_more_calls_than_threads_wait_for_one_another(threads: HandlerThreads) -> None:
    gates = [Gate() for _ in range(5)]
    running = [asyncio.create_task(threads.run(each, n)) for n, each in enumerate(gates)]
    await until(lambda: gates[0].begun.is_set() and gates[1].begun.is_set())
    assert not any(each.begun.is_set() for each in gates[2:])
    for each in gates:
        each.opened.set()
    assert await asyncio.gather(*running) == [0, 1, 2, 3, 4]
    assert len(living()) == 2


async def test_all_that_ended_meanwhile_comes_back_in_one_turn_of_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wakes = []
    monkeypatch.setattr(
        "holdfast.worker.handler_threads.call_on",
        lambda loop, act: wakes.append(loop.call_soon_threadsafe(act)),
    )
    threads, ended = HandlerThreads(20, NAME), threading.Semaphore(0)
    running = [asyncio.create_task(threads.run(ended.release)) for _ in range(20)]
    await asyncio.sleep(0)
    # The loop is busy until the last of them has ended.
    for _ in running:
        assert ended.acquire(timeout=PATIENCE_S)
    await asyncio.gather(*running)
    threads.close()
    # One of them may have ended just after the loop came.
    assert len(wakes) <= 2


async def test_a_call_sees_the_callers_context_and_cannot_change_it(
    threads: HandlerThreads,
) -> None:
    def paint() -> str:
        found = colour.get()
        colour.set("blue")
        return found

    colour.set("red")
    assert await threads.run(paint) == "red"
    assert colour.get() == "red"


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt()])
async def test_whatever_is_raised_reaches_the_caller(
    threads: HandlerThreads, error: BaseException
) -> None:
    found = None
    try:
        await threads.run(raise_it, error)
    except BaseException as raised:
        found = raised
    assert found is error
    assert await threads.run(name_of_thread) == f"{NAME}_0"


async def test_a_stop_iteration_is_an_error_like_others(threads: HandlerThreads) -> None:
    with pytest.raises(RuntimeError) as raised:
        await threads.run(next, iter(()))
    assert isinstance(raised.value.__cause__, StopIteration)


async def test_frameworks_tidy_before_and_after_each_call_in_its_thread(
    threads: HandlerThreads,
) -> None:
    seen = []
    AROUND_THREAD_CALLS.append(lambda: seen.append(name_of_thread()))
    try:
        await threads.run(lambda: seen.append("call"))
        assert seen == [f"{NAME}_0", "call", f"{NAME}_0"]
        await threads.run(seen.clear)
    finally:
        AROUND_THREAD_CALLS.pop()


async def test_a_cancelled_call_is_waited_for_and_what_it_returns_counts(
    threads: HandlerThreads,
) -> None:
    gate = Gate()
    running = asyncio.create_task(threads.run(gate, "done"))
    await until(gate.begun.is_set)
    running.cancel()
    assert not (await asyncio.wait([running], timeout=0.05))[0]
    gate.opened.set()
    assert await running == "done"


async def test_a_call_that_ends_as_it_is_cancelled_counts(threads: HandlerThreads) -> None:
    gate = Gate()
    gate.opened.set()
    running = asyncio.create_task(threads.run(gate, "done"))
    await asyncio.sleep(0)
    # The loop is busy until it has ended, or nearly so.
    assert gate.begun.wait(PATIENCE_S)
    running.cancel()
    assert await running == "done"


async def test_a_second_cancellation_abandons_a_call_and_its_thread_comes_back_later(
    threads: HandlerThreads,
) -> None:
    gate = Gate()
    running = asyncio.create_task(threads.run(gate))
    await until(gate.begun.is_set)
    for _ in range(2):
        running.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await threads.run(name_of_thread) == f"{NAME}_1"
    gate.opened.set()
    both = [Gate(), Gate()]
    later = [asyncio.create_task(threads.run(each)) for each in both]
    await until(lambda: all(each.begun.is_set() for each in both))
    for each in both:
        each.opened.set()
    await asyncio.gather(*later)


async def test_a_sleeping_thread_keeps_nothing_of_its_last_call(threads: HandlerThreads) -> None:
    class Input:
        pass

    given = Input()
    gone = weakref.ref(given)
    assert await threads.run(lambda held: held is not None, given)
    del given
    await asyncio.sleep(0)
    gc.collect()
    await until(lambda: gone() is None)


async def test_closing_ends_all_threads_those_that_are_busy_after_their_call() -> None:
    threads, gate = HandlerThreads(2, NAME), Gate()
    running = asyncio.create_task(threads.run(gate, "done"))
    await until(gate.begun.is_set)
    await threads.run(name_of_thread)
    threads.close()
    await until(lambda: living() == [f"{NAME}_0"])
    gate.opened.set()
    assert await running == "done"
    await until(lambda: living() == [])
    with pytest.raises(RuntimeError, match="ended"):
        await threads.run(name_of_thread)


async def test_closing_cancels_what_still_waits_for_a_thread() -> None:
    threads, gate = HandlerThreads(1, NAME), Gate()
    began: list[int] = []
    busy = asyncio.create_task(threads.run(gate))
    waiting = asyncio.create_task(threads.run(began.append, 1))
    cancelled = asyncio.create_task(threads.run(began.append, 2))
    await until(gate.begun.is_set)
    cancelled.cancel()
    threads.close()
    for each in (waiting, cancelled):
        with pytest.raises(asyncio.CancelledError):
            await each
    gate.opened.set()
    await busy
    assert began == []


async def test_an_executor_of_the_callers_runs_the_calls_and_stays_open() -> None:
    with ThreadPoolExecutor(1, "own") as executor:
        threads = HandlerThreads(2, NAME, executor)
        colour.set("red")
        assert await threads.run(name_of_thread) == "own_0"
        assert await threads.run(colour.get) == "red"
        with pytest.raises(ZeroDivisionError):
            await threads.run(divmod, 1, 0)
        gate = Gate()
        began: list[int] = []
        busy = asyncio.create_task(threads.run(gate, "done"))
        behind = asyncio.create_task(threads.run(began.append, 1))
        await until(gate.begun.is_set)
        busy.cancel()
        threads.close()
        gate.opened.set()
        assert await busy == "done"
        with pytest.raises(asyncio.CancelledError):
            await behind
        assert began == []
        assert living() == []
        assert executor.submit(name_of_thread).result() == "own_0"


async def test_a_call_that_the_callers_executor_cancels_is_cancelled() -> None:
    executor, gate = ThreadPoolExecutor(1, "own"), Gate()
    threads = HandlerThreads(2, NAME, executor)
    busy = asyncio.create_task(threads.run(gate))
    behind = asyncio.create_task(threads.run(name_of_thread))
    await until(gate.begun.is_set)
    executor.shutdown(wait=False, cancel_futures=True)
    with pytest.raises(asyncio.CancelledError):
        await behind
    gate.opened.set()
    await busy


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_thread_that_outlives_its_loop_ends_quietly(
    new_loop: Callable[[], asyncio.AbstractEventLoop], capfd: pytest.CaptureFixture[str]
) -> None:
    threads, gate = HandlerThreads(2, NAME), Gate()

    async def abandon() -> None:
        running = asyncio.create_task(threads.run(gate))
        await until(gate.begun.is_set)
        for _ in range(2):
            running.cancel()
            await asyncio.sleep(0)
        threads.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(abandon())
    (left,) = [each for each in threading.enumerate() if each.name.startswith(NAME)]
    gate.opened.set()
    left.join(PATIENCE_S)
    assert not left.is_alive()
    assert capfd.readouterr().err == ""


ABANDONING = """
import asyncio, threading
from holdfast.worker.handler_threads import HandlerThreads

async def main():
    threads, begun = HandlerThreads(2, "handler"), threading.Event()
    def hang():
        begun.set()
        threading.Event().wait()
    running = asyncio.create_task(threads.run(hang))
    await asyncio.to_thread(begun.wait)
    for _ in range(2):
        running.cancel()
        await asyncio.sleep(0)
    threads.close()

asyncio.run(main())
"""


def test_an_abandoned_call_does_not_keep_its_process_alive() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ABANDONING], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
