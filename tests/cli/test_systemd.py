"""A worker under systemd's `Type=notify` says when it is ready, that it stops, and that it is alive while it is."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from holdfast.cli.systemd import ServiceNotifier
from tests.cli.processes import Command
from tests.cli.scene import Scene
from tests.support.postgres import StartPostgres
from tests.support.until import PATIENCE_S

APPLICATION = """
import pathlib
import time
from holdfast import Holdfast, Job

app = Holdfast()

@app.job("blocks")
async def blocks(job: Job[None]) -> None:
    print("blocks the loop", flush=True)
    while not pathlib.Path("go").exists():
        time.sleep(0.01)
"""
PING_S = 0.1


class Manager:
    """systemd's end of the protocol: a datagram socket."""

    def __init__(self, link: socket.socket, address: str) -> None:
        self._link = link
        self.environment = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": str(int(2e6 * PING_S))}

    def hear(self) -> str:
        """Wait for the next state."""
        self._link.settimeout(PATIENCE_S)
        return self._link.recv(4096).decode()

    def hear_within(self, seconds: float) -> list[str]:
        """Return all states that arrive within a time."""
        heard, end = [], time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._link.settimeout(left)
            try:
                heard.append(self._link.recv(4096).decode())
            except TimeoutError:
                break
        return heard

    def hear_until(self, state: str) -> list[str]:
        """Return the states before one."""
        before: list[str] = []
        while (heard := self.hear()) != state:
            before.append(heard)
        return before


@contextmanager
def listening(address: str) -> Iterator[Manager]:
    """Listen at a path, or at an @name without one."""
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as link:
        link.bind(address.replace("@", "\0", 1))
        yield Manager(link, address)


@pytest.fixture
def manager() -> Iterator[Manager]:
    """Listens as systemd does; the path of a socket is short."""
    with TemporaryDirectory() as folder, listening(f"{folder}/notify") as manager:
        yield manager


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an application, to work in."""
    (tmp_path / "app.py").write_text(APPLICATION)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_is_ready_when_it_claims_pings_while_it_lives_and_says_that_it_stops(
    folder: Path, scene: Scene, manager: Manager
) -> None:
    with Command("worker", "app:app", env=manager.environment) as worker:
        assert set(manager.hear_until("READY=1")) <= {"WATCHDOG=1"}
        assert [manager.hear() for _ in range(3)] == ["WATCHDOG=1"] * 3
        worker.process.send_signal(signal.SIGTERM)
        assert set(manager.hear_until("STOPPING=1")) <= {"WATCHDOG=1"}
        assert worker.process.wait(PATIENCE_S) == 0


def test_a_worker_whose_loop_is_blocked_does_not_ping(
    folder: Path, scene: Scene, manager: Manager
) -> None:
    with Command("worker", "app:app", env=manager.environment) as worker:
        manager.hear_until("READY=1")
        scene.start("blocks")
        assert worker.line() == "blocks the loop\n"
        manager.hear_within(5 * PING_S)  # what was on its way
        assert manager.hear_within(10 * PING_S) == []
        (folder / "go").touch()
        assert manager.hear() == "WATCHDOG=1"
        assert worker.ended_by(signal.SIGTERM) == 0


def test_a_worker_without_its_database_goes_on_pinging(
    folder: Path, manager: Manager, private_postgres: StartPostgres
) -> None:
    server = private_postgres()
    given = {"HOLDFAST_URL": server.url} | manager.environment
    with Command("worker", "app:app", env=given) as worker:
        manager.hear_until("READY=1")
        server.stop()
        worker.wait_for_word("database_unreachable")
        manager.hear_within(5 * PING_S)  # what was on its way
        assert [manager.hear() for _ in range(3)] == ["WATCHDOG=1"] * 3
        worker.process.send_signal(signal.SIGTERM)
        manager.hear_until("STOPPING=1")


def test_several_processes_are_one_service(folder: Path, scene: Scene, manager: Manager) -> None:
    words = ("worker", "app:app", "--processes", "2")
    with Command(*words, env=manager.environment) as worker:
        assert set(manager.hear_until("READY=1")) <= {"WATCHDOG=1"}
        assert [manager.hear() for _ in range(3)] == ["WATCHDOG=1"] * 3
        worker.process.send_signal(signal.SIGTERM)
        assert set(manager.hear_until("STOPPING=1")) <= {"WATCHDOG=1"}
        assert worker.process.wait(PATIENCE_S) == 0


async def test_without_an_answer_there_is_no_ping(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in manager.environment.items():
        monkeypatch.setenv(name, value)
    notifier, asked = ServiceNotifier(), asyncio.Event()
    async with notifier.keep_alive(lambda act: asked.set()):
        await asked.wait()
        await asyncio.sleep(3 * PING_S)
    notifier.send("STOPPING=1")
    assert manager.hear() == "STOPPING=1"
    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC"} & set(os.environ)


def test_a_name_without_a_file_is_reached_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening(f"@holdfast-test-{os.getpid()}-{time.monotonic_ns()}") as manager:
        monkeypatch.setenv("NOTIFY_SOCKET", manager.environment["NOTIFY_SOCKET"])
        ServiceNotifier().send("READY=1")
        assert manager.hear() == "READY=1"


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"WATCHDOG_USEC": "100000"},
        {"NOTIFY_SOCKET": "/nowhere/at/all", "WATCHDOG_USEC": "100000"},
        {"NOTIFY_SOCKET": "vsock:2:1", "WATCHDOG_USEC": "soon"},
        {"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "100000", "WATCHDOG_PID": "1"},
    ],
)
async def test_nobody_who_listens_is_no_error(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    notifier = ServiceNotifier()
    async with notifier.keep_alive(lambda act: act()):
        await asyncio.sleep(0)
    notifier.send("READY=1")
