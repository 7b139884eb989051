"""The jobs that are measured: what each one carries, handlers that do next to nothing, and backlogs of them."""

from __future__ import annotations

import asyncio
import os
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from holdfast.app import Holdfast
from holdfast.client.start_plan import Start
from holdfast.core.flow import Limit
from holdfast.core.outcome import Continue
from holdfast.worker.job import Job
from holdfast_bench.handwritten import SQL, uuid7

INPUT: dict[str, Any] = {
    "order": 123456,
    "email": "someone@example.org",
    "items": [1, 2, 3, 4, 5],
    "note": "x" * 120,
}
"""About 200 bytes of JSON, as in the measurements that other queues publish."""

INPUT_TEXT = msgspec.json.encode(INPUT).decode()
OUTPUT_TEXT = '{"ok":true}'

IO_SECONDS = 0.005
AT_ONCE = 1000
SETTLED_AFTER = 10_000
TYPES_VARIABLE = "BENCH_TYPES"
STAMPS_VARIABLE = "BENCH_STAMPS"
EXTENSIONS_VARIABLE = "BENCH_EXTENSIONS"
"""Where files go, in an application that has every extension that jobs could use."""
UNKEPT = "unkept"
"""Jobs that do nothing, and of which nothing is kept."""
KEYED, KEYED_LIMIT = "keyed", 3
"""Jobs that do nothing too, and of which so many of one tenant run at once."""
NUMBERED = "noop."
"""Types with this beginning do nothing too: there can be any number of them."""

BEFORE = -1
"""The number of the job that is done when a worker is up."""
STAMP = struct.Struct("<qq")
"""What a handler leaves of a numbered job: its number, and when it was called, in nanoseconds of the clock that all
processes of the machine share."""


async def noop(job: Job[Any]) -> None:
    """Do nothing."""


async def wait(job: Job[Any]) -> None:
    """Do what takes 5 ms elsewhere."""
    await asyncio.sleep(IO_SECONDS)


async def step(job: Job[Any]) -> Continue | None:
    """Continue the chain until no step is left."""
    left = job.input["left"]
    return Continue("step", {"left": left - 1}) if left else None


async def echo(number: int) -> int:
    """Be the step of durable functions: do nothing, and have a result."""
    return number


async def steps(job: Job[Any]) -> None:
    """Do so many steps, one after the other."""
    for number in range(job.input["steps"]):
        await job.step("echo", echo, number)


async def lone_steps(job: Job[Any]) -> dict[str, list[float]]:
    """Do steps in turn with bare inserts that are as durable; return how long each took, in ms."""
    import psycopg

    took: dict[str, list[float]] = {"step": [], "bare": []}
    url = os.environ["HOLDFAST_URL"]
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        for number in range(job.input["steps"]):
            begun = time.perf_counter()
            await job.step("echo", echo, number)
            between = time.perf_counter()
            await connection.execute(SQL["bare_insert"], [uuid7(), str(number)], prepare=True)
            took["step"].append((between - begun) * 1e3)
            took["bare"].append((time.perf_counter() - between) * 1e3)
    return took


async def replay(job: Job[Any]) -> float:
    """Do steps and be parked; when claimed again, return how long after the claim the last one was passed, in ms."""
    import psycopg

    await steps(job)
    await job.sleep("1ms")
    passed = time.perf_counter()
    url = os.environ["HOLDFAST_URL"]
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        # The claim's time is the server's, which may be another machine.
        answer = await connection.execute(SQL["server_us"])
        ((now,),) = await answer.fetchall()
        asked_s = time.perf_counter() - passed
    return float((now - job.claimed.claimed_at) / 1e3 - asked_s * 1e3)


def wait_blocking(job: Job[Any]) -> None:
    """Do what takes 5 ms elsewhere, in a thread."""
    time.sleep(IO_SECONDS)


def write_stamp(file: int, number: int) -> None:
    """Note that a numbered job was started."""
    os.write(file, STAMP.pack(number, time.monotonic_ns()))


def stamper(path: Path) -> Callable[[Job[Any]], Any]:
    """Return a handler that notes when a numbered job was started."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    async def stamp(job: Job[Any]) -> None:
        write_stamp(file, job.input["number"])

    return stamp


def count_stamps(path: Path) -> int:
    """Return how many handlers were called."""
    return path.stat().st_size // STAMP.size if path.exists() else 0


def read_stamps(path: Path) -> dict[int, float]:
    """Return when each numbered job was started, in seconds."""
    return {number: at / 1e9 for number, at in STAMP.iter_unpack(path.read_bytes())}


def numbered_types(count: int) -> tuple[str, ...]:
    """Return the names of so many types that do nothing."""
    return tuple(f"{NUMBERED}{number}" for number in range(count))


def make_app(
    url: str, types: tuple[str, ...] = ("noop", "wait", "step"), extensions: str = ""
) -> Holdfast:
    """Return an application with these types and no others; with extensions, if there is a folder for their files."""
    app = Holdfast(url)
    if extensions:
        _add_extensions(app, extensions)
    handlers = (noop, wait, wait_blocking, step, steps, lone_steps, replay)
    plain: dict[str, Any] = {each.__name__: each for each in handlers}
    for name in types:
        if name == KEYED:
            app.job(name, limits=[Limit(KEYED_LIMIT, by="tenant")])(noop)
        elif name == UNKEPT:
            app.job(name, keep=0)(noop)
        elif name == "stamp":
            app.job(name)(stamper(Path(os.environ[STAMPS_VARIABLE])))
        else:
            app.job(name)(noop if name.startswith(NUMBERED) else plain[name])
    return app


def _add_extensions(app: Holdfast, folder: str) -> None:
    from holdfast_context import add_context
    from holdfast_files import add_large_values
    from holdfast_groups import add_groups
    from holdfast_output import add_output
    from holdfast_schedules import add_schedules

    add_large_values(app, folder)
    add_context(app, capture=dict)
    add_groups(app)
    add_output(app)
    add_schedules(app)


def make_producer(url: str) -> Holdfast:
    """Return an application that starts jobs of any type and handles none."""
    return Holdfast(url, open_types=True)


def migrate(url: str) -> None:
    """Bring a database's schema up to date."""
    with closing(make_producer(url)) as app:
        app.migrate()


@dataclass(frozen=True, slots=True)
class BacklogIds:
    """Jobs that were started: the first, one of about the first ten thousand, and the last."""

    first: str
    early: str
    last: str


def fill_keys(url: str, count: int, keys: int) -> BacklogIds:
    """Start limited jobs of so many tenants in turn."""
    with closing(make_app(url, (KEYED,))) as app:
        ids: list[str] = []
        for first in range(0, count, AT_ONCE):
            numbers = range(first, min(first + AT_ONCE, count))
            inputs = [INPUT | {"tenant": number % keys} for number in numbers]
            with app.transaction() as tx:
                chains = app.start_many(tx, KEYED, inputs)
            ids += [str(chains[0].id), str(chains[-1].id)]
    early = ids[min(len(ids), 2 * SETTLED_AFTER // AT_ONCE) - 1]
    return BacklogIds(ids[0], early, ids[-1])


def fill(url: str, types: str | Sequence[str], count: int, input: Any = INPUT) -> BacklogIds:
    """Start chains of one type, or of several in turn."""
    names = [types] if isinstance(types, str) else list(types)
    head = early = last = ""
    with closing(make_producer(url)) as app:
        for first in range(0, count, AT_ONCE):
            numbers = range(first, min(first + AT_ONCE, count))
            starts = [Start(names[number % len(names)], input) for number in numbers]
            with app.transaction() as tx:
                chains = app.start_all(tx, starts)
            head, last = head or str(chains[0].id), str(chains[-1].id)
            if not early or first < SETTLED_AFTER:
                early = last
    return BacklogIds(head, early, last)
