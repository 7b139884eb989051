"""Several worker processes under one, with real children."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from holdfast.cli.worker import single_process
from holdfast.core.events import Event
from holdfast.worker.supervisor import Supervisor
from tests.support.until import until


class Heard:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def observe(self, event: Event) -> None:
        self.events.append(event)


async def test_a_dead_child_is_reported_and_replaced_and_a_signal_ends_all() -> None:
    heard, pids = Heard(), asyncio.Queue[int]()
    blocked = [
        sys.executable,
        "-c",
        "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]);"
        "signal.sigwait([signal.SIGTERM])",
    ]
    supervisor = Supervisor([blocked, blocked], heard, on_started=pids.put_nowait)
    running = asyncio.create_task(supervisor.run())
    async with asyncio.timeout(60):
        first, second = await pids.get(), await pids.get()
        os.kill(first, signal.SIGKILL)
        third = await pids.get()
        assert third not in (first, second)
        assert [(each.name, each.fields) for each in heard.events] == [
            ("child_died", {"pid": first, "exit_code": -signal.SIGKILL})
        ]
        supervisor.pass_on(signal.SIGTERM)
        await running


async def test_a_child_that_cannot_be_started_now_is_started_later_and_stops_no_other(
    tmp_path: Path,
) -> None:
    heard, pids = Heard(), asyncio.Queue[int]()
    waiting = "import signal; signal.sigwait([signal.SIGTERM])"
    # It cannot be started while there is no such program, as when the system has no room for another process.
    program = tmp_path / "python"
    program.symlink_to(sys.executable)
    commands = [[sys.executable, "-c", waiting], [str(program), "-c", waiting]]
    supervisor = Supervisor(commands, heard, on_started=pids.put_nowait)
    running = asyncio.create_task(supervisor.run())
    async with asyncio.timeout(60):
        await pids.get()
        replaced = await pids.get()
        program.unlink()
        os.kill(replaced, signal.SIGKILL)
        await until(lambda: running.done() or len(heard.events) == 2)
        assert not running.done()
        failure = heard.events[1]
        assert failure.name == "child_not_started"
        assert "No such file" in failure.fields["error"]
        program.symlink_to(sys.executable)
        await pids.get()
        supervisor.pass_on(signal.SIGTERM)
        await running


@pytest.mark.parametrize("moment", ["before the child", "while it starts", "before its handlers"])
async def test_a_signal_that_comes_very_early_ends_everything_well(moment: str) -> None:
    pids = asyncio.Queue[int]()
    deaf = [sys.executable, "-c", "import signal; signal.pause()"]
    supervisor = Supervisor([deaf], on_started=pids.put_nowait)
    if moment == "before the child":
        supervisor.pass_on(signal.SIGTERM)
    running = asyncio.create_task(supervisor.run())
    if moment == "while it starts":
        await asyncio.sleep(0)
        assert pids.empty()
        supervisor.pass_on(signal.SIGTERM)
    async with asyncio.timeout(60):
        if moment == "before its handlers":
            await pids.get()
            supervisor.pass_on(signal.SIGTERM)
        assert await running == 0


async def test_children_that_end_well_are_not_replaced() -> None:
    heard = Heard()
    supervisor = Supervisor([[sys.executable, "-c", ""]] * 3, heard)
    async with asyncio.timeout(60):
        assert await supervisor.run() == 0
    assert heard.events == []


def test_a_child_is_one_process_with_the_same_arguments() -> None:
    given = ["worker", "a:b", "--processes", "4"]
    assert single_process(given) == [*given, "--processes", "1"]


def test_each_child_has_a_probe_port_of_its_own() -> None:
    given = ["worker", "a:b", "--processes=4", "--probe-port=9000"]
    assert single_process(given, 3, 9000)[-2:] == ["--probe-port", "9003"]
    assert single_process([*given, "--probe-port=0"], 3, 0)[-2:] == ["--processes", "1"]
