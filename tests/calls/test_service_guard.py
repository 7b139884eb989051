"""Service calls from a cycle to a real API: done once with the work, refused without token or key."""

import asyncio
import hmac
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest
from fastapi import Depends, FastAPI
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from holdfast import Holdfast
from holdfast.contrib.fastapi import problem_handler, session
from holdfast.core.errors import HoldfastError, InvalidOption
from holdfast.scheduler.cycle_run import CycleRun
from holdfast.settings import read_settings
from holdfast_calls import ServiceCall, ServiceClient, ServiceGuard, service_call
from holdfast_calls.errors import (
    CallAlreadyDone,
    IdempotencyKeyMissing,
    ServiceCallFailed,
    ServiceTokenUnset,
    ServiceTokenWrong,
)
from tests.contrib.conftest import ASYNC_DRIVERS, alchemy_url
from tests.support.serving import serve

TOKEN = "a-service-token-of-the-tests"
PATH = "/internal/invoices/reminders/run"


@pytest.fixture
def jobs(any_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Holdfast]:
    """A migrated application with a table of the work that was done."""
    monkeypatch.setenv("WORKER_API_SERVICE_TOKEN", TOKEN)
    app = Holdfast(any_url)
    app.migrate()
    with app.transaction() as tx:
        tx.execute("create table reminder (slot text)")
    yield app
    app.close()


@dataclass
class Work:
    """What the endpoint does: it waits for its permission, if it needs one, and may fail after the work."""

    begun: asyncio.Event
    go_on: asyncio.Event
    fails: bool = False


def api_of(jobs: Holdfast, any_url: str, work: Work | None = None, sync: bool = False) -> FastAPI:
    """An API with one guarded endpoint, whose transaction is a session of SQLAlchemy."""
    guard = ServiceGuard(jobs)
    api = FastAPI()
    insert = text("insert into reminder values (:slot)")

    if sync:
        engine = create_engine(alchemy_url(any_url), poolclass=NullPool)
        tx = session(sessionmaker(engine))
        guarded = service_call(guard, tx)

        def run_sync(call: ServiceCall = guarded, db: Session = tx) -> dict[str, int]:
            db.execute(insert, {"slot": call.key})
            return {"sent": 1}

        api.post(PATH)(run_sync)
        return api

    async_engine = create_async_engine(alchemy_url(any_url, ASYNC_DRIVERS), poolclass=NullPool)
    tx = session(async_sessionmaker(async_engine))
    guarded = service_call(guard, tx)

    async def run(call: ServiceCall = guarded, db: AsyncSession = tx) -> dict[str, int]:
        await db.execute(insert, {"slot": call.key})
        if work is not None:
            work.begun.set()
            await work.go_on.wait()
            if work.fails:
                work.fails = False
                raise RuntimeError("out of luck")
        return {"sent": 1}

    api.post(PATH)(run)
    return api


def done(jobs: Holdfast) -> list[str]:
    """The work that was committed."""
    with jobs.transaction() as tx:
        return [slot for (slot,) in tx.execute("select slot from reminder").fetchall()]


@pytest.mark.parametrize("sync", [False, True], ids=["async", "sync"])
def test_a_call_is_done_once_however_often_it_comes(
    jobs: Holdfast, any_url: str, sync: bool
) -> None:
    with serve(api_of(jobs, any_url, sync=sync)) as address:
        client = ServiceClient(address, TOKEN)
        assert client.call_sync(PATH, key="reminders:1", returns=dict[str, int]) == {"sent": 1}
        assert client.call_sync(PATH, key="reminders:1", returns=dict[str, int]) is None
        assert client.call_sync(PATH, key="reminders:2") == {"sent": 1}
        again = httpx.post(
            f"{address}{PATH}", headers={"X-Service-Token": TOKEN, "Idempotency-Key": "reminders:1"}
        )
    assert again.status_code == 409
    assert again.json()["detail"]["code"] == "HF088"
    assert sorted(done(jobs)) == ["reminders:1", "reminders:2"]


async def test_a_call_that_was_rolled_back_can_come_again(jobs: Holdfast, any_url: str) -> None:
    work = Work(asyncio.Event(), asyncio.Event(), fails=True)
    work.go_on.set()
    with serve(api_of(jobs, any_url, work)) as address:
        client = ServiceClient(address, TOKEN)
        with pytest.raises(ServiceCallFailed, match="got status 500: Internal Server Error"):
            await client.call(PATH, key="k")
        assert await client.call(PATH, key="k") == {"sent": 1}
        assert await client.call(PATH, key="k") is None
    assert done(jobs) == ["k"]


async def test_of_two_calls_at_once_one_works_and_the_other_finds_it_done(
    jobs: Holdfast, any_url: str
) -> None:
    """The API runs in this loop, so that the first call can be held in the middle of its work."""
    work = Work(asyncio.Event(), asyncio.Event())
    transport = httpx.ASGITransport(api_of(jobs, any_url, work))
    headers = {"X-Service-Token": TOKEN, "Idempotency-Key": "k"}
    async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
        first = asyncio.create_task(client.post(PATH, headers=headers))
        await work.begun.wait()
        second = asyncio.create_task(client.post(PATH, headers=headers))
        await asyncio.wait([second], timeout=0.3)
        assert not second.done()
        work.go_on.set()
        answers = sorted([(await each).status_code for each in (first, second)])
    assert answers == [200, 409]
    assert done(jobs) == ["k"]


def test_of_many_calls_at_once_from_many_callers_one_works(jobs: Holdfast, any_url: str) -> None:
    with serve(api_of(jobs, any_url)) as address, ThreadPoolExecutor(12) as callers:
        client = ServiceClient(address, TOKEN)
        answers = list(callers.map(lambda _: client.call_sync(PATH, key="k"), range(12)))
    assert [each for each in answers if each is not None] == [{"sent": 1}]
    assert done(jobs) == ["k"]


async def test_who_waited_for_a_call_that_was_rolled_back_does_the_work(
    jobs: Holdfast, any_url: str
) -> None:
    work = Work(asyncio.Event(), asyncio.Event(), fails=True)
    transport = httpx.ASGITransport(api_of(jobs, any_url, work), raise_app_exceptions=False)
    headers = {"X-Service-Token": TOKEN, "Idempotency-Key": "k"}
    async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
        first = asyncio.create_task(client.post(PATH, headers=headers))
        await work.begun.wait()
        second = asyncio.create_task(client.post(PATH, headers=headers))
        await asyncio.wait([second], timeout=0.3)
        work.go_on.set()
        answers = sorted([(await each).status_code for each in (first, second)])
    assert answers == [200, 500]
    assert done(jobs) == ["k"]


async def test_a_slot_whose_response_got_lost_completes_when_it_is_tried_again(
    jobs: Holdfast, any_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(api_of(jobs, any_url)) as address:
        monkeypatch.setenv("WORKER_API_BASE_URL", address)
        keys: list[str] = []

        @jobs.cycle("invoiceReminders", cron="0 0 1 1 *")
        async def reminders(run: CycleRun) -> None:
            answer = await ServiceClient.of().call(PATH, key=run.key, returns=dict[str, int])
            run.counts.processed += 0 if answer is None else answer["sent"]
            keys.append(run.key)
            if len(keys) == 1:
                raise ConnectionError("the response got lost")

        async def tick(later_s: int = 0) -> Any:
            assembly = jobs.assembly(read_settings({}))
            now = jobs.database.read(jobs.database.store.schema.clock()) + later_s * 1_000_000
            tick = replace(assembly, now=lambda: now).tick()
            try:
                return (await tick.run()).runner_results["invoiceReminders"]
            finally:
                await tick.close()

        await tick()
        with jobs.transaction() as tx:
            jobs.cycles.run_now(tx, "invoiceReminders")
        assert (await tick()).errors == 1
        assert (await tick(later_s=60)).errors == 0
    assert len(keys) == 2
    assert keys[0] == keys[1]
    assert done(jobs) == [keys[0]]
    newest, older = (await jobs.aio.cycles.runs("invoiceReminders"))[:2]
    assert (newest.outcome, older.outcome) == ("completed", "failed")
    assert newest.slot == older.slot
    await jobs.aclose()


REJECTED: list[tuple[dict[str, str], dict[str, str], int, str]] = [
    ({}, {"x-service-token": TOKEN, "idempotency-key": "k"}, 503, "HF085"),
    ({"WORKER_API_SERVICE_TOKEN": "  "}, {"x-service-token": "  "}, 503, "HF085"),
    ({"WORKER_API_SERVICE_TOKEN": TOKEN}, {"idempotency-key": "k"}, 401, "HF086"),
    ({"WORKER_API_SERVICE_TOKEN": TOKEN}, {"x-service-token": f"{TOKEN}x"}, 401, "HF086"),
    ({"WORKER_API_SERVICE_TOKEN": TOKEN}, {"x-service-token": TOKEN}, 400, "HF087"),
    (
        {"WORKER_API_SERVICE_TOKEN": TOKEN},
        {"x-service-token": TOKEN, "idempotency-key": "k" * 256},
        400,
        "HF087",
    ),
]


@pytest.mark.parametrize("handled", [False, True], ids=["without a handler", "with a handler"])
@pytest.mark.parametrize(("environ", "headers", "status", "code"), REJECTED)
async def test_a_call_without_a_valid_token_and_key_does_nothing(
    sqlite_url: str,
    monkeypatch: pytest.MonkeyPatch,
    environ: dict[str, str],
    headers: dict[str, str],
    status: int,
    code: str,
    handled: bool,
) -> None:
    monkeypatch.delenv("WORKER_API_SERVICE_TOKEN", raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    jobs = Holdfast(sqlite_url)
    opened: list[str] = []

    def open_transaction() -> str:
        opened.append("a transaction")
        return "a transaction"

    api = FastAPI()
    guarded = service_call(ServiceGuard(jobs), Depends(open_transaction))

    @api.post(PATH)
    async def run(call: ServiceCall = guarded) -> None:
        raise AssertionError("it was admitted")

    if handled:
        api.add_exception_handler(HoldfastError, problem_handler)
    transport = httpx.ASGITransport(api)
    async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
        response = await client.post(PATH, headers=headers)
    document = response.json() if handled else response.json()["detail"]
    assert (response.status_code, document["status"], document["code"]) == (status, status, code)
    assert document["help"]
    assert TOKEN not in response.text
    assert opened == []


def test_both_tokens_are_accepted_during_a_rotation(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, old = "the token of today", "the token of yesterday"
    monkeypatch.setenv("WORKER_API_SERVICE_TOKEN", new)
    monkeypatch.setenv("WORKER_API_SERVICE_TOKEN_PREVIOUS", old)
    jobs = Holdfast(sqlite_url)

    def admits(guard: ServiceGuard, token: str) -> bool:
        try:
            guard.admit({"X-Service-Token": token, "Idempotency-Key": "k"}, "POST /x")
        except ServiceTokenWrong:
            return False
        return True

    rotating = ServiceGuard(jobs)
    assert [admits(rotating, each) for each in (new, old, "older", "")] == [
        True,
        True,
        False,
        False,
    ]
    monkeypatch.delenv("WORKER_API_SERVICE_TOKEN_PREVIOUS")
    assert [admits(ServiceGuard(jobs), each) for each in (new, old)] == [True, False]
    given = ServiceGuard(jobs, tokens=["first", "second"])
    assert [admits(given, each) for each in ("first", "second", new)] == [True, True, False]


def test_a_guard_with_no_tokens_given_admits_nothing(sqlite_url: str) -> None:
    headers = {"x-service-token": "", "idempotency-key": "k"}
    for tokens in ([], [""], [" "]):
        with pytest.raises(ServiceTokenUnset):
            ServiceGuard(Holdfast(sqlite_url), tokens=tokens).admit(headers, "POST /x")
    with pytest.raises(InvalidOption, match="pass a list"):
        ServiceGuard(Holdfast(sqlite_url), tokens="token")


def test_without_a_framework_a_call_is_admitted_and_recorded_by_hand(jobs: Holdfast) -> None:
    guard = ServiceGuard(jobs)
    headers = {"X-SERVICE-TOKEN": TOKEN, "Idempotency-Key": "k"}
    call = guard.admit(headers, "POST /billing")
    with jobs.transaction() as tx:
        call.once(tx)
        tx.execute("insert into reminder values ('by hand')")
    repeated = guard.admit(headers, "POST /billing")
    with (
        pytest.raises(CallAlreadyDone, match="POST /billing was already done for the key 'k'"),
        jobs.transaction() as tx,
    ):
        repeated.once(tx)
    with jobs.transaction() as tx:
        guard.admit(headers, "POST /other").once(tx)
    with pytest.raises(IdempotencyKeyMissing):
        guard.admit({"x-service-token": TOKEN}, "POST /billing")


def test_the_time_of_a_comparison_does_not_depend_on_what_matches(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[int, int]] = []
    compare: Callable[[bytes, bytes], bool] = hmac.compare_digest

    def watched(mine: bytes, theirs: bytes) -> bool:
        compared.append((len(mine), len(theirs)))
        return compare(mine, theirs)

    monkeypatch.setattr(hmac, "compare_digest", watched)
    guard = ServiceGuard(Holdfast(sqlite_url), tokens=["one", "a-much-longer-token"])
    guard.admit({"x-service-token": "one", "idempotency-key": "k"}, "POST /x")
    with pytest.raises(ServiceTokenWrong):
        guard.admit({"x-service-token": "x", "idempotency-key": "k"}, "POST /x")
    assert compared == [(32, 32)] * 4
