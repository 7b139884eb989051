"""The lifespan: it refuses a database that is not ready, and closes everything in the right order."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from holdfast import Holdfast, Job
from holdfast.contrib.starlette import lifespan, mount_dashboard
from holdfast.core.errors import InvalidOption, SchemaTooOld
from holdfast.settings import read_settings
from holdfast.web.app import create
from tests.support.serving import serve
from tests.support.until import PATIENCE_S, breath


@pytest.fixture
def jobs(any_url: str) -> Iterator[Holdfast]:
    jobs = Holdfast(any_url, open_types=True)
    yield jobs
    jobs.close()


@asynccontextmanager
async def started(app: Starlette) -> AsyncIterator[Any]:
    async with app.router.lifespan_context(app) as state:
        yield state


async def test_a_missing_schema_is_named_with_its_fix(absent_sqlite_url: str) -> None:
    jobs, closed = Holdfast(absent_sqlite_url), Closed()
    with pytest.raises(SchemaTooOld, match="holdfast migrate"):
        async with started(Starlette(lifespan=lifespan(jobs, wrap=closed.lifespan))):
            pass
    assert closed.events == []


class Closed:
    """What opened and closed, in order."""

    def __init__(self) -> None:
        self.events: list[str] = []

    @asynccontextmanager
    async def lifespan(self, app: Any) -> AsyncIterator[dict[str, str]]:
        self.events.append("user opens")
        try:
            yield {"pool": "of the user"}
        finally:
            self.events.append("user closes")

    def follow(self, jobs: Holdfast, dashboard: Starlette, patch: pytest.MonkeyPatch) -> None:
        site, worker = dashboard.state.site, jobs.worker

        async def close_streams() -> None:
            self.events.append("dashboard closes")

        async def aclose() -> None:
            self.events.append("connections close")
            await Holdfast.aclose(jobs)

        @asynccontextmanager
        async def run() -> AsyncIterator[None]:
            running = worker(read_settings({"OUTBOX_WORKER_ENABLED": "true"}))
            try:
                async with running:
                    self.events.append(f"worker runs: {running.is_running}")
                    yield
            finally:
                self.events.append(f"worker runs: {running.is_running}")

        patch.setattr(site.broadcaster, "close", close_streams)
        patch.setattr(jobs, "aclose", aclose)
        patch.setattr(jobs, "worker", run)


ORDER = [
    "user opens",
    "worker runs: True",
    "dashboard closes",
    "worker runs: False",
    "user closes",
    "connections close",
]


@pytest.mark.parametrize("mounted", ["by us", "by the user"])
@pytest.mark.parametrize("breaks", [False, True])
async def test_everything_closes_in_order_also_after_an_error(
    jobs: Holdfast, monkeypatch: pytest.MonkeyPatch, mounted: str, breaks: bool
) -> None:
    jobs.migrate()
    closed = Closed()
    if mounted == "by us":
        app = Starlette(lifespan=lifespan(jobs, wrap=closed.lifespan))
        dashboard = mount_dashboard(app, jobs, settings=read_settings({}))
    else:
        dashboard = create(jobs, settings=read_settings({}))
        app = Starlette(lifespan=lifespan(jobs, dashboard=dashboard, wrap=closed.lifespan))
    closed.follow(jobs, dashboard, monkeypatch)
    try:
        async with started(app) as state:
            assert state == {"pool": "of the user"}
            if breaks:
                raise LookupError
    except LookupError:
        assert breaks
    assert closed.events == ORDER


async def test_what_is_no_dashboard_is_refused(jobs: Holdfast) -> None:
    jobs.migrate()
    with pytest.raises(InvalidOption, match="not a Holdfast dashboard"):
        async with started(Starlette(lifespan=lifespan(jobs, dashboard=Starlette()))):
            pass


async def test_the_worker_runs_jobs_only_when_it_is_enabled(
    jobs: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    @jobs.job("report")
    async def report(job: Job[Any]) -> str:
        return "made"

    jobs.migrate()
    with jobs.transaction() as tx:
        chain = jobs.start(tx, report)
    async with started(Starlette(lifespan=lifespan(jobs))):
        assert (await jobs.aio.chains.get(chain.id)).state == "pending"
    monkeypatch.setenv("OUTBOX_WORKER_ENABLED", "true")
    async with started(Starlette(lifespan=lifespan(jobs))):
        assert (await jobs.aio.chains.wait(chain.id, PATIENCE_S)).output == "made"


def test_the_mounted_dashboard_is_served(jobs: Holdfast) -> None:
    async def home(request: Request) -> Response:
        return PlainTextResponse("home")

    jobs.migrate()
    app = Starlette(routes=[Route("/", home)], lifespan=lifespan(jobs))
    mount_dashboard(app, jobs, "/admin/jobs")
    with serve(app) as address:
        assert httpx.get(address, timeout=PATIENCE_S).text == "home"
        page = httpx.get(f"{address}/admin/jobs/", timeout=PATIENCE_S)
    assert page.status_code == 200
    assert "Holdfast" in page.text


SERVICE = """
import os
from starlette.applications import Starlette
from starlette.routing import Route
from holdfast import Holdfast
from holdfast.contrib.starlette import lifespan, mount_dashboard
from holdfast_calls import wait_or_accept

jobs = Holdfast(os.environ["DATABASE"], open_types=True)

async def wait(request):
    async with jobs.transaction() as tx:
        chain = await jobs.start(tx, "report")
    return (await wait_or_accept(request, jobs, chain)).response()

app = Starlette(routes=[Route("/wait", wait)], lifespan=lifespan(jobs))
mount_dashboard(app, jobs)
"""


@pytest.fixture
def service(any_url: str, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A service as people run it: uvicorn with its defaults."""
    Holdfast(any_url).migrate()
    (tmp_path / "service.py").write_text(SERVICE)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port, number = listening.getsockname()[1], listening.fileno()
        process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "service:app", "--fd", str(number)],
            cwd=tmp_path,
            env={**os.environ, "DATABASE": any_url},
            pass_fds=[number],
        )
    try:
        yield process, f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


async def test_a_stop_ends_waits_and_streams_at_once(
    service: tuple[subprocess.Popen[bytes], str],
) -> None:
    process, address = service
    async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
        waiting = asyncio.create_task(client.get(f"{address}/wait?waitMs=30000"))
        async with client.stream("GET", f"{address}/holdfast/api/v1/live") as stream:
            lines = stream.aiter_lines()
            assert await anext(lines)
            await has_started(client, f"{address}/holdfast/api/v1/chains")
            asked = time.monotonic()
            process.send_signal(signal.SIGTERM)
            async for _ in lines:
                pass
        assert (await waiting).status_code == 202
        await asyncio.to_thread(process.wait, PATIENCE_S)
    assert time.monotonic() - asked < 15


async def has_started(client: httpx.AsyncClient, chains: str) -> None:
    """Wait until there is a chain; its request waits for it right after that."""
    while not (await client.get(chains)).json()["items"]:
        await breath()


@pytest.mark.parametrize(
    ("absence", "help"),
    [
        (
            "import holdfast.extensions; holdfast.extensions.find_extensions = tuple\n",
            "the dashboard is not installed",
        ),
        ("import sys; sys.modules['starlette'] = None\n", "needs starlette"),
    ],
)
def test_without_its_packages_the_error_says_what_to_install(absence: str, help: str) -> None:
    script = (
        f"{absence}"
        "from holdfast import Holdfast, HoldfastError\n"
        "try:\n"
        "    from holdfast.contrib.starlette import mount_dashboard\n"
        "    from starlette.applications import Starlette\n"
        "    mount_dashboard(Starlette(), Holdfast('sqlite:///x.db'))\n"
        "except HoldfastError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert f"{help} (pip install" in done.stdout
    assert 'holdfast-jobs[web]"' in done.stdout
