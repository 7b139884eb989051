"""The worker as people start it costs the server next to nothing while there is nothing to do."""

import asyncio
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from tests.cli.processes import Command
from tests.support.absent import skip_because_absent
from tests.support.until import until

APPLICATION = """
from holdfast import Holdfast, Job

app = Holdfast()

@app.job("hello")
async def hello(job: Job[dict]) -> str:
    return "hello"

@app.cycle("sweep", every="1h")
async def sweep(run) -> None: ...
"""
BACKENDS = """
select pid, application_name from pg_stat_activity
 where datname = current_database() and application_name like 'holdfast %'
"""
MS_A_MINUTE = 100
WINDOW_S = 6
# Caches are filled in the first seconds, and a machine with other work makes all of it dearer now and then.
WINDOWS = 5


def cpu_ms(connection: Connection[Any]) -> dict[int, float]:
    """How long each session of ours has been on a processor: what the system counts, not what a clock says."""
    spent = {}
    for pid, _ in connection.execute(BACKENDS).fetchall():
        spent[pid] = int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1_000_000
    return spent


async def ms_a_minute(connection: Connection[Any]) -> float:
    before, begun = cpu_ms(connection), time.monotonic()
    await asyncio.sleep(WINDOW_S)
    after, seconds = cpu_ms(connection), time.monotonic() - begun
    return sum(spent - before.get(pid, 0) for pid, spent in after.items()) * 60 / seconds


@pytest.fixture
def schedstat() -> None:
    """What Linux counts for each process."""
    if not Path("/proc/self/schedstat").exists():
        skip_because_absent("/proc/self/schedstat", "Run the tests on Linux")


@pytest.mark.usefixtures("schedstat")
@pytest.mark.parametrize("address", ["postgres_url", "other_postgres_url"])
async def test_an_idle_worker_costs_the_server_less_than_100_ms_a_minute(
    request: pytest.FixtureRequest, tmp_path: Path, address: str
) -> None:
    url: str = request.getfixturevalue(address)
    (tmp_path / "shop.py").write_text(APPLICATION)
    with (
        Command("worker", "shop:app", cwd=tmp_path, env={"HOLDFAST_URL": url}) as worker,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        await until(lambda: _purposes(connection) >= {"claim", "heartbeat", "reaper", "tick"})
        spent: list[float] = []
        while not spent or (spent[-1] > MS_A_MINUTE and len(spent) < WINDOWS):
            spent.append(await ms_a_minute(connection))
        assert worker.process.poll() is None
    assert spent[-1] <= MS_A_MINUTE, spent


def _purposes(connection: Connection[Any]) -> set[str]:
    rows = connection.execute(BACKENDS).fetchall()
    return {name.removeprefix("holdfast ") for _, name in rows}
