"""An invoicing application's cycles by name: its own value of WORKER_TICK_RUNNERS as it is, locks seen from outside."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.cli.conftest import Run
from tests.cli.processes import Command
from tests.cli.scene import Scene
from tests.support.until import PATIENCE_S, until

APPLICATION = """
import asyncio
import pathlib
from holdfast import Holdfast, Job, from_env

app = Holdfast()

async def work(run) -> None:
    print(f"{run.name} begins", flush=True)
    while not pathlib.Path("go").exists():
        await asyncio.sleep(0.02)
    run.counts.processed += 1

@app.cycle(
    "invoiceReminders",
    cron=from_env("INVOICE_REMINDERS_CRON", "0 9 * * mon-fri"),
    tz=from_env("INVOICE_REMINDERS_TZ", "America/Santiago"),
)
async def remind(run) -> None:
    await work(run)

@app.cycle("classesBilling", cron=from_env("CLASSES_BILLING_CRON", "0 3 1 * *"))
async def bill(run) -> None:
    await work(run)

@app.job("hello")
async def hello(job: Job[None]) -> None:
    print("hello", flush=True)
"""
RUNNERS = {"WORKER_TICK_RUNNERS": "outbox,invoiceReminders,classesBilling"}
CYCLES = ["classesBilling", "invoiceReminders"]
LOCKS = """
select key from unnest(array['worker:scheduler:invoiceReminders', 'worker:scheduler:classesBilling']) key
 where exists (
   select from pg_locks
    where locktype = 'advisory' and granted
      and database = (select oid from pg_database where datname = current_database())
      and (classid::bigint << 32 | objid::bigint) = hashtextextended(key, 0))
 order by key
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scene: Scene) -> Path:
    """A folder with the application, whose cycles are known to the database."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "billing.py").write_text(APPLICATION)
    ticked()
    return tmp_path


def ticked(**environ: str) -> dict[str, Any]:
    """Run a tick to its end; return its summary."""
    with Command("tick", "billing:app", "-o", "json", env=RUNNERS | environ) as command:
        out, err = command.process.communicate(timeout=PATIENCE_S)
    assert command.process.returncode == 0, err
    found: dict[str, Any] = json.loads(out[out.index("{") :])
    return found


def request_both(run: Run) -> None:
    for name in CYCLES:
        assert run("cycles", "run-now", name, "--yes").exit_code == 0


def begun(command: Command) -> list[str]:
    """Wait for both cycles to begin."""
    return sorted(command.line().split()[0] for _ in CYCLES)


@pytest.fixture
def locks(url: str) -> Iterator[Any]:
    """What PostgreSQL says of the locks; nothing on SQLite, where there are none."""
    if url.startswith("sqlite"):
        yield lambda: None
        return
    with psycopg.connect(url, autocommit=True) as connection:
        yield lambda: [key for (key,) in connection.execute(LOCKS).fetchall()]


def assert_locked(locks: Any, *names: str) -> None:
    found = locks()
    assert found is None or found == [f"worker:scheduler:{each}" for each in sorted(names)]


def test_a_tick_runs_exactly_these_and_each_as_a_singleton(
    folder: Path, scene: Scene, run: Run, locks: Any
) -> None:
    assert_locked(locks)
    request_both(run)
    scene.start("hello", input="null")
    with Command("tick", "billing:app", "-o", "json", env=RUNNERS) as first:
        assert first.line() == "hello\n"
        assert begun(first) == CYCLES
        assert_locked(locks, *CYCLES)
        replica = ticked()
        (folder / "go").touch()
        summary = json.loads(first.process.communicate(timeout=PATIENCE_S)[0])
    assert_locked(locks)
    wanted = ["reaper", "outbox", "invoiceReminders", "classesBilling"]
    assert list(summary["runnerResults"]) == list(replica["runnerResults"]) == wanted
    for name in CYCLES:
        assert summary["runnerResults"][name]["errors"] == 0
        assert summary["runnerResults"][name]["processed"] >= 1
        assert replica["runnerResults"][name]["processed"] == 0
        runs = json.loads(run("cycles", "runs", name, "-o", "json").stdout)
        assert [each["outcome"] for each in runs] == ["completed"]


def test_a_worker_runs_exactly_these_too(folder: Path, run: Run, locks: Any) -> None:
    with Command("worker", "billing:app", env=RUNNERS) as worker:
        request_both(run)
        assert begun(worker) == CYCLES
        assert_locked(locks, *CYCLES)
        (folder / "go").touch()
        asyncio.run(until(lambda: not locks()))
        assert worker.interrupt() == 0
    assert_locked(locks)
    for name in CYCLES:
        runs = json.loads(run("cycles", "runs", name, "-o", "json").stdout)
        assert [each["outcome"] for each in runs] == ["completed"]


def test_the_doctor_says_what_these_leave_out(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def finding(runners: str | None) -> dict[str, str]:
        if runners is None:
            monkeypatch.delenv("WORKER_TICK_RUNNERS", raising=False)
        else:
            monkeypatch.setenv("WORKER_TICK_RUNNERS", runners)
        findings = json.loads(run("doctor", "billing:app", "-o", "json").stdout)
        return next(each for each in findings if each["check"] == "runners")

    found = finding(RUNNERS["WORKER_TICK_RUNNERS"])
    assert (found["verdict"], "leaves out retention" in found["measured"]) == ("warning", True)
    assert found["fix"].startswith(f"set {'='.join(*RUNNERS.items())},retention")
    found = finding("outbox,retention,invoiceReminders")
    assert "leaves out classesBilling" in found["measured"]
    assert found["text"] == "classesBilling does not run here"
    assert finding("outbox,invoiceReminders,classesBilling,retention")["verdict"] == "ok"
    assert finding(None)["verdict"] == "ok"


def test_schedules_weekdays_and_zones_come_from_variables(folder: Path, run: Run) -> None:
    def listed() -> dict[str, tuple[str, str]]:
        rows = json.loads(run("cycles", "list", "-o", "json").stdout)
        return {each["name"]: (each["schedule"], each["zone"]) for each in rows}

    assert listed() == {
        "invoiceReminders": ("0 9 * * mon-fri", "America/Santiago"),
        "classesBilling": ("0 3 1 * *", "UTC"),
    }
    ticked(
        INVOICE_REMINDERS_CRON="30 7 * * sat",
        INVOICE_REMINDERS_TZ="Asia/Tokyo",
        CLASSES_BILLING_CRON="0 4 * * sun",
        WORKER_TIME_ZONE="Europe/Madrid",
    )
    assert listed() == {
        "invoiceReminders": ("30 7 * * sat", "Asia/Tokyo"),
        "classesBilling": ("0 4 * * sun", "Europe/Madrid"),
    }


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("INVOICE_REMINDERS_CRON", "every morning", 'a cron expression such as "0 9 * * mon-fri"'),
        ("INVOICE_REMINDERS_TZ", "Chile/Santiago", "the IANA name of a time zone"),
    ],
)
@pytest.mark.parametrize("command", ["tick", "worker"])
def test_a_schedule_that_cannot_be_read_stops_the_process_with_the_variables_name(
    folder: Path, command: str, variable: str, value: str, expected: str
) -> None:
    with Command(command, "billing:app", env=RUNNERS | {variable: value}) as refused:
        _, said = refused.process.communicate(timeout=PATIENCE_S)
    assert refused.process.returncode == 2
    assert f"error[HF010]: {variable} cannot be used" in said
    assert f"{variable}={value!r} (env)" in said
    assert f"set {variable} to {expected}" in said
