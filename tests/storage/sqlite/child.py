"""What a test has other processes do to a file: run as `python -m tests.storage.sqlite.child FILE COMMAND`."""

import os
import sys
from collections.abc import Callable

from holdfast.core.errors import DatabaseUnreachable
from holdfast.storage.operation import run
from holdfast.storage.sqlite.database import SqliteDatabase
from tests.storage.sqlite.scene import claim_of, finish_of, new_job


def say(word: str) -> None:
    """Tell the test something, and wait for its word."""
    print(word, flush=True)
    sys.stdin.readline()


def migrate(database: SqliteDatabase) -> None:
    """Apply what is pending when told to, and say how much that was."""
    say("ready")
    print(len(database.migrate()), flush=True)


def drain(database: SqliteDatabase) -> None:
    """Claim and finish until nothing is left, printing each id that was accepted."""
    jobs = database.store.jobs
    say("ready")
    while claimed := database.run(jobs.claim(claim_of(limit=7))):
        finishes = [finish_of(each) for each in claimed]
        for done in database.run(jobs.finish(finishes, [claimed[0].token])):
            print(done.id, flush=True)


def hold(database: SqliteDatabase) -> None:
    """Write a job and keep the transaction open."""
    with database.transaction() as transaction:
        run(database.store.jobs.insert([new_job()]), transaction)
        say("open")


def fork(database: SqliteDatabase) -> None:
    """Use the file before, and in parent and child after, a fork."""
    jobs = database.store.jobs
    database.run(jobs.insert([new_job()]))
    database.read(jobs.get([]))
    pid = os.fork()
    for _ in range(20):
        database.run(jobs.insert([new_job()]))
        database.read(jobs.get([]))
    if pid == 0:
        database.close()
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    print("child ended with", os.waitstatus_to_exitcode(status), flush=True)


def fork_in_transaction(database: SqliteDatabase) -> None:
    """Fork while a transaction is open; the child is refused, the parent commits."""
    with database.transaction() as transaction:
        run(database.store.jobs.insert([new_job()]), transaction)
        pid = os.fork()
        if pid == 0:
            try:
                database.run(database.store.jobs.insert([new_job()]))
            except DatabaseUnreachable:
                os._exit(42)
            os._exit(1)
        _, status = os.waitpid(pid, 0)
    print("child ended with", os.waitstatus_to_exitcode(status), flush=True)


COMMANDS: dict[str, Callable[[SqliteDatabase], None]] = {
    each.__name__: each for each in (migrate, drain, hold, fork, fork_in_transaction)
}


if __name__ == "__main__":
    opened = SqliteDatabase(sys.argv[1], busy_timeout_ms=60_000)
    COMMANDS[sys.argv[2]](opened)
    opened.close()
