"""A secret in sealed payloads goes through a whole life, and is then searched for wherever something is written."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pyarrow.parquet as pq
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from psycopg import sql

from holdfast import Holdfast, Seal
from holdfast.admin.access import Role
from holdfast.notify.base import Hint
from holdfast.notify.encoding import channel_name, decode, encode
from holdfast.notify.sender import CoalescingSender
from holdfast.observe.logging import JsonFormatter, LoggingObserver
from holdfast.settings import read_settings
from holdfast.web.app import create
from holdfast.web.openapi import ROUTES
from holdfast_archive import Archive, add_archive
from holdfast_dashboard.page_dispatch import ROUTES as PAGES
from holdfast_otel import use_opentelemetry
from holdfast_testing.kit import Kit
from tests.sealed.clinic import SECRET, Record, make_app
from tests.sealed.conftest import NEW
from tests.support.postgres import PostgresServer
from tests.support.warm_python import LIBRARIES
from tests.web.conftest import Api

ANA = Record(SECRET)
KINDS = ("fails", "process", "busy", "limited", "atomic", "plan", "batch")
SHOWN = (200, 400, 403, 404, 409, 422, 501, 503)
"""What a read may answer; anything else is a failure of its own."""


class Life:
    """An application that lived through everything, and what it told the outside."""

    def __init__(self, url: str, folder: Path) -> None:
        self.spans, self.metrics = InMemorySpanExporter(), InMemoryMetricReader()
        tracer = TracerProvider(shutdown_on_exit=False)
        tracer.add_span_processor(SimpleSpanProcessor(self.spans))
        self.app = make_app(url, seal=Seal({"2026-11": NEW}))
        use_opentelemetry(self.app, tracer, MeterProvider([self.metrics], shutdown_on_exit=False))
        self.app.observe(LoggingObserver())
        self.url, self.log = url, folder / "log"
        self.folder = folder / "archive"
        self.archive: Archive = add_archive(self.app, str(self.folder))
        self.archive.jobs(keep=None)
        self.kit = Kit(self.app, url)
        self.hints: list[str] = []
        """What went through the notifiers of this process, and what a stranger heard on PostgreSQL's channel."""

    def live(self) -> None:
        """Start, retry, die, come back; publish, debounce, continue, wait for others; archive."""
        app = self.app
        with app.transaction() as tx:
            for kind in KINDS:
                app.start(tx, kind, ANA, key=f"patient 7, {kind}")
            app.start_many(tx, "limited", [ANA] * 3, keys=["x", "x", "y"], debounce="1m")
            app.start(tx, "limited", ANA, key="x", debounce="1m")
            first = app.start(tx, "limited", ANA)
            app.start(tx, "late", ANA, blockers=[first])
            app.publish(tx, "moved", ANA)
            app.start(tx, "limited", ANA, after="1d")
            by_hand = app.start(tx, "limited", ANA, after="1d")
            app.chains.complete(tx, by_hand, {"by hand": SECRET})
        for _ in range(3):
            self.kit.run_until_idle()
            self.kit.advance("2m")
        assert {each.type for each in app.dead_letters.list()} == {
            "fails",
            "process",
            "batch",
            "moved/bill",
        }
        app.state["is_well"] = True  # type: ignore[attr-defined]
        with app.transaction() as tx:
            app.dead_letters.redrive(tx, *(each.id for each in app.dead_letters.list("type:fails")))
        self.kit.run_until_idle()
        assert app.jobs.list("type:fails").items[0].output == f"a bed for {SECRET}"

    def archived(self) -> str:
        """Archive what has ended, and return what the files say."""
        self.kit.advance("3d")
        report = self.archive.run()
        assert not report.errors
        files = sorted(self.folder.rglob("*.parquet"))
        assert files
        raw = b"".join(each.read_bytes() for each in self.folder.rglob("*") if each.is_file())
        return repr([pq.read_table(each).to_pylist() for each in files]) + repr(raw)


def dump(url: str) -> str:
    """Return every row of every table as text."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
            return "\n".join(file.iterdump())
    tables = "select schemaname, tablename from pg_tables where schemaname = 'holdfast'"
    with psycopg.connect(url) as connection:
        query = sql.SQL("select t::text from {} t")
        return "\n".join(
            str(row)
            for name in connection.execute(tables).fetchall()
            for row in connection.execute(query.format(sql.Identifier(*name))).fetchall()
        )


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def life(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Life]:
    """A life that is over on each store, with everything logged to a file."""
    folder = tmp_path_factory.mktemp("life")
    with ExitStack() as stack:
        url = f"sqlite:///{folder}/holdfast.db"
        if request.param == "postgres":
            server: PostgresServer = request.getfixturevalue("postgres_server")
            url = stack.enter_context(server.database())
        stack.enter_context(logging_to(folder / "log"))
        life = Life(url, folder)
        stack.callback(life.app.close)
        with hints_heard(life), hints_sent(life):
            life.live()
        yield life


@contextmanager
def hints_sent(life: Life) -> Iterator[None]:
    """Keep every hint that is given to a notifier, in the form in which it would be sent."""
    send = CoalescingSender.send

    def keep(sender: CoalescingSender, hints: Sequence[Hint]) -> None:
        life.hints += encode(hints)
        send(sender, hints)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CoalescingSender, "send", keep)
        yield


@contextmanager
def hints_heard(life: Life) -> Iterator[None]:
    """Listen on the channel of hints as anyone may who can connect to the server."""
    if life.url.startswith("sqlite"):
        # Other processes see that the file has changed, and nothing else; in this one, hints are sent to who listens.
        listener = life.app.notifier.listen(lambda hint: None)
        yield
        listener.close()
        return
    with psycopg.connect(life.url, autocommit=True) as connection:
        connection.execute(sql.SQL("listen {}").format(sql.Identifier(channel_name("holdfast"))))
        yield
        heard = [each.payload for each in connection.notifies(timeout=1)]
    assert any("moved/mail" in each for each in heard)
    life.hints += heard


@contextmanager
def logging_to(file: Path) -> Iterator[None]:
    """Log everything of this process to a file, at the lowest level."""
    handler, root = logging.FileHandler(file), logging.getLogger()
    handler.setFormatter(JsonFormatter())
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        root.setLevel(level)
        root.removeHandler(handler)
        handler.close()


def command(url: str, *words: str, keys: str = "") -> str:
    """Run a command as a process; return all it says."""
    env = {**os.environ, "HOLDFAST_URL": url, "CLINIC_URL": url, "HOLDFAST_SEAL_KEYS": keys}
    done = LIBRARIES.run(["-m", "holdfast", *words], Path.cwd(), env)
    return done.stdout + done.stderr


def paths_of(ids: list[str]) -> list[str]:
    """Return every address that can be read, for each of the jobs."""
    reads = [each.path for each in ROUTES if each.method == "GET" and "stream" not in each.media]
    reads += [each.path for each in PAGES if each.method == "GET"]
    paths = [
        path.replace("{id}", id) for path in reads for id in (ids if "{id}" in path else ids[:1])
    ]
    return [
        *(f"{each}?timeout=0" if each.endswith("/wait") else each for each in paths),
        *(f"/start?like={id}" for id in ids),
        *(f"/api/v1/jobs/{id}?raw=true" for id in ids),
        *(f"/types/{kind}" for kind in KINDS),
        *(f"/api/v1/jobs/export?format={each}" for each in ("csv", "json")),
    ]


async def answers(app: Holdfast, paths: list[str]) -> list[httpx.Response]:
    """Read addresses as a developer, who may see payloads."""
    served = create(app, settings=read_settings({}))
    api = Api(served, app)
    found = [await api.call(Role.DEVELOPER, "GET", path) for path in paths]
    again = {"like": paths[0].rpartition("/")[2], "reason": "again"}
    found.append(await api.call(Role.DEVELOPER, "POST", "/api/v1/chains", json=again))
    await served.state.site.close()
    await app.aclose()
    return found


def test_nothing_is_written_in_clear(life: Life) -> None:
    assert SECRET not in dump(life.url)
    assert len(life.spans.get_finished_spans()) > 10
    assert SECRET not in repr([each.to_json() for each in life.spans.get_finished_spans()])
    assert SECRET not in str(life.metrics.get_metrics_data())
    logged = life.log.read_text()
    assert "job_failed" in logged
    assert SECRET not in logged
    assert {"due", "ended"} <= {hint.kind for text in life.hints for hint in decode(text)}
    assert SECRET not in "".join(life.hints)
    assert SECRET not in life.archived()
    assert SECRET not in dump(life.url)


async def test_no_page_no_answer_and_no_export_shows_it_without_the_key(life: Life) -> None:
    ids = [str(each.id) for each in life.app.jobs.list(limit=200)]
    chosen = [*ids[::5], ids[-1]]
    other = make_app(life.url)
    for answer in await answers(other, paths_of(chosen)):
        assert answer.status_code in SHOWN, f"{answer.url}: {answer.status_code} {answer.text}"
        assert SECRET not in answer.text, answer.url
    paths = [f"/api/v1/jobs/{ids[0]}", f"/jobs/{ids[0]}", f"/start?like={ids[0]}"]
    answer, page, like, _ = await answers(other, paths)
    job = answer.json()["job"]
    assert job["payloads_sealed"]
    assert (job["sealed_with"], job["input"]) == ("2026-11", {"sealed": {"key": "2026-11"}})
    assert "Sealed: this process does not have the key" in page.text
    assert (like.status_code, "HF120" in like.text) == (422, True)
    assert SECRET not in life.log.read_text()


async def test_a_process_with_the_key_shows_it_and_runs_it_again_sealed(life: Life) -> None:
    (job, *_) = life.app.jobs.list("type:fails state:completed")
    before = len(life.app.jobs.list("type:fails"))
    page, like, again = await answers(life.app, [f"/jobs/{job.id}", f"/start?like={job.id}"])
    assert SECRET in page.text
    assert SECRET in like.text
    assert again.status_code == 201
    served = create(life.app, settings=read_settings({}))
    body: dict[str, Any] = {"like": str(job.id), "input": {"name": f"{SECRET} Edited"}}
    answer = await Api(served, life.app).call(Role.DEVELOPER, "POST", "/api/v1/chains", json=body)
    assert answer.status_code == 201
    await served.state.site.close()
    assert life.app.jobs.get(answer.json()["id"]).input["name"] == f"{SECRET} Edited"
    await life.app.aclose()
    said = command(life.url, "jobs", "start", "--like", str(job.id), keys=f"2026-11:{NEW}")
    assert "started fails" in said
    assert len(life.app.jobs.list("type:fails")) == before + 3
    refused = command(life.url, "jobs", "start", "--like", str(job.id))
    assert "HF120" in refused
    assert SECRET not in refused + dump(life.url) + life.log.read_text()


def test_commands_show_that_it_is_sealed_unless_they_have_the_key(life: Life) -> None:
    url, app = life.url, "tests.sealed.clinic:app"
    (job, *_) = life.app.jobs.list("type:fails state:completed")
    (dead, *_) = life.app.jobs.list("type:process")
    shown, waited, checked, *others = [
        command(url, "jobs", "show", str(job.id)),
        command(url, "chains", "wait", str(job.id), "--raw"),
        command(url, "types", "check", app),
        command(url, "jobs", "show", str(dead.id), "--raw", "-o", "json"),
        command(url, "jobs", "list", "-o", "csv"),
        command(url, "dead", "list", "-o", "json"),
        command(url, "chains", "show", str(job.id)),
        command(url, "audit", "-o", "json"),
        command(url, "doctor"),
    ]
    assert all(SECRET not in each for each in (shown, waited, checked, *others))
    assert '"sealed"' in shown
    assert '"sealed"' in waited
    assert f"cannot be read by {app}" in checked
    assert "sealed with the key 2026-11" in checked
    keys = f"2026-11:{NEW}"
    assert SECRET in command(url, "chains", "wait", str(job.id), keys=keys)
    assert SECRET in command(url, "jobs", "show", str(job.id), keys=keys)
    config = command(url, "config", "show", keys=keys)
    assert "HOLDFAST_SEAL_KEYS" in config
    assert NEW not in config


@pytest.fixture(params=["sqlite_url", "postgres_url"], ids=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of each store in turn."""
    found: str = request.getfixturevalue(request.param)
    return found


def test_a_worker_process_logs_nothing_of_it(url: str) -> None:
    app = make_app(url, seal=Seal({"2026-11": NEW}))
    app.migrate()
    with app.transaction() as tx:
        chains = [app.start(tx, kind, ANA) for kind in KINDS]
    words = ("worker", "tests.sealed.clinic:app", "--drain", "--log-level", "debug")
    without = command(url, *words)
    assert "job_unreadable" in without
    said = command(url, *words, "--log-format", "json", keys=f"2026-11:{NEW}")
    assert "job_retried" in said
    assert SECRET not in without + said + dump(url)
    assert app.chains.get(chains[3]).output == SECRET
    app.close()
