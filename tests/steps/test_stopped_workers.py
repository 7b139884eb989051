"""A worker that is stopped past its lease inside of a step: its record is refused when it goes on."""

import asyncio
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.steps.functions import records
from tests.support.frozen_process import freeze
from tests.support.until import PATIENCE_S, until
from tests.support.warm_python import WarmProcess
from tests.support.worker_process import worker_process
from tests.worker.workshop import Workshop

APPLICATION = """
import asyncio, os, time
from pathlib import Path

from holdfast import Holdfast, Job

app = Holdfast()

def wait(name):
    is_first = not list(Path(".").glob("began-*"))
    Path(f"began-{os.getpid()}").touch()
    while is_first and not Path("go").exists():
        time.sleep(0.02)
    return str(os.getpid())

async def plain(name: str) -> str:
    return await asyncio.to_thread(wait, name)

async def atomic(tx, name: str) -> str:
    await tx.execute(os.environ["WRITE"], [str(os.getpid())])
    return await asyncio.to_thread(wait, name)

@app.job("plain")
async def plain_function(job: Job[None]) -> str:
    return await job.step("wait", plain, "x")

@app.job("atomic")
async def atomic_function(job: Job[None]) -> str:
    return await job.step("wait", atomic, "x", atomic=True)
"""


@contextmanager
def working(folder: Path, url: str, write: str, name: str) -> Iterator[WarmProcess]:
    """Have a worker at work; it does not outlive the block, stopped or not."""
    (folder / "shop.py").write_text(APPLICATION)
    variables = {
        "HOLDFAST_URL": url,
        "WRITE": write,
        "OUTBOX_LEASE_DURATION_MS": "1500",
        "OUTBOX_REAPER_INTERVAL_MS": "300",
    }
    with worker_process(folder, name, "shop:app", **variables) as process:
        yield process


async def test_the_record_of_a_worker_that_was_stopped_past_its_lease_is_refused(
    takeover: tuple[Workshop, str], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    workshop, kind = takeover
    is_postgres = workshop.store.dialect == "postgresql"
    file = tmp_path / "holdfast.db"
    url = request.getfixturevalue("worker_url") if is_postgres else f"sqlite:///{file}"
    write = workshop.ledger.write_effect
    job_id = await workshop.start_one(kind)
    with working(tmp_path, url, write, "first") as first:
        await until(lambda: bool(list(tmp_path.glob("began-*"))))
        freeze(first, file)
        with working(tmp_path, url, write, "second") as second:
            await until(lambda: workshop.ledger.state(job_id) == "completed")
            (tmp_path / "go").touch()
            first.send_signal(signal.SIGCONT)
            log = tmp_path / "first"
            await until(lambda: bool(re.search("lease_lost|write_refused", log.read_text())))
            for process in (first, second):
                process.send_signal(signal.SIGTERM)
                await asyncio.to_thread(process.wait, PATIENCE_S)
            pid = str(second.pid)
    assert (await records(workshop, job_id))["wait"].output == f'"{pid}"'
    assert (await workshop.job(job_id)).output == f'"{pid}"'
    assert workshop.ledger.effects() == ([pid] if kind == "atomic" else [])
    assert "job_failed" not in log.read_text()
