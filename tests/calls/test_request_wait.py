"""A request that waits is answered when the result is there, accepted when it is not, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from uuid import UUID

import httpx
import pytest
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast import Chain, Holdfast, Job
from holdfast.client import waiting
from holdfast.contrib.starlette import lifespan
from holdfast.core.errors import InvalidOption, MissingExtra
from holdfast.observe.prometheus import PrometheusObserver
from holdfast.settings import load_settings
from holdfast.storage.id_generator import new_id
from holdfast_calls import Failed, Found, Ready, request_wait, wait_or_accept
from tests.support.serving import authorities, serve
from tests.support.until import PATIENCE_S, until

ABSENT = "0193a6f0-7c00-7000-8000-000000000000"


class Shop:
    """An application whose endpoints wait, and what its tests look at."""

    def __init__(self, jobs: Holdfast) -> None:
        self.jobs = jobs
        self.found: Found[str] = None
        self.looks = 0
        self.looked = threading.Event()
        self.key: str | None = None
        self.with_chain = True

    async def look(self) -> Found[str]:
        self.looks += 1
        self.looked.set()
        return self.found

    def start(self) -> Chain:
        with self.jobs.transaction() as tx:
            return self.jobs.start(tx, "report")

    async def chain(self, request: Request) -> Response:
        """Wait for a chain alone."""
        waited = await wait_or_accept(request, self.jobs, request.path_params["id"])
        return waited.response(
            ready=lambda output: {"status": "READY", "output": output},
            failed=lambda error: {"error": error.code},
        )

    async def condition(self, request: Request) -> Response:
        """Wait until a look finds something, woken by a chain if there is one."""
        id = request.path_params["id"] if self.with_chain else None
        waited = await wait_or_accept(request, self.jobs, id, look=self.look, key=self.key)
        return waited.response(
            ready=lambda url: {"status": "READY", "downloadUrl": url},
            failed={"error": "RENDER_FAILED"},
        )

    @property
    def chain_waiters(self) -> int:
        return len(self.jobs.aio.chains._waiting._waiters)

    @property
    def watches(self) -> int:
        return sum(len(each) for each in request_wait._WATCHES.values())

    @property
    def served(self) -> Starlette:
        return Starlette(
            routes=[Route("/chain/{id}", self.chain), Route("/condition/{id}", self.condition)],
            lifespan=lifespan(self.jobs),
        )


@pytest.fixture
def shop(any_url: str) -> Iterator[Shop]:
    jobs = Holdfast(any_url, open_types=True)
    jobs.migrate()
    yield Shop(jobs)
    jobs.close()


@pytest.fixture
def address(shop: Shop) -> Iterator[str]:
    with serve(shop.served) as address:
        yield address


@pytest.fixture
async def client(address: str) -> AsyncIterator[httpx.AsyncClient]:
    limits = httpx.Limits(max_connections=200)
    async with httpx.AsyncClient(
        base_url=address, timeout=PATIENCE_S, limits=limits, verify=authorities()
    ) as client:
        yield client


@pytest.fixture
def no_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look only when there is a reason to."""
    monkeypatch.setattr(request_wait, "SHORTEST_S", 600.0)
    monkeypatch.setattr(request_wait, "MAX_PAUSE_S", 600.0)


def complete(shop: Shop, chain: Chain, output: Any = None) -> None:
    with shop.jobs.transaction() as tx:
        shop.jobs.chains.complete(tx, chain.id, output)


def fail(shop: Shop, chain: Chain) -> None:
    with shop.jobs.transaction() as tx:
        shop.jobs.chains.cancel(tx, chain.id, "not wanted")


async def test_a_chain_that_ends_in_time_is_answered_with_its_output(
    shop: Shop, client: httpx.AsyncClient
) -> None:
    chain = shop.start()
    asking = asyncio.create_task(client.get(f"/chain/{chain.id}?waitMs=30000"))
    await until(lambda: shop.chain_waiters)
    await asyncio.to_thread(complete, shop, chain, {"n": 1})
    answer = await asking
    assert (answer.status_code, answer.json()) == (200, {"status": "READY", "output": {"n": 1}})
    assert shop.chain_waiters == 0


async def test_waiting_requests_are_counted_and_measured(
    shop: Shop, client: httpx.AsyncClient
) -> None:
    registry = CollectorRegistry()
    shop.jobs.observe(PrometheusObserver(registry))
    chain = shop.start()

    def waiting() -> float | None:
        return registry.get_sample_value("holdfast_request_waiting")

    answers = [asyncio.create_task(client.get(f"/chain/{chain.id}")) for _ in range(3)]
    await until(lambda: waiting() == 3)
    complete(shop, chain)
    await asyncio.gather(*answers)
    await client.get(f"/chain/{ABSENT}")
    await client.get(f"/chain/{shop.start().id}?waitMs=0")
    assert waiting() == 0
    count = "holdfast_request_wait_duration_seconds_count"
    found = {
        state: registry.get_sample_value(count, {"state": state})
        for state in ("ready", "rejected", "pending")
    }
    assert found == {"ready": 3, "rejected": 1, "pending": 1}


async def test_a_chain_that_does_not_is_accepted_with_when_to_ask_again(
    shop: Shop, client: httpx.AsyncClient
) -> None:
    answer = await client.get(f"/chain/{shop.start().id}?waitMs=1")
    assert answer.status_code == 202
    assert answer.headers["Retry-After"] == "1"
    assert answer.json() == {"status": "PENDING", "retryAfterMs": 1000}


async def test_a_chain_that_failed_is_answered_so_with_and_without_time(
    shop: Shop, client: httpx.AsyncClient
) -> None:
    chain = shop.start()
    fail(shop, chain)
    for wait in ("0", "15000"):
        answer = await client.get(f"/chain/{chain.id}?waitMs={wait}")
        assert (answer.status_code, answer.json()) == (422, {"error": "HF063"})


@pytest.mark.parametrize(
    ("id", "status", "code"), [(ABSENT, 404, "HF060"), ("nonsense", 400, "HF072")]
)
@pytest.mark.parametrize("path", ["chain", "condition"])
async def test_a_chain_that_does_not_exist_is_a_problem(
    client: httpx.AsyncClient, path: str, id: str, status: int, code: str
) -> None:
    answer = await client.get(f"/{path}/{id}")
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers["Content-Type"] == "application/problem+json"


@pytest.mark.usefixtures("no_polls")
async def test_the_end_of_the_chain_leads_to_a_look(shop: Shop, client: httpx.AsyncClient) -> None:
    chain = shop.start()
    asking = asyncio.create_task(client.get(f"/condition/{chain.id}?waitMs=30000"))
    await until(lambda: shop.looks and shop.chain_waiters)
    shop.found = Ready("https://files.example/7.pdf")
    await asyncio.to_thread(complete, shop, chain)
    answer = await asking
    assert answer.status_code == 200
    assert answer.json() == {"status": "READY", "downloadUrl": "https://files.example/7.pdf"}
    assert (shop.watches, shop.chain_waiters) == (0, 0)


async def test_a_condition_is_found_by_looking_when_no_chain_ends(
    shop: Shop, client: httpx.AsyncClient
) -> None:
    shop.with_chain = False
    asking = asyncio.create_task(client.get("/condition/any?waitMs=30000"))
    await until(lambda: shop.looks)
    shop.found = Ready("there")
    assert (await asking).json()["downloadUrl"] == "there"


async def test_a_failure_counts_only_when_the_chain_has_ended(
    shop: Shop, client: httpx.AsyncClient
) -> None:
    chain = shop.start()
    shop.found = Failed("the last attempt failed, the next may not")
    assert (await client.get(f"/condition/{chain.id}?waitMs=300")).status_code == 202
    fail(shop, chain)
    answer = await client.get(f"/condition/{chain.id}?waitMs=15000")
    assert (answer.status_code, answer.json()) == (422, {"error": "RENDER_FAILED"})


async def test_without_a_chain_a_failure_counts_at_once(
    shop: Shop, client: httpx.AsyncClient
) -> None:
    shop.with_chain, shop.found = False, Failed()
    assert (await client.get("/condition/any")).status_code == 422


async def test_a_chain_that_failed_fails_a_condition_that_says_nothing(
    shop: Shop, client: httpx.AsyncClient
) -> None:
    chain = shop.start()
    fail(shop, chain)
    assert (await client.get(f"/condition/{chain.id}?waitMs=15000")).status_code == 422


@pytest.mark.parametrize("wait_ms", [0, 1])
@pytest.mark.parametrize("found", [None, Failed("the last attempt failed")])
async def test_a_failed_chain_is_seen_without_time_to_wait(
    shop: Shop, client: httpx.AsyncClient, found: Found[str], wait_ms: int
) -> None:
    shop.found, chain = found, shop.start()
    fail(shop, chain)
    answer = await client.get(f"/condition/{chain.id}?waitMs={wait_ms}")
    assert (answer.status_code, answer.json()) == (422, {"error": "RENDER_FAILED"})


async def test_a_chain_that_is_missing_is_seen_without_time_to_wait(
    shop: Shop, client: httpx.AsyncClient
) -> None:
    answer = await client.get(f"/condition/{ABSENT}?waitMs=0")
    assert (answer.status_code, answer.json()["code"]) == (404, "HF060")


@pytest.mark.usefixtures("no_polls")
async def test_a_request_that_joins_sees_that_the_chain_has_failed(
    shop: Shop, any_url: str, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "MIN_PAUSE_S", 600.0)
    monkeypatch.setattr(waiting, "MAX_PAUSE_S", 600.0)
    shop.key, chain = "invoice:7", shop.start()
    first = asyncio.create_task(client.get(f"/condition/{chain.id}?waitMs=30000"))
    await until(lambda: shop.jobs.aio.chains._waiting._seen)
    elsewhere = Holdfast(any_url, notifier="none")
    with elsewhere.transaction() as tx:
        elsewhere.chains.cancel(tx, chain.id, "not wanted")
    elsewhere.close()
    assert (await client.get(f"/condition/{chain.id}?waitMs=0")).status_code == 422
    assert (await first).status_code == 422


async def test_a_result_outlives_the_chain_that_made_it(
    shop: Shop, client: httpx.AsyncClient
) -> None:
    shop.found = Ready("kept")
    assert (await client.get(f"/condition/{new_id()}")).json()["downloadUrl"] == "kept"


async def test_no_time_to_wait_is_still_time_to_look(shop: Shop, client: httpx.AsyncClient) -> None:
    chain = shop.start()
    complete(shop, chain, "done")
    assert (await client.get(f"/chain/{chain.id}?waitMs=0")).json()["output"] == "done"
    assert (await client.get(f"/condition/{chain.id}?waitMs=0")).status_code == 202
    looks = shop.looks
    assert looks >= 1
    shop.found = Ready("there")
    assert (await client.get(f"/condition/{chain.id}?waitMs=0")).status_code == 200
    assert shop.looks > looks


@pytest.mark.parametrize(
    "query",
    [
        "waitMs=abc",
        "waitMs=-1",
        "waitMs=",
        "waitMs=1.5",
        "waitMs=1e3",
        "waitMs=%D9%A3",
        "waitMs=+5",
        "waitMs=%205",
        "waitMs=1&waitMs=2",
        "waitMs=null",
    ],
)
async def test_what_is_no_number_of_milliseconds_is_refused_with_its_fix(
    shop: Shop, client: httpx.AsyncClient, query: str
) -> None:
    headers = {"X-Request-Id": "from-the-proxy"}
    answer = await client.get(f"/condition/{shop.start().id}?{query}", headers=headers)
    assert answer.status_code == 400
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem = answer.json()
    assert (problem["code"], problem["status"]) == ("HF074", 400)
    assert problem["detail"].startswith("waitMs is '")
    assert "more than 30000 counts as 30000" in problem["help"]
    assert problem["request_id"] == "from-the-proxy"
    assert shop.looks == 0


@pytest.mark.parametrize(("query", "status", "started"), [("abc", 400, 0), ("0", 202, 1)])
async def test_work_is_started_only_once_the_request_has_been_checked(
    shop: Shop, query: str, status: int, started: int
) -> None:
    async def start() -> Chain:
        async with shop.jobs.transaction() as tx:
            return await shop.jobs.start(tx, "report")

    async def fetch(request: Request) -> Response:
        return (await wait_or_accept(request, shop.jobs, start)).response()

    served = Starlette(routes=[Route("/report", fetch)], lifespan=lifespan(shop.jobs))
    with serve(served) as address:
        async with httpx.AsyncClient(base_url=address, timeout=PATIENCE_S) as client:
            answer = await client.get(f"/report?waitMs={query}")
            assert answer.status_code == status
    assert len(shop.jobs.jobs.list()) == started


@pytest.mark.parametrize(
    ("query", "wait_ms"),
    [
        ("", 15_000),
        ("waitMs=0", 0),
        ("waitMs=000250", 250),
        ("waitMs=30000", 30_000),
        ("waitMs=30001", 30_000),
        (f"waitMs={'9' * 5000}", 30_000),
    ],
)
def test_waits_have_a_default_and_a_limit(query: str, wait_ms: int) -> None:
    request = Request({"type": "http", "query_string": query.encode(), "headers": []})
    assert (
        request_wait._milliseconds(request, None, request_wait.DEFAULT_MS, request_wait.MAX_MS)
        == wait_ms
    )


def test_the_default_and_the_limit_can_be_others() -> None:
    request = Request({"type": "http", "query_string": b"", "headers": []})
    assert request_wait._milliseconds(request, None, 200, 500) == 200
    assert request_wait._milliseconds(request, 900, 200, 500) == 500
    assert request_wait._milliseconds(request, "40", 200, 500) == 40


async def test_what_makes_no_sense_is_refused(shop: Shop) -> None:
    request = Request({"type": "http", "query_string": b"", "headers": []})
    for wrong in (
        {},
        {"chain": new_id()},
        {"jobs": shop.jobs, "chain": new_id(), "key": "7"},
        {"look": shop.look, "default_ms": 40_000},
        {"look": shop.look, "retry_after_ms": -1},
    ):
        with pytest.raises(InvalidOption):
            await wait_or_accept(request, **wrong)


async def test_requests_with_one_key_share_their_looks(
    shop: Shop, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_wait, "SHORTEST_S", 600.0)
    shop.key, chain = "invoice:7", shop.start()
    asking = [
        asyncio.create_task(client.get(f"/condition/{chain.id}?waitMs=30000")) for _ in range(100)
    ]
    await until(lambda: sum(len(each._looks) for each in _all_watches()) == 100)
    assert shop.watches == 1
    assert shop.looks <= 100
    before = shop.looks
    shop.found = Ready("there")
    await asyncio.to_thread(complete, shop, chain)
    answers = await asyncio.gather(*asking)
    assert {each.status_code for each in answers} == {200}
    assert shop.looks <= before + 2
    assert (shop.watches, shop.chain_waiters) == (0, 0)


async def test_a_hundred_things_that_are_waited_for_are_looked_at_twenty_times_a_second() -> None:
    looks: list[float] = []
    loop = asyncio.get_running_loop()

    async def look() -> Found[str]:
        looks.append(loop.time())
        return None

    waits = [
        asyncio.create_task(request_wait._find(None, None, look, None, 3.0)) for _ in range(100)
    ]
    await asyncio.gather(*waits)
    assert 100 <= len(looks) <= 100 + 3 * request_wait.LOOKS_PER_S


async def test_the_pauses_between_looks_grow_to_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def pause(self: request_wait.SharedLook[str], seconds: float) -> bool:
        pauses.append(seconds)
        await asyncio.sleep(0)
        return False

    async def look() -> Found[str]:
        return Ready("found") if len(pauses) == 10 else None

    monkeypatch.setattr(request_wait.SharedLook, "_pause", pause)
    assert await request_wait._find(None, None, look, None, 20.0) is not None
    assert pauses[:3] == pytest.approx([0.1, 0.15, 0.225])
    assert pauses == sorted(pauses)
    assert pauses[-2:] == [1.0, 1.0]


async def test_a_request_that_joins_is_not_answered_from_an_older_look() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    found: Found[str] = None

    async def look() -> Found[str]:
        seen = found
        begun.set()
        await go_on.wait()
        return seen

    first = asyncio.create_task(request_wait._find(None, None, look, "key", 20.0))
    await begun.wait()
    found = Ready("since")
    second = asyncio.create_task(request_wait._find(None, None, look, "key", 0.0))
    await asyncio.sleep(0)
    go_on.set()
    assert await second == Ready("since")
    assert await first == Ready("since")


async def test_what_a_look_raises_reaches_all_who_wait() -> None:
    async def look() -> Found[str]:
        raise LookupError("no table")

    waits = [request_wait._find(None, None, look, "key", 5.0) for _ in range(3)]
    raised = await asyncio.gather(*waits, return_exceptions=True)
    assert [type(each) for each in raised] == [LookupError] * 3
    assert not request_wait._WATCHES[asyncio.get_running_loop()]


def _all_watches() -> list[request_wait.SharedLook[Any]]:
    return [each for watches in request_wait._WATCHES.values() for each in list(watches.values())]


class Leaver:
    """A client with a socket of its own, which it may drop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def ask(cls, address: str, path: str) -> Leaver:
        url = httpx.URL(address)
        reader, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {url.host}\r\n\r\n".encode())
        await writer.drain()
        return cls(reader, writer)

    async def leave(self) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()


@pytest.mark.parametrize("path", ["chain", "condition"])
async def test_a_client_that_disconnects_leaves_nothing_behind(
    shop: Shop, address: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_wait, "MAX_PAUSE_S", 0.1)
    chain = shop.start()
    reads = count_reads(shop.jobs)
    leaver = await Leaver.ask(address, f"/{path}/{chain.id}?waitMs=30000")
    await until(lambda: shop.chain_waiters)
    await until(lambda: path == "chain" or shop.looks > 1)
    await leaver.leave()
    await until(lambda: shop.chain_waiters == 0 and shop.watches == 0)
    await until(lambda: shop.jobs.aio.chains._waiting._thread is None)
    looks, asked = shop.looks, reads()
    # So long that a request which still waited would have looked twice.
    await asyncio.sleep(2.5 * request_wait.MAX_PAUSE_S)
    assert (shop.looks, reads()) == (looks, asked)


async def test_behind_a_middleware_too(shop: Shop) -> None:
    async def nothing(request: Request, call_next: RequestResponseEndpoint) -> Response:
        return await call_next(request)

    served = Starlette(
        routes=[Route("/chain/{id}", shop.chain)],
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=nothing)],
        lifespan=lifespan(shop.jobs),
    )
    with serve(served) as address:
        leaver = await Leaver.ask(address, f"/chain/{shop.start().id}?waitMs=30000")
        await until(lambda: shop.chain_waiters)
        await leaver.leave()
        await until(lambda: shop.chain_waiters == 0)


async def test_one_who_leaves_takes_nothing_from_those_who_stay(
    shop: Shop, address: str, client: httpx.AsyncClient
) -> None:
    shop.key, chain = "invoice:7", shop.start()
    leaver = await Leaver.ask(address, f"/condition/{chain.id}?waitMs=30000")
    await until(lambda: shop.watches)
    staying = asyncio.create_task(client.get(f"/condition/{chain.id}?waitMs=30000"))
    await until(lambda: len(_all_watches()[0]._looks) == 2)
    await leaver.leave()
    await until(lambda: len(_all_watches()[0]._looks) == 1)
    shop.found = Ready("there")
    assert (await staying).status_code == 200


async def test_fifty_requests_at_once_are_one_job_and_fifty_answers(any_url: str) -> None:
    jobs, runs, asked = Holdfast(any_url), 0, 0

    @jobs.job("report")
    async def report(job: Job[int]) -> str:
        nonlocal runs
        runs += 1
        await until(lambda: asked == 50)
        return f"report {job.input}"

    async def fetch(request: Request) -> Response:
        nonlocal asked
        async with jobs.transaction() as tx:
            chain = await jobs.start(tx, report, 7, key="report:7", scope="any")
        asked += 1
        waited = await wait_or_accept(request, jobs, chain)
        return waited.response(ready=lambda output: {"report": output, "chain": str(chain.id)})

    jobs.migrate()
    served = Starlette(routes=[Route("/report", fetch)], lifespan=lifespan(jobs))
    with running_worker(), serve(served) as address:
        limits = httpx.Limits(max_connections=50)
        async with httpx.AsyncClient(timeout=PATIENCE_S, limits=limits) as client:
            answers = await asyncio.gather(*(client.get(f"{address}/report") for _ in range(50)))
    assert [each.status_code for each in answers] == [200] * 50
    assert {each.json()["report"] for each in answers} == {"report 7"}
    assert len({each.json()["chain"] for each in answers}) == 1
    assert runs == 1
    jobs.close()


@contextlib.contextmanager
def running_worker() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OUTBOX_WORKER_ENABLED", "true")
        assert load_settings().embedded.enabled
        yield


def count_reads(jobs: Holdfast) -> Callable[[], int]:
    """Count the reads of an application's database from now on."""
    count, read = 0, jobs.database.read

    def counted(*given: Any, **named: Any) -> Any:
        nonlocal count
        count += 1
        return read(*given, **named)

    jobs.database.read = counted  # type: ignore[method-assign]
    return lambda: count


def test_values_of_many_kinds_become_json() -> None:
    from pydantic import BaseModel

    class Invoice(BaseModel):
        total: int

    id = UUID(new_id())
    waited = request_wait.Waited("ready", value=Invoice(total=7))
    answer = waited.response(ready=lambda value: {"id": id, "invoice": value})
    assert bytes(answer.body) == b'{"id":"%b","invoice":{"total":7}}' % str(id).encode()
    assert bytes(waited.response().body) == b'{"total":7}'


def test_without_starlette_the_error_names_the_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "starlette.requests", None)
    monkeypatch.delitem(sys.modules, request_wait.__name__)
    with pytest.raises(MissingExtra, match=r'pip install "holdfast-jobs\[calls,web\]"'):
        importlib.import_module(request_wait.__name__)
