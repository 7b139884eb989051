"""Workers on a server with too few connections for all of them: they work with what they get, and say so."""

from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from holdfast import Holdfast
from tests.cli.processes import Command
from tests.support.postgres import StartPostgres
from tests.support.until import PATIENCE_S, wait_until

APPLICATION = """
import asyncio
from holdfast import Holdfast, Job

app = Holdfast()

@app.job("hello")
async def hello(job: Job[int]) -> None:
    await asyncio.sleep(0.02)  # so that no worker finishes them before the others are there
"""
WORKERS, JOBS = 6, 1_000
ENDED = "select count(*) from holdfast.outcome where state = 'completed'"
# As few as a server can have reserved, so that all others are there for the workers.
SETTINGS = {"max_connections": "20", "superuser_reserved_connections": "3"}
SHORT = {"OUTBOX_LEASE_DURATION_MS": "3000"}


@pytest.mark.parametrize("lease", [{}, SHORT], ids=["default lease", "short lease"])
def test_six_workers_finish_on_a_server_that_allows_20_connections(
    private_postgres: StartPostgres, tmp_path: Path, lease: dict[str, str]
) -> None:
    server = private_postgres(SETTINGS)
    with psycopg.connect(server.url, autocommit=True) as observer, ExitStack() as stack:
        app = Holdfast(server.url, open_types=True)
        with app.transaction() as tx:
            app.start_many(tx, "hello", range(JOBS))
        app.close()
        (tmp_path / "shop.py").write_text(APPLICATION)
        environ = {"HOLDFAST_URL": server.url, **lease}
        workers = [
            stack.enter_context(Command("worker", "shop:app", cwd=tmp_path, env=environ))
            for _ in range(WORKERS)
        ]

        def have_all_ended() -> bool:
            assert [each.process.poll() for each in workers] == [None] * WORKERS
            return observer.execute(ENDED).fetchone() == (JOBS,)

        wait_until(have_all_ended, lambda: observer.execute(ENDED).fetchone())
        attempts = observer.execute("select max(attempts), max(crashes) from holdfast.outcome")
        assert attempts.fetchone() == (1, 0)
        for each in workers:
            each.process.terminate()
        said = [each.process.communicate(timeout=PATIENCE_S)[1] for each in workers]
    short = [each for each in said if "the server refuses some connections" in each]
    none = [each for each in said if "too many clients" in each and "worker_started" not in each]
    assert short or none, said
    assert all(each.count("the server refuses some connections") <= 1 for each in said), said
