"""What jobs of a plain type take, `python -m tests.contract.plain_jobs URL bare|with`, as JSON.

`bare`: no extension is installed. `with`: all are, and the application uses them, for other types.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import psycopg

from holdfast import Holdfast, Job, Keep, Rate, extensions
from holdfast.storage.postgres.store import CompiledStatements
from holdfast.storage.sqlite import transaction
from holdfast.storage.sqlite.store import sqlite_statements
from holdfast.worker.options import WorkerOptions

ROUNDS = 20
OPTIONS = WorkerOptions(slots=1, stop_when_idle=True, reaps=False)
WRITTEN = """
select pg_stat_force_next_flush(), coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)
  from pg_stat_user_tables where schemaname = 'holdfast'"""


class Taken(msgspec.Struct):
    """What most rounds took: statements by name to start a job and to run it; and all rows written, if countable."""

    start: dict[str, int]
    run: dict[str, int]
    rows: int | None


def record_statements() -> list[str]:
    """Note the name of each statement that runs from now on."""
    ran: list[str] = []

    class Recording(dict[str, str]):
        def __getitem__(self, name: str) -> str:
            ran.append(name)
            return super().__getitem__(name)

    def look_up(self: CompiledStatements, name: str) -> Any:
        ran.append(name)
        return dict.__getitem__(self, name)

    texts = Recording(sqlite_statements())
    vars(transaction)["sqlite_statements"] = lambda: texts
    setattr(CompiledStatements, "__getitem__", look_up)  # noqa: B010
    return ran


def use_all(app: Holdfast, folder: Path) -> None:
    """Have types that use what there is to use, and an application that could anywhere."""
    from holdfast_context import add_context
    from holdfast_files import add_large_values
    from holdfast_groups import add_groups
    from holdfast_output import add_output
    from holdfast_schedules import add_schedules

    add_large_values(app, str(folder))
    add_context(app, capture=dict)
    add_groups(app)
    add_output(app)
    add_schedules(app)

    @app.job(
        "other",
        keep=Keep(completed=0, failed="1d"),
        expires="1h",
        rates=[Rate(100, "1m", cost="tokens")],
    )
    def other(job: Job[dict[str, int]]) -> None: ...


def most_common(rounds: Sequence[Sequence[str]]) -> dict[str, int]:
    """What most of the rounds ran: a timer may come in between."""
    ((most, _),) = Counter(tuple(sorted(each)) for each in rounds).most_common(1)
    return dict(sorted(Counter(most).items()))


async def measure(app: Holdfast, ran: list[str]) -> Taken:
    """Start one job after the other, each run by a worker that ends when there is nothing to do."""
    starts, runs = [], []

    def since(call: Callable[[], Any]) -> list[str]:
        ran.clear()
        call()
        return [*ran]

    def start() -> None:
        with app.transaction() as tx:
            app.start(tx, "plain", {"order": 1})

    for _ in range(ROUNDS):
        starts.append(since(start))
        ran.clear()
        await app.make_worker(OPTIONS, types=["plain"]).run()
        runs.append([*ran])
    assert not list(app.jobs.list("type:plain state:pending"))
    return Taken(most_common(starts), most_common(runs), None)


def count_rows(url: str) -> int | None:
    """How many rows were written to Holdfast's tables."""
    if not url.startswith("postgres"):
        return None
    with psycopg.connect(url, autocommit=True) as connection:
        ((_, rows),) = connection.execute(WRITTEN).fetchall()
    return int(rows)


def main() -> None:
    """Print what was taken."""
    url, kind, folder = sys.argv[1:]
    if kind == "bare":
        vars(extensions)["_entry_points"] = lambda: iter(())
    ran = record_statements()
    app = Holdfast(url)

    if kind == "with":
        use_all(app, Path(folder))

    @app.job("plain")
    def plain(job: Job[Mapping[str, int]]) -> int:
        return job.input["order"]

    before = count_rows(url)
    taken = asyncio.run(measure(app, ran))
    app.close()
    after = count_rows(url)
    taken.rows = None if after is None or before is None else after - before
    print(msgspec.json.encode(taken).decode())


if __name__ == "__main__":
    main()
