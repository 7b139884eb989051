"""Hides one part of psycopg from Holdfast, as a release without it would, and works on a database all the same.

    python -m tests.storage.hidden_parts OWNER NAME URL

psycopg itself still sees the part: it could not run without it.
"""

from __future__ import annotations

import asyncio
import builtins
import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import psycopg
from psycopg.rows import dict_row, tuple_row

from holdfast import Holdfast, Job
from holdfast.core.errors import NoTransaction
from holdfast.worker.options import WorkerOptions

_KINDS: dict[str, list[Any]] = {
    "Connection": [psycopg.Connection, psycopg.AsyncConnection],
    "PrepareManager": [importlib.import_module("psycopg._preparing").PrepareManager],
}


def hide(owner: str, name: str) -> None:
    """Have every use of a part by Holdfast fail."""
    if owner == "PGconn":
        # Written in C: nothing can be taken away from it but the answer whether it is there.
        builtins.hasattr = _without(builtins.hasattr, name, False)
    elif owner.startswith("psycopg."):
        module = importlib.import_module(owner)
        blind = {"__getattribute__": _without(ModuleType.__getattribute__, name)}
        module.__class__ = type("Lacking", (ModuleType,), blind)
    elif name == "(pgconn)":
        for kind in _KINDS[owner]:
            kind.__init__ = _without(kind.__init__, None)
    else:
        for kind in _KINDS[owner]:
            kind.__getattribute__ = _without(kind.__getattribute__, name)
            kind.__setattr__ = _without(kind.__setattr__, name)


def _without(real: Callable[..., Any], name: str | None, answer: Any = None) -> Any:
    def asked(*given: Any, **named: Any) -> Any:
        by = sys._getframe(1).f_globals["__name__"]
        if by.startswith("holdfast.") and (name is None or given[1] == name):
            if answer is None:
                raise AttributeError(name) if name else TypeError("other arguments")
            return answer
        return real(*given, **named)

    return asked


def work(url: str) -> None:
    """Start, claim and complete, sync and async, with statements of the caller's own in the same transactions."""
    app = Holdfast(url)

    @app.job("sync")
    def sync(job: Job[int]) -> None:
        with job.complete() as done:
            done.tx.execute("insert into sold values (%s)", [job.input])

    @app.job("async")
    async def asynchronous(job: Job[int]) -> None:
        async with job.complete() as done:
            await done.tx.execute("insert into sold values (%s)", [job.input])

    with app.transaction() as tx:
        tx.execute("create table sold (n integer)")
        tx.connection.row_factory = dict_row
        app.start(tx, sync, 1)

    async def start_and_run() -> None:
        async with app.transaction() as tx:
            await app.start(tx, asynchronous, 2)
            await tx.connection.execute("insert into sold values (3)")
        await app.make_worker(WorkerOptions(stop_when_idle=True)).run()
        await app.aclose()

    asyncio.run(start_and_run())
    with app.transaction() as tx:
        assert tx.connection.row_factory is tuple_row
        kept = tx.connection
        found = tx.execute("select n from sold order by n").fetchall()
        assert found == [(1,), (2,), (3,)], found
    assert kept.closed
    assert [each.state for each in app.jobs.list()] == ["completed"] * 2
    try:
        with app.transaction() as tx:
            app.start(tx, sync, 4)
            tx.execute("rollback and chain")
    except NoTransaction:
        pass
    else:
        raise AssertionError("nobody noticed that the transaction is another one")
    assert len(app.jobs.list()) == 2
    app.close()


if __name__ == "__main__":
    assert "holdfast.storage.postgres" not in sys.modules
    hide(sys.argv[1], sys.argv[2])
    internals = importlib.import_module("holdfast.storage.postgres.psycopg_internals")
    print(*internals.MISSING)
    work(sys.argv[3])
