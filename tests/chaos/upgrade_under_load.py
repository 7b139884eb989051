"""Upgrades a large database of an older version while its producers, its worker and a long reader go on.

A program that prints figures, since it needs a checkout of the older version:
`python -m tests.chaos.upgrade_under_load OLD_CHECKOUT`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg

from tests.support.installation import embedded_binaries
from tests.support.process import PostgresProcess
from tests.support.until import wait_until

APP = """
from holdfast import Holdfast, Job
app = Holdfast()

@app.job("load.run")
def run(job: Job[int]) -> int:
    return job.input
"""
# Starts at a steady rate until its input is closed, then prints what failed and how long each start took.
PRODUCER = """
import json, sys, threading, time
from app import app

taken, failed, over = [], [], threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
for _ in range(10):
    with app.transaction() as tx:
        app.start(tx, "load.run", 1)
print("begun", flush=True)
due = time.monotonic()
while not over.is_set():
    due += 1 / float(sys.argv[1])
    time.sleep(max(0, due - time.monotonic()))
    began = time.monotonic()
    try:
        with app.transaction() as tx:
            app.start(tx, "load.run", 1)
    except Exception as error:
        failed.append(f"{type(error).__name__}: {error}")
    taken.append((time.time(), time.monotonic() - began))
print(json.dumps({"taken": taken, "failed": failed}))
"""
FILL = """
with made as (
  insert into holdfast.job (id, chain_id, chain_index, type, input, priority, blockers, created_at)
  select id, id, 0, 'load.old', repeat('x', 100), 5, 0, now() - interval '1 day'
    from (select lpad(to_hex(n), 32, '0')::uuid as id from generate_series(1, %(jobs)s) n) x returning id)
insert into holdfast.outcome (job_id, type, state, output, attempts, crashes, fence, finished_at)
select id, 'load.old', 'completed', '1', 1, 0, 1, now() - interval '1 day' from made
"""
KEYS = """
insert into holdfast.chain_key (type, key, chain_id)
select 'load.old', 'order:' || n, gen_random_uuid() from generate_series(1, %(jobs)s / 2) n
"""
WAITING = """
with made as (
  insert into holdfast.job (id, chain_id, chain_index, type, input, priority, blockers, created_at)
  select id, id, 0, 'load.later', '1', 5, 0, now()
    from (select gen_random_uuid() as id from generate_series(1, %(jobs)s / 20)) x returning id)
insert into holdfast.queue (job_id, type, priority, available_at)
select id, 'load.later', 5, now() + interval '1 day' from made
"""
READ = """
lock table holdfast.job, holdfast.queue, holdfast.lease, holdfast.outcome, holdfast.chain_key, holdfast.identity
  in access share mode
"""
DONE = "select count(*) from holdfast.outcome where type = 'load.run' and state = 'completed'"
WAITS = """
select coalesce(max(1000 * extract(epoch from clock_timestamp() - l.waitstart)), 0)::integer
  from pg_locks l join pg_stat_activity a on a.pid = l.pid
 where not l.granted and a.application_name not like 'holdfast migrate%'
"""
PRODUCERS = 4
SERVER = {"max_wal_size": "4GB", "shared_buffers": "512MB"}


def main() -> None:
    """Make the database, start everybody, upgrade, and print what happened."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("old", type=Path)
    arguments.add_argument("--jobs", type=int, default=1_000_000)
    arguments.add_argument("--rate", type=float, default=100)
    arguments.add_argument("--reader", type=float, default=30)
    options = arguments.parse_args()
    with ExitStack() as stack:
        server = stack.enter_context(PostgresProcess(embedded_binaries(), SERVER))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "app.py").write_text(APP)
        scene = Scene(stack, server.url, folder, options.old / "src")
        scene.fill(options.jobs)
        print(json.dumps(scene.upgrade(options.rate, options.reader), indent=2))


class Scene:
    """The old version's processes on one database, and the upgrade to this one."""

    def __init__(self, stack: ExitStack, url: str, folder: Path, old: Path) -> None:
        self._stack = stack
        self._folder = folder
        self._url = url
        self._old = {**os.environ, "HOLDFAST_URL": url, "PYTHONPATH": f"{old}:{folder}"}
        self._new = {**os.environ, "HOLDFAST_URL": url}
        self._connection = stack.enter_context(psycopg.connect(url, autocommit=True))

    def fill(self, jobs: int) -> None:
        """Make a database of the old version with a history, kept keys and a backlog."""
        subprocess.run([*_HOLDFAST, "migrate"], env=self._old, cwd=self._folder, check=True)
        for statement in (FILL, KEYS, WAITING):
            self._connection.execute(statement, {"jobs": jobs})
            _say("filled")
        self._connection.execute("analyze")

    def upgrade(self, rate: float, reader_s: float) -> dict[str, Any]:
        """Upgrade under load; return the figures."""
        worker = self._start([*_HOLDFAST, "worker", "app:app"], stderr=subprocess.DEVNULL)
        producers = [
            self._start([sys.executable, "-c", PRODUCER, str(rate / PRODUCERS)])
            for _ in range(PRODUCERS)
        ]
        for each in producers:
            assert each.stdout is not None
            assert each.stdout.readline() == "begun\n"
        wait_until(self._done)
        _say("producers and worker have begun")
        time.sleep(5)
        reader = self._stack.enter_context(psycopg.connect(self._url))
        reader.execute(READ)
        locks = LockWaits(self._url)
        before, began = self._done(), time.time()
        migrating = subprocess.Popen(
            [*_HOLDFAST, "migrate"], env=self._new, stderr=subprocess.PIPE, text=True
        )
        assert migrating.stderr is not None
        said = [migrating.stderr.readline()]
        _say(said[0])
        time.sleep(reader_s)
        while_read = self._done() - before
        reader.rollback()
        for line in migrating.stderr:
            _say(line)
            said.append(line)
        migrating.wait()
        ended, during = time.time(), self._done() - before
        time.sleep(5)
        after = self._done() - before - during
        found = [json.loads(each.communicate("")[0]) for each in producers]
        alive = worker.poll() is None
        worker.terminate()
        worker.wait(60)
        taken = [tuple(pair) for each in found for pair in each["taken"]]
        return {
            "exit code of the upgrade": migrating.returncode,
            "seconds": round(ended - began, 1),
            "said": [line.strip() for line in said],
            "longest wait of a producer or the worker for a lock, ms": locks.stop(),
            "starts": len(taken),
            "failed starts": [text for each in found for text in each["failed"]],
            "slowest start before, ms": _slowest(taken, 0, began),
            "slowest start during, ms": _slowest(taken, began, ended),
            "slowest start after, ms": _slowest(taken, ended, time.time()),
            "jobs done by the old worker beside the reader, until the end, in 5 s after": [
                while_read,
                during,
                after,
            ],
            "old worker is alive": alive,
        }

    def _start(self, words: list[str], stderr: int | None = None) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            words,
            env=self._old,
            cwd=self._folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if "-c" in words else subprocess.DEVNULL,
            stderr=stderr,
            text=True,
        )
        self._stack.callback(process.kill)
        return process

    def _done(self) -> int:
        row = self._connection.execute(DONE).fetchone()
        return int(row[0]) if row else 0


class LockWaits(threading.Thread):
    """Looks every few milliseconds how long others than the migration have waited for a lock."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._connection = psycopg.connect(url, autocommit=True)
        self._over = threading.Event()
        self._longest = 0
        self.start()

    def run(self) -> None:
        while not self._over.wait(0.01):
            row = self._connection.execute(WAITS).fetchone()
            self._longest = max(self._longest, row[0] if row else 0)

    def stop(self) -> int:
        self._over.set()
        self.join()
        self._connection.close()
        return self._longest


_HOLDFAST = [sys.executable, "-m", "holdfast"]


def _say(text: str) -> None:
    print(f"{time.strftime('%X')} {text.strip()}", file=sys.stderr)


def _slowest(taken: list[tuple[float, float]], since: float, until: float) -> int:
    return max(
        (round(1000 * each) for at, each in taken if since <= at - each and at <= until), default=0
    )


if __name__ == "__main__":
    main()
