"""The notifier on a SQLite file: its own process at once, other processes through the file."""

import contextlib
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.notify.base import LOOK_EVERYWHERE, Hint
from holdfast.notify.sqlite import Changes, FileWatcher, SqliteNotifier, WatchTimings
from holdfast_brokers.conformance import PATIENCE_S, HintRecorder, MakeNotifier, NotifierConformance
from tests.support.absent import skip_without_fork

WRITE = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("insert into business values (1)")
connection.commit()
"""

FORK = """
import os, pathlib, sys, threading
from holdfast.notify.sqlite import SqliteNotifier

def descriptors(path):
    links = [pathlib.Path("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
    return sum(path in os.readlink(link) for link in links if link.is_symlink())

path = sys.argv[1]
hinted = threading.Event()
notifier = SqliteNotifier(pathlib.Path(path))
listener = notifier.listen(lambda hint: hinted.set())
assert listener.wait_until_alive(30) and hinted.wait(30)
if os.fork() == 0:
    print(f"child:{descriptors(path)}:{listener.alive}", flush=True)
    os._exit(0)
os.wait()
hinted.clear()
print(f"parent:{hinted.wait(30)}")
notifier.close()
"""

DUE_ANYWHERE = Hint("due", "*")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "with space #1?.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("pragma journal_mode = wal")
        connection.execute("create table business (id int)")
    return path


class WritingNotifier(SqliteNotifier):
    """Commits something before it sends, as every producer does."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("pragma synchronous = off")

    def send(self, hints: Sequence[Hint]) -> None:
        with contextlib.suppress(sqlite3.ProgrammingError):
            self._connection.execute("insert into business values (1)")
        super().send(hints)

    def close(self) -> None:
        super().close()
        self._connection.close()


class TestSqlite(NotifierConformance):
    @pytest.fixture
    def make_notifier(self, path: Path) -> MakeNotifier:
        return lambda: WritingNotifier(path)


@pytest.fixture
def recorder(path: Path) -> Iterator[HintRecorder]:
    notifier = SqliteNotifier(path)
    recorder = HintRecorder()
    assert notifier.listen(recorder).wait_until_alive(PATIENCE_S)
    recorder.forget()
    yield recorder
    notifier.close()


def test_a_relative_path_is_the_same_file_wherever_the_process_goes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hinted = threading.Event()
    monkeypatch.chdir(path.parent)
    with closing(SqliteNotifier(Path(path.name))) as notifier:
        elsewhere = path.parent / "elsewhere"
        elsewhere.mkdir()
        monkeypatch.chdir(elsewhere)
        listener = notifier.listen(lambda hint: hinted.set())
        assert listener.wait_until_alive(PATIENCE_S)
        assert hinted.wait(PATIENCE_S)


def test_a_commit_of_another_process_is_noticed(path: Path, recorder: HintRecorder) -> None:
    subprocess.run([sys.executable, "-c", WRITE, path], check=True, timeout=PATIENCE_S)
    recorder.wait_for_type("mail")


def test_a_hint_within_the_process_names_its_type(path: Path) -> None:
    notifier = SqliteNotifier(path)
    recorder = HintRecorder()
    notifier.listen(recorder)
    notifier.send([Hint("due", "mail")])
    recorder.wait_until(lambda received: Hint("due", "mail") in received)
    notifier.close()


def test_a_watcher_waits_for_a_file_that_is_not_there_and_does_not_make_it(tmp_path: Path) -> None:
    path = tmp_path / "later.db"
    looked = threading.Event()

    def wait(event: threading.Event, seconds: float) -> bool:
        looked.set()
        return event.wait(0.001)

    recorder = HintRecorder()
    watcher = FileWatcher(path, recorder, wait=wait)
    assert looked.wait(PATIENCE_S)
    assert not watcher.alive
    assert not path.exists()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("create table business (id int)")
    recorder.wait_until(lambda received: LOOK_EVERYWHERE in received)
    assert watcher.wait_until_alive(PATIENCE_S)
    watcher.close()


def test_a_file_that_cannot_be_read_is_noticed_and_watched_again_when_it_can(
    tmp_path: Path,
) -> None:
    path = tmp_path / "rollback.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("create table business (id int)")
        recorder = HintRecorder()
        watcher = FileWatcher(path, recorder, WatchTimings(retry_s=0.001))
        recorder.wait_until(lambda received: received == [LOOK_EVERYWHERE])
        recorder.forget()
        connection.execute("begin exclusive")
        recorder.wait_until(lambda received: received == [LOOK_EVERYWHERE])
        assert not watcher.alive
        connection.execute("rollback")
    assert watcher.wait_until_alive(PATIENCE_S)
    assert watcher.reconnects == 1
    watcher.close()


def test_a_file_in_the_place_of_another_is_watched_from_then_on(
    path: Path, recorder: HintRecorder
) -> None:
    watcher = FileWatcher(path, recorder, WatchTimings(retry_s=0.001))
    assert watcher.wait_until_alive(PATIENCE_S)
    path.rename(path.with_suffix(".moved"))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("create table business (id int)")
    # The version of the new file alone might happen to be that of the old one.
    recorder.wait_until(lambda received: received.count(LOOK_EVERYWHERE) >= 2)
    watcher.close()


def test_a_fork_finds_the_file_let_go_and_the_parent_goes_on_watching(path: Path) -> None:
    skip_without_fork()
    done = subprocess.run(
        [sys.executable, "-c", FORK, path],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    assert done.stdout.split() == ["child:0:False", "parent:True"]


class TestChanges:
    pace = WatchTimings()

    @pytest.fixture
    def changes(self) -> Changes:
        changes = Changes(self.pace)
        assert changes.notice((1, 0), now=0.0) == LOOK_EVERYWHERE
        return changes

    def test_no_change_no_hint(self, changes: Changes) -> None:
        assert changes.notice((1, 0), now=10.0) is None

    def test_a_change_after_quiet_asks_for_a_look_at_once(self, changes: Changes) -> None:
        assert changes.notice((1, 1), now=1.0) == LOOK_EVERYWHERE

    def test_a_file_opened_again_counts_as_changed(self, changes: Changes) -> None:
        assert changes.notice((2, 0), now=1.0) == LOOK_EVERYWHERE

    def test_a_burst_asks_for_few_looks_and_its_last_change_gets_one(
        self, changes: Changes
    ) -> None:
        hints = [changes.notice((1, min(ms, 300)), now=ms / 1000) for ms in range(1, 600)]
        assert hints.count(LOOK_EVERYWHERE) == 2
        assert hints.index(LOOK_EVERYWHERE) == 249
        assert hints[499] == LOOK_EVERYWHERE
        assert hints.count(DUE_ANYWHERE) == 299
        assert hints[500:] == [None] * 99

    def test_the_file_is_read_often_only_while_it_changes(self, changes: Changes) -> None:
        assert changes.pause(now=0.5) == 0.005
        assert changes.pause(now=1.0) == 0.05
        changes.notice((1, 1), now=2.0)
        assert changes.pause(now=2.0) == 0.005

    def test_a_file_that_changes_all_the_time_is_read_less_often(self, changes: Changes) -> None:
        for reading in range(1, 10):
            changes.notice((1, reading), now=reading * 0.005)
        assert changes.pause(now=0.045) == 0.02
        changes.notice((1, 9), now=0.065)
        assert changes.pause(now=0.065) == 0.005
