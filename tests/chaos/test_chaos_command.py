"""`holdfast chaos`: short campaigns on both stores, with our own job types and with those of a user."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.support.postgres import StartPostgres
from tests.support.until import TEST_TIMEOUT_S, wait_until

SECONDS = "6"
QUICK = ("--seconds", SECONDS, "--every", "1", "--workers", "2", "--rate", "20", "--lease", "1")
APPLICATION = """
import asyncio
from holdfast import Holdfast, Job

app = Holdfast("sqlite:///never-opened.db")

@app.job("order.charge")
async def charge(job: Job[dict]) -> None:
    await asyncio.sleep(0.02)

@app.job("cache.warm")
async def warm(job: Job[None]) -> None:
    await asyncio.sleep(0.01)
"""

pytestmark = pytest.mark.timeout(2 * TEST_TIMEOUT_S)


def chaos(
    folder: Path, *words: str, expected: int | None = 0
) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "chaos", *words],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"NO_COLOR": "1"},
        timeout=2 * TEST_TIMEOUT_S,
    )
    assert expected in (None, done.returncode), done.stdout + done.stderr
    return done


def result_of(done: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_campaign_on_sqlite_keeps_all_laws_and_writes_its_page_and_record(tmp_path: Path) -> None:
    words = ("--seed", "4", "--only", "kill,kill_producer,write_lock,deploy", "-o", "json")
    files = ("--report", "page.html", "--record", "campaigns.json", "--keep", "journals")
    found = result_of(chaos(tmp_path, *QUICK, *words, *files))
    assert found["verdict"] == "green"
    assert found["jobs"] > 0
    assert set(found["faults"]) <= {"kill", "kill_producer", "write_lock", "deploy"}
    assert (found["lost"], found["fencing_violations"], found["broken"]) == (0, 0, [])
    assert found["duplicates"] == found["duplicates_explained"]
    assert found["events"] > 0
    assert (found["events_lost"], found["events_twice"], found["events_out_of_order"]) == (0, 0, 0)
    page = (tmp_path / "page.html").read_text()
    assert "Campaign with seed 4" in page
    assert f"<span>events</span><b>{found['events']:,}</b>" in page
    assert "events-in-order" in page
    assert "<script" not in page
    (record,) = json.loads((tmp_path / "campaigns.json").read_text())
    assert (record["store"], record["seed"], record["jobs"]) == ("SQLite", 4, found["jobs"])
    assert (tmp_path / "journals" / "faults.journal").exists()


def test_a_campaign_on_a_server_of_its_own_keeps_all_laws(tmp_path: Path) -> None:
    words = ("--postgres", "--seed", "2", "--only", "kill,restart,cut,mute,kill_backend", "-o")
    found = result_of(chaos(tmp_path, *QUICK, *words, "json"))
    assert (found["verdict"], found["broken"], found["lost"]) == ("green", [], 0)
    assert sum(found["faults"].values()) >= 3
    assert found["events"] > 0
    assert found["store"].startswith("PostgreSQL")


def test_what_an_asynchronous_standby_loses_is_counted_apart(tmp_path: Path) -> None:
    words = ("--postgres", "--standby", "async", "--seed", "4", "--only", "promote,kill")
    output = ("--rate", "60", "-o", "json", "--record", "campaigns.json")
    found = result_of(chaos(tmp_path, *QUICK, *words, *output))
    assert found["store"].endswith("asynchronous standby")
    assert found["faults"]["promote"] >= 1
    assert (found["verdict"], found["broken"], found["lost"]) == ("green", [], 0)
    # The standby gets nothing more for a moment before it is promoted, while producers are told of commits.
    assert found["lost_by_failover"] > 0
    (record,) = json.loads((tmp_path / "campaigns.json").read_text())
    assert record["lost_by_failover"] == found["lost_by_failover"]


def test_a_users_handlers_run_in_a_schema_of_their_own_on_a_given_server(
    tmp_path: Path, postgres_url: str
) -> None:
    (tmp_path / "shop.py").write_text(APPLICATION)
    words = ("--url", postgres_url, "--schema", "chaos_here", "--seed", "3")
    inputs = ("--input", 'order.charge={"order": 7}', "--input", "cache.warm=null")
    # A pause may hit a worker that holds nothing, and then nothing of it was shown.
    done = chaos(tmp_path, "shop:app", *QUICK, *words, *inputs, "-o", "json", expected=None)
    assert done.returncode in (0, 5), done.stdout + done.stderr
    found = result_of(done)
    assert (found["verdict"], found["broken"]) in [("green", []), ("unknown", [])]
    assert found["jobs"] > 0
    assert found["skipped"]["restart"] == "the server is not one that this command started"
    assert found["skipped"]["events"] == "they are published beside our own job types only"
    assert found["events"] is None
    assert not (tmp_path / "never-opened.db").exists()
    with psycopg.connect(postgres_url) as connection:
        kept = "select 1 from pg_namespace where nspname = 'chaos_here'"
        assert connection.execute(kept).fetchall() == []
        assert connection.execute("select count(*) from holdfast.job").fetchall() == [(0,)]


READS_THE_ENVIRONMENT = """
import os
from pathlib import Path
from holdfast import Holdfast, Job

# As an application that gives its database to others, too, does.
url = os.environ["HOLDFAST_URL"]
app = Holdfast(url)

@app.job("cache.warm")
async def warm(job: Job[None]) -> None:
    with Path("seen").open("a") as seen:
        seen.write(f"{url} {os.environ.get('HOLDFAST_SCHEMA')} {os.environ['HOLDFAST_URL']}\\n")
"""


@pytest.mark.parametrize("is_set", [True, False])
def test_an_application_that_reads_its_url_finds_the_campaigns_database(
    tmp_path: Path, is_set: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    if is_set:
        monkeypatch.setenv("HOLDFAST_URL", "sqlite:///never-opened.db")
    (tmp_path / "shop.py").write_text(READS_THE_ENVIRONMENT)
    (tmp_path / "holdfast.toml").write_text('url = "sqlite:///never-opened.db"\n')
    words = ("--only", "kill", "--seconds", "2", "--every", "1", "--workers", "1", "-o", "json")
    found = result_of(chaos(tmp_path, "shop:app", *words, "--keep", "kept", expected=None))
    assert found["jobs"] > 0
    seen = {each for line in (tmp_path / "seen").read_text().splitlines() for each in line.split()}
    assert all("never-opened" not in each for each in seen), seen
    assert "holdfast_chaos" in seen
    assert not (tmp_path / "never-opened.db").exists()


def test_job_types_that_need_no_input_are_started_by_themselves(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APPLICATION)
    words = ("--only", "kill", "--seconds", "2", "--every", "1", "--workers", "1", "-o", "json")
    found = result_of(chaos(tmp_path, "shop:app", *words))
    assert found["plan"]["starts"] == [["cache.warm", None]]
    assert found["not_started"] == ["order.charge"]
    assert list(found["not_judged"]) == [
        *("one-effect", "events-arrive", "events-once", "events-in-order")
    ]
    assert (found["failed"], found["failed_by_handlers"]) == ({}, 0)


FAILING = """
from holdfast import Permanent

@app.job("order.refuse")
async def refuse(job: Job[None]) -> None:
    raise Permanent("sold out")
"""


def test_what_failed_and_what_was_not_started_or_judged_is_named(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APPLICATION + FAILING)
    words = ("--only", "kill", "--seconds", "2", "--every", "1", "--workers", "1")
    done = chaos(tmp_path, "shop:app", *words, "--report", "page.html")
    found = re.search(r"^failed jobs +(\d+)\n  order.refuse +(\d+)$", done.stdout, re.MULTILINE)
    assert found is not None, done.stdout
    assert int(found[1]) == int(found[2]) > 1
    verdict = f"with seed 1 on SQLite; {found[1]} jobs failed by their own handlers"
    not_started = "ot started: order.charge; give --input TYPE=JSON for each"
    page = (tmp_path / "page.html").read_text()
    for told in (done.stderr, page):
        assert verdict in told
        assert f"n{not_started}" in told or f"N{not_started}" in told
    assert "–  one-effect " in done.stdout
    assert "✓  fences-grow " in done.stdout


WITHOUT_STREAMS = """
import importlib.util

find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: (
    None if name == "holdfast_streams" else find_spec(name, *more)
)
"""


def test_without_streams_a_campaign_publishes_no_events_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_STREAMS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    done = chaos(tmp_path, "--only", "kill", *QUICK, "--seconds", "3", "-o", "json")
    found = result_of(done)
    assert found["jobs"] > 0
    assert found["events"] is None
    assert found["skipped"]["events"] == "holdfast-streams is not installed"


IMPATIENT = """
import holdfast_chaos.campaign

holdfast_chaos.campaign.IDLE_S = 1.0
"""


def test_a_database_that_stays_away_ends_a_campaign_with_what_the_journals_show(
    tmp_path: Path, private_postgres: StartPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(IMPATIENT)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    server = private_postgres()
    words = ("--url", server.url, "--only", "kill", "--keep", "kept", "--report", "page.html")
    recorded = ("--record", "campaigns.json")
    with started(tmp_path, *QUICK, *words, *recorded, "--seconds", "600") as campaign:
        faults = tmp_path / "kept" / "faults.journal"
        wait_until(lambda: faults.exists() and '"kind":"kill"' in faults.read_text())
        server.stop("immediate")
        said, told = campaign.communicate(timeout=TEST_TIMEOUT_S)
    assert campaign.returncode == 7, told
    assert "–  acknowledged-ends" in said
    assert "✓  fences-grow" in said
    assert "the database has not answered since" in told
    assert "unknown, with seed 1 on PostgreSQL" in told
    assert "schema holdfast_chaos is still in the database" in told
    assert "HF043" not in told
    assert "The database has not answered since" in (tmp_path / "page.html").read_text()
    # It would take the place of one that was judged.
    assert not (tmp_path / "campaigns.json").exists()


def test_a_campaign_without_faults_is_unknown(tmp_path: Path) -> None:
    words = ("--seconds", "1", "--every", "60", "--workers", "1", "-o", "json")
    found = result_of(chaos(tmp_path, *words, expected=5))
    assert (found["verdict"], found["reasons"]) == ("unknown", ["no fault was injected"])


def test_a_schema_that_exists_is_left_alone(tmp_path: Path, postgres_url: str) -> None:
    done = chaos(tmp_path, "--url", postgres_url, "--schema", "holdfast", expected=4)
    assert "HF223" in done.stderr
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("select count(*) from holdfast.job").fetchall() == [(0,)]


def test_a_file_that_exists_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "shop.db").write_text("precious")
    done = chaos(tmp_path, "--url", "sqlite:///shop.db", expected=4)
    assert "HF223" in done.stderr
    assert (tmp_path / "shop.db").read_text() == "precious"


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        (("--only", "kil"), 2, "did you mean kill"),
        (("--postgres", "--url", "postgresql://x/y"), 2, "exclude each other"),
        (("--input", "a=1"), 2, "needs an application"),
        (("shop:app", "--input", "order.charge={"), 2, "is not JSON"),
        (("shop:app", "--input", "order.gone=1"), 3, "order.gone"),
        (("typed:app",), 2, "HF222"),
        (("--report", "gone/page.html"), 2, "gone/page.html cannot be written"),
        (("--record", "."), 2, ". cannot be written"),
        (("--record", "shop.py"), 2, "shop.py is no file of campaigns"),
        (("--only", "promote"), 2, "help: pass --standby sync"),
        (("--only", "full_disk"), 2, "help: pass --disk FOLDER"),
        (("--only", "restart,cut"), 2, "restart: SQLite has no server"),
        (("--url", "postgresql://app@127.0.0.1:1/shop"), 7, "HF043"),
    ],
)
def test_what_cannot_be_run_is_named(
    tmp_path: Path, words: tuple[str, ...], code: int, named: str
) -> None:
    (tmp_path / "shop.py").write_text(APPLICATION)
    (tmp_path / "typed.py").write_text(
        "from holdfast import Holdfast, Job\napp = Holdfast()\n"
        "@app.job('mail')\nasync def mail(job: Job[int]) -> None: ...\n"
    )
    done = chaos(tmp_path, *words, expected=code)
    assert named in done.stderr


def test_a_worker_that_cannot_start_is_named_with_the_end_of_its_log(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "import sys\nfrom holdfast import Holdfast, Job\napp = Holdfast()\n"
        "if 'worker' in sys.argv: raise RuntimeError('no such disk')\n"
        "@app.job('mail')\nasync def mail(job: Job[None]) -> None: ...\n"
    )
    done = chaos(tmp_path, "shop:app", "--seconds", "1", "--workers", "1", expected=1)
    assert "HF224" in done.stderr
    assert "no such disk" in done.stderr


ENDED = "ended early: nothing was judged, and what the campaign started is gone\n"


@contextmanager
def started(
    folder: Path, *words: str, starter: tuple[str, ...] = ()
) -> "Iterator[subprocess.Popen[str]]":
    """Start the command; end it if the test does not."""
    campaign = subprocess.Popen(
        [*starter, sys.executable, "-m", "holdfast", "chaos", *words],
        cwd=folder,
        env=os.environ | {"NO_COLOR": "1", "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield campaign
    finally:
        campaign.kill()
        campaign.wait()


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_campaign_that_is_ended_leaves_nothing_behind_and_says_so_in_a_line(
    tmp_path: Path, postgres_url: str, store: str, number: signal.Signals
) -> None:
    words = ("--url", postgres_url) if store == "postgres" else ()
    with started(tmp_path, "--seconds", "600", "--workers", "1", *words) as campaign:
        wait_until(lambda: bool(list(tmp_path.glob("*/worker-1.journal"))))
        campaign.send_signal(number)
        _, told = campaign.communicate(timeout=TEST_TIMEOUT_S)
    assert (campaign.returncode, told) == (128 + number, ENDED)
    assert list(tmp_path.iterdir()) == []
    if store == "postgres":
        with psycopg.connect(postgres_url) as connection:
            kept = "select 1 from pg_namespace where nspname = 'holdfast_chaos'"
            assert connection.execute(kept).fetchall() == []


ON_A_TERMINAL = """
import fcntl, os, sys, termios

fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, "-m", "holdfast", "chaos", "--seconds", "600"])
"""


def test_a_campaign_whose_terminal_is_closed_leaves_nothing_behind(tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    campaign = subprocess.Popen(
        [sys.executable, "-c", ON_A_TERMINAL],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        wait_until(lambda: bool(list(tmp_path.glob("*/worker-1.journal"))))
        os.close(ours)
        assert campaign.wait(TEST_TIMEOUT_S) == 128 + signal.SIGHUP
    finally:
        campaign.kill()
        campaign.wait()
    assert list(tmp_path.iterdir()) == []


def test_a_campaign_under_nohup_goes_on(tmp_path: Path) -> None:
    words = ("--seconds", "1", "--every", "60", "--workers", "1")
    with started(tmp_path, *words, starter=("nohup",)) as campaign:
        wait_until(lambda: bool(list(tmp_path.glob("*/worker-1.journal"))))
        campaign.send_signal(signal.SIGHUP)
        _, told = campaign.communicate(timeout=TEST_TIMEOUT_S)
    assert campaign.returncode == 5, told
    assert "unknown because no fault was injected" in told
