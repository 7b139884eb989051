"""Several processes on one file: nothing is done twice, nothing stays of those that die, forks begin anew."""

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from typing import IO

import pytest

from holdfast.storage.migrations import load_migrations
from holdfast.storage.sqlite.connection import SqliteConnection
from holdfast.storage.sqlite.database import SqliteDatabase
from holdfast.storage.sqlite.pool import SqlitePool
from tests.storage.sqlite.scene import job_ids, new_job

ROOT = Path(__file__).parents[3]

Child = subprocess.Popen[str]
StartChild = Callable[[str], Child]


@pytest.fixture
def start_child(path: Path) -> Iterator[StartChild]:
    """Start processes that do something to the file; those still alive at the end are killed."""
    with ExitStack() as stack:

        def start(command: str) -> Child:
            child = subprocess.Popen(
                [sys.executable, "-m", "tests.storage.sqlite.child", str(path), command],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(child)
            stack.callback(child.kill)
            return child

        yield start


def said(child: Child) -> str:
    """Wait for the next line of a child."""
    return pipe(child.stdout).readline().strip()


def pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def run_together(children: list[Child]) -> list[list[str]]:
    """Let all children go at once when each is ready; return what each said until its end."""
    assert [said(child) for child in children] == ["ready"] * len(children)
    for child in children:
        pipe(child.stdin).write("go\n")
        pipe(child.stdin).flush()
    lines = [pipe(child.stdout).read().split() for child in children]
    assert [child.wait() for child in children] == [0] * len(children)
    return lines


def test_processes_that_migrate_at_once_apply_each_step_once(start_child: StartChild) -> None:
    lines = run_together([start_child("migrate") for _ in range(4)])
    assert sorted(word for words in lines for word in words) == [
        *"000",
        str(len(load_migrations("holdfast.storage.sqlite"))),
    ]


def test_two_processes_never_get_the_same_job(
    database: SqliteDatabase, start_child: StartChild
) -> None:
    jobs = [new_job() for _ in range(300)]
    database.run(database.store.jobs.insert(jobs))
    first, second = run_together([start_child("drain") for _ in range(2)])
    assert len(first) + len(second) == len(jobs)
    assert {*first, *second} == {job.id for job in jobs}


def test_a_killed_process_leaves_neither_rows_nor_lock(
    database: SqliteDatabase, path: Path, start_child: StartChild
) -> None:
    child = start_child("hold")
    assert said(child) == "open"
    child.kill()
    child.wait()
    job = new_job()
    assert database.run(database.store.jobs.insert([job])) == {job.id}
    assert job_ids(path) == {job.id}


def test_an_open_transaction_of_another_process_delays_and_then_lets_through(
    database: SqliteDatabase, path: Path, start_child: StartChild
) -> None:
    child = start_child("hold")
    assert said(child) == "open"
    assert job_ids(path) == set()
    pipe(child.stdin).write("go\n")
    pipe(child.stdin).flush()
    job = new_job()
    database.run(database.store.jobs.insert([job]))
    assert child.wait() == 0
    assert len(job_ids(path)) == 2


def test_parent_and_child_both_go_on_after_a_fork(
    database: SqliteDatabase, path: Path, start_child: StartChild
) -> None:
    child = start_child("fork")
    assert said(child) == "child ended with 0"
    assert child.wait() == 0
    assert len(job_ids(path)) == 41


def test_a_child_forked_inside_a_transaction_is_refused(
    database: SqliteDatabase, path: Path, start_child: StartChild
) -> None:
    child = start_child("fork_in_transaction")
    assert said(child) == "child ended with 42"
    assert child.wait() == 0
    assert len(job_ids(path)) == 1


def test_a_connection_that_is_being_closed_is_still_open_to_a_fork(path: Path) -> None:
    steps: list[str] = []

    class Closing(SqliteConnection):
        def close(self) -> None:
            forking.start()
            # Were the fork not held up, it would be through long before.
            forking.join(0.3)
            super().close()
            steps.append("closed")

    def freeze() -> None:
        assert pool.freeze()
        steps.append("frozen")

    forking = Thread(target=freeze)
    pool = SqlitePool(lambda: sqlite3.connect(path, factory=Closing), 1, str(path))
    pool.give(pool.take(1), broken=True)
    forking.join()
    assert steps == ["closed", "frozen"]
