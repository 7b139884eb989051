"""A pytest session that has imported and collected everything, from which a process is forked for each mutant."""

import json
import os
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from holdfast.storage.postgres import store as postgres_store
from holdfast.storage.sqlite import transaction as sqlite_transaction
from holdfast.storage.sqlite.store import sqlite_statements
from tests.conftest import WORKER_INPUT
from tests.mutants.statements import Mutant, StoreName, mutate
from tests.support.postgres import serve_for_tests

_SKIPPED_IDS = {"sqlite": ("postgres",), "postgres": ("sqlite", "other_postgres")}


@dataclass(frozen=True, slots=True)
class Touch:
    """A test, how long it takes, and the statements that it executes."""

    test: str
    seconds: float
    statements: frozenset[str]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a mutant: the test that failed, or none; `is_slow` says that it was given up."""

    mutant: Mutant
    killer: str | None
    is_slow: bool
    tests: int
    seconds: float


@dataclass(slots=True)
class _Child:
    pid: int
    pipe: int
    folder: str
    limit: float
    begun: float
    on_line: Callable[[dict[str, Any]], float | None]
    on_end: Callable[[bool], None]
    text: bytes = b""


class WarmSession:
    """Runs tests in children of this process, a few at a time."""

    def __init__(
        self,
        items: Sequence[pytest.Item],
        store: StoreName,
        children: int,
        url: str | None,
        server: dict[str, Any],
    ) -> None:
        self.url = url
        # A child leaves its databases empty for the next one: to make one takes longer than most tests.
        self._server = server
        self._idle: list[str] = []
        kept = [
            each
            for each in items
            if not any(word in each.nodeid for word in _SKIPPED_IDS[store])
            and _has_store(each, store)
        ]
        names = {each.nodeid for each in kept}
        # A statement is the same in both colours.
        self.items = {
            each.nodeid: each
            for each in kept
            if "async" not in each.nodeid or each.nodeid.replace("async", "sync") not in names
        }
        self._store = store
        self._most = children
        self._children: dict[int, _Child] = {}

    # ---- What is asked of it

    def record(self, names: Sequence[str], report: Callable[[str], None]) -> list[Touch]:
        """Run tests once, in parts side by side; leave out those that fail, and say which."""
        found: list[Touch] = []

        def record_part(part: Sequence[str]) -> None:
            left = list(part)

            def on_line(line: dict[str, Any]) -> float | None:
                if "statements" in line:
                    left.remove(line["test"])
                    if line["failed"]:
                        report(f"left out, since it fails or is skipped: {line['test']}")
                    else:
                        found.append(
                            Touch(line["test"], line["seconds"], frozenset(line["statements"]))
                        )
                    if len(found) % 200 == 0:
                        report(f"{len(found)} of {len(names)} tests")
                return 120.0

            def on_end(is_late: bool) -> None:
                # The child died of the first that is left, or of its time.
                if left:
                    report(f"left out, since it did not end: {left[0]}")
                    again.extend([left[1:]] if left[1:] else [])

            self._fork(part, None, 120.0, on_line, on_end)

        size = -(-len(names) // (self._most * 4)) or 1
        again = [names[start : start + size] for start in range(0, len(names), size)]
        while again:
            record_part(again.pop(0))
            if not again:
                self._wait_for_all()
        return found

    def run(
        self, mutant: Mutant, touches: Sequence[Touch], on_verdict: Callable[[Verdict], None]
    ) -> None:
        """Run tests on a mutant, as soon as there is room for another child."""
        limits = {each.test: 10.0 + 20 * each.seconds for each in touches}
        state: dict[str, Any] = {"tests": 0, "killer": None, "running": None}
        begun = time.monotonic()

        def on_line(line: dict[str, Any]) -> float | None:
            if "failed" not in line:
                state["running"] = line["test"]
                return limits[line["test"]]
            state["tests"] += 1
            state["running"] = None
            if line["failed"]:
                state["killer"] = line["test"]
            return 15.0

        def on_end(is_late: bool) -> None:
            is_slow = is_late and state["killer"] is None
            killer = state["killer"] or state["running"]
            spent = time.monotonic() - begun
            on_verdict(Verdict(mutant, killer, is_slow, state["tests"], spent))

        self._fork([each.test for each in touches], mutant, 60.0, on_line, on_end)

    def finish(self) -> None:
        """Wait for all mutants."""
        self._wait_for_all()

    # ---- Children

    def _fork(
        self,
        names: Sequence[str],
        mutant: Mutant | None,
        limit: float,
        on_line: Callable[[dict[str, Any]], float | None],
        on_end: Callable[[bool], None],
    ) -> None:
        while len(self._children) >= self._most:
            self._listen()
        folder = tempfile.mkdtemp(prefix="mutant-")
        reading, writing = os.pipe()
        idle = [self._idle.pop()] if self._idle else []
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            self._server["idle"] = idle
            self._be_child(names, mutant, folder, writing)
        os.close(writing)
        now = time.monotonic()
        self._children[reading] = _Child(pid, reading, folder, now + limit, now, on_line, on_end)

    def _be_child(
        self, names: Sequence[str], mutant: Mutant | None, folder: str, writing: int
    ) -> None:
        status = 1
        try:
            os.setsid()
            nowhere = os.open(os.devnull, os.O_RDWR)
            for each in (0, 1, 2):
                os.dup2(nowhere, each)
            os.environ["PYTEST_DEBUG_TEMPROOT"] = tempfile.tempdir = folder
            with os.fdopen(writing, "w", buffering=1) as answers:
                self._run_items([self.items[each] for each in names], mutant, answers.write)
                answers.write(json.dumps({"idle": self._server["idle"]}) + "\n")
            status = 0
        except BaseException:
            Path(folder, "..", "mutant-error.txt").resolve().write_text(traceback.format_exc())
        finally:
            os._exit(status)

    def _run_items(
        self, items: Sequence[pytest.Item], mutant: Mutant | None, write: Callable[[str], object]
    ) -> None:
        touched: set[str] = set()
        if mutant is None:
            _note_statements(self._store, touched)
        else:
            mutate(mutant)
        for item, following in zip(items, [*items[1:], None], strict=True):
            write(json.dumps({"test": item.nodeid}) + "\n")
            touched.clear()
            reports = runtestprotocol(item, log=False, nextitem=following)
            answer = {
                "test": item.nodeid,
                "failed": any(each.failed for each in reports)
                or (mutant is None and any(each.skipped for each in reports)),
                # Without what a fixture of the session takes, which the first one pays.
                "seconds": sum(each.duration for each in reports if each.when == "call"),
                "statements": sorted(touched),
            }
            write(json.dumps(answer) + "\n")
            if mutant is not None and answer["failed"]:
                # Databases of the server are given back.
                item.session._setupstate.teardown_exact(None)
                return

    def _wait_for_all(self) -> None:
        while self._children:
            self._listen()

    def _listen(self) -> None:
        """Hear what children say until one has ended or is late."""
        nearest = min(each.limit for each in self._children.values())
        ready, _, _ = select.select(
            list(self._children), [], [], max(nearest - time.monotonic(), 0.0)
        )
        for pipe in ready:
            child = self._children[pipe]
            data = os.read(pipe, 65_536)
            if not data:
                self._end(child, is_late=False)
                continue
            *lines, child.text = (child.text + data).split(b"\n")
            for line in map(json.loads, lines):
                if "idle" in line:
                    self._idle += line["idle"]
                    continue
                child.limit = time.monotonic() + (child.on_line(line) or 60.0)
        for child in [each for each in self._children.values() if each.limit <= time.monotonic()]:
            self._end(child, is_late=True)

    def _end(self, child: _Child, is_late: bool) -> None:
        with _ignored(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        with _ignored(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)
        os.waitpid(child.pid, 0)
        os.close(child.pipe)
        del self._children[child.pipe]
        shutil.rmtree(child.folder, ignore_errors=True)
        child.on_end(is_late)

    def close(self) -> None:
        """End what still runs."""
        for child in list(self._children.values()):
            self._end(child, is_late=True)


def _has_store(item: pytest.Item, store: StoreName) -> bool:
    """Whether a test may run on a store: one that asks for the address of others only does not."""
    asked = {f"{each}_url" for each in ("sqlite", "postgres")} & {
        *getattr(item, "fixturenames", ())
    }
    return not asked or f"{store}_url" in asked


@contextmanager
def _ignored(kind: type[BaseException]) -> Iterator[None]:
    try:
        yield
    except kind:
        return


def _note_statements(store: StoreName, touched: set[str]) -> None:
    """Note the name of each statement that is looked up to be executed."""
    if store == "postgres":
        look_up = dict.__getitem__

        def get(self: Any, name: str) -> Any:
            touched.add(name)
            return look_up(self, name)

        postgres_store.CompiledStatements.__getitem__ = get  # type: ignore[method-assign]
        return

    class Noted(dict[str, str]):
        def __getitem__(self, name: str) -> str:
            touched.add(name)
            return super().__getitem__(name)

    noted = Noted(sqlite_statements())
    vars(sqlite_transaction)["sqlite_statements"] = lambda: noted


class Collected:
    """The plugin that takes over once everything is collected."""

    def __init__(
        self, store: StoreName, children: int, work: Callable[[WarmSession], None]
    ) -> None:
        self._store: StoreName = store
        self._children = children
        self._work = work

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Work with the collected tests instead of running them."""
        # Nobody reads how a test fails, and to explain it takes longer than most tests.
        session.config.option.tbstyle = "native"
        if self._store == "postgres":
            with serve_for_tests() as server:
                config: Any = session.config
                told = asdict(server)
                config.workerinput = {WORKER_INPUT: told, "workerid": "gw0", "workercount": 1}
                with server.database() as url:
                    self._begin(session, url, told)
        else:
            self._begin(session, None, {})
        return True

    def _begin(self, session: pytest.Session, url: str | None, server: dict[str, Any]) -> None:
        warm = WarmSession(session.items, self._store, self._children, url, server)
        try:
            self._work(warm)
        finally:
            warm.close()


def work_with(
    paths: Sequence[str], store: StoreName, children: int, work: Callable[[WarmSession], None]
) -> int:
    """Collect tests, and work with them."""
    words = ["-s", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:terminal"]
    return int(pytest.main([*words, *paths], plugins=[Collected(store, children, work)]))


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
