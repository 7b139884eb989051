"""Transactions as FastAPI's dependencies: what the client reads is committed, and a failed commit is a failure."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Depends, FastAPI, HTTPException, Request, Response
from sqlalchemy import Engine, NullPool, create_engine, event, text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from holdfast import Holdfast, HoldfastError, Job
from holdfast.admin.access import Principal, Role
from holdfast.contrib import fastapi as module
from holdfast.contrib.fastapi import (
    AsyncTransaction,
    lifespan,
    mount_dashboard,
    problem_handler,
    session,
    transaction,
)
from holdfast.core.errors import InvalidOption, MissingExtra, UnsupportedConnection
from holdfast_calls import WaitMs, wait_or_accept
from holdfast_testing.kit import Kit
from tests.contrib.conftest import ASYNC_DRIVERS, alchemy_url
from tests.support.serving import serve
from tests.support.until import PATIENCE_S

TABLES = (
    "create table customers (id integer primary key)",
    "create table orders (id integer primary key, customer integer "
    "references customers (id) deferrable initially deferred)",
)
CUSTOMER, NOBODY = 1, 404
INSERT = "insert into orders values (1, {})"


@pytest.fixture
def jobs(any_url: str) -> Iterator[Holdfast]:
    jobs = Holdfast(any_url, open_types=True)
    jobs.migrate()
    with jobs.transaction() as tx:
        for each in (*TABLES, "insert into customers values (1)"):
            tx.execute(each)
    yield jobs
    jobs.close()


@pytest.fixture
def engine(any_url: str) -> Iterator[Engine]:
    engine = create_engine(alchemy_url(any_url))
    check_references(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def sessions(any_url: str) -> async_sessionmaker[AsyncSession]:
    engine = create_async_engine(alchemy_url(any_url, ASYNC_DRIVERS), poolclass=NullPool)
    check_references(engine.sync_engine)
    return async_sessionmaker(engine)


def check_references(engine: Engine) -> None:
    """SQLite checks references only if asked to."""
    if engine.dialect.name == "sqlite":
        event.listen(
            engine, "connect", lambda driver, _: driver.execute("pragma foreign_keys = on")
        )


@pytest.fixture
def api(jobs: Holdfast, engine: Engine, sessions: async_sessionmaker[AsyncSession]) -> FastAPI:
    """Endpoints that insert an order and start its job in each kind of transaction."""
    api = FastAPI(lifespan=lifespan(jobs), exception_handlers={HoldfastError: problem_handler})

    @api.post("/own/{customer}", status_code=202)
    async def own(
        customer: int, tx: Annotated[AsyncTransaction, transaction(jobs)], refuse: bool = False
    ) -> str:
        await tx.execute(INSERT.format(customer))
        await jobs.start(tx, "order.charge")
        if customer == NOBODY and "sqlite" in type(tx).__module__:
            # Our own connections to SQLite check no references; this commit fails in another way.
            await tx.execute("rollback")
        if refuse:
            raise HTTPException(409)
        return "accepted"

    @api.post("/async/{customer}", status_code=202)
    async def in_async_session(
        customer: int, db: Annotated[AsyncSession, session(sessions)], refuse: bool = False
    ) -> str:
        await db.execute(text(INSERT.format(customer)))
        await jobs.start(db, "order.charge")
        if refuse:
            raise HTTPException(409)
        return "accepted"

    @api.post("/sync/{customer}", status_code=202)
    def in_session(
        customer: int, db: Annotated[Session, session(sessionmaker(engine))], refuse: bool = False
    ) -> str:
        db.execute(text(INSERT.format(customer)))
        jobs.start(db, "order.charge")
        if refuse:
            raise HTTPException(409)
        return "accepted"

    return api


@pytest.fixture
def client(api: FastAPI) -> Iterator[httpx.Client]:
    with serve(api) as address, httpx.Client(base_url=address, timeout=PATIENCE_S) as client:
        yield client


def written(jobs: Holdfast) -> tuple[int, int]:
    """How many orders and jobs there are."""
    with jobs.transaction() as tx:
        orders: int = tx.execute("select count(*) from orders").fetchone()[0]
    return orders, len(list(jobs.jobs.list()))


KINDS = pytest.mark.parametrize("kind", ["own", "async", "sync"])


@KINDS
def test_what_the_client_reads_has_been_committed(
    client: httpx.Client, jobs: Holdfast, kind: str
) -> None:
    with client.stream("POST", f"/{kind}/{CUSTOMER}") as answer:
        # The first byte is enough: by then the commit is over.
        assert answer.status_code == 202
        assert written(jobs) == (1, 1)


@KINDS
def test_a_commit_that_fails_is_not_answered_with_success(
    client: httpx.Client, jobs: Holdfast, kind: str
) -> None:
    assert client.post(f"/{kind}/{NOBODY}").status_code == 500
    assert written(jobs) == (0, 0)


@KINDS
def test_an_exception_rolls_back(client: httpx.Client, jobs: Holdfast, kind: str) -> None:
    assert client.post(f"/{kind}/{CUSTOMER}?refuse=true").status_code == 409
    assert written(jobs) == (0, 0)


def test_a_request_has_one_transaction_however_often_it_is_named(
    jobs: Holdfast, sessions: async_sessionmaker[AsyncSession]
) -> None:
    api = FastAPI(lifespan=lifespan(jobs))

    def nested(db: Annotated[AsyncSession, session(sessions)]) -> int:
        return id(db)

    @api.get("/")
    async def same(
        db: Annotated[AsyncSession, session(sessions)], inner: Annotated[int, Depends(nested)]
    ) -> bool:
        return id(db) == inner

    with serve(api) as address:
        assert httpx.get(address, timeout=PATIENCE_S).json() is True


def test_openapi_shows_how_long_one_may_wait(jobs: Holdfast) -> None:
    api = FastAPI(lifespan=lifespan(jobs))

    @api.get("/{id}")
    async def fetch(request: Request, id: str, wait: WaitMs = None) -> Response:
        return (await wait_or_accept(request, jobs, id, wait_ms=wait)).response()

    (parameter,) = [
        each
        for each in api.openapi()["paths"]["/{id}"]["get"]["parameters"]
        if each["in"] == "query"
    ]
    assert parameter["name"] == "waitMs"
    assert parameter["schema"]["minimum"] == 0
    assert "maximum" not in parameter["schema"]
    assert "by default 15,000" in parameter["description"]
    assert "more than 30,000 counts as 30,000" in parameter["description"]
    with serve(api) as address:
        above = httpx.get(f"{address}/{jobs.new_id()}?waitMs=99999", timeout=PATIENCE_S)
        assert (above.status_code, above.json()["code"]) == (404, "HF060")
        answer = httpx.get(f"{address}/{jobs.new_id()}?waitMs=-5", timeout=PATIENCE_S)
    assert (answer.status_code, answer.json()["code"]) == (400, "HF074")


def test_our_errors_are_problem_documents_where_the_handler_is_set(
    api: FastAPI, jobs: Holdfast
) -> None:
    @api.get("/chains/{id}")
    async def find(id: str) -> str:
        return (await jobs.aio.chains.get(id)).state

    with serve(api) as address:
        answer = httpx.get(f"{address}/chains/{jobs.new_id()}", timeout=PATIENCE_S)
    assert (answer.status_code, answer.json()["code"]) == (404, "HF060")
    assert answer.headers["Content-Type"] == "application/problem+json"


def test_the_dashboard_is_for_the_applications_own_users(jobs: Holdfast) -> None:
    with jobs.transaction() as tx:
        jobs.start(tx, "order.charge")
    api = FastAPI(lifespan=lifespan(jobs))
    roles = {"ana": Role.OPERATOR, "ben": Role.VIEWER, "eve": Role.USER}

    async def who_asks(request: Request) -> Principal | None:
        user = request.cookies.get("user")
        return None if user is None else Principal(user, roles[user])

    mount_dashboard(api, jobs, "/ops", authenticate=who_asks, sign_in_url="/login?from=ops")
    with serve(api) as address:
        pause = f"{address}/ops/api/v1/types/order.charge/pause"
        nobody, viewer, operator, user = (
            httpx.Client(timeout=PATIENCE_S, cookies={"user": name} if name else {})
            for name in (None, "ben", "ana", "eve")
        )
        with nobody, viewer, operator, user:
            for path in ("/ops/api/v1/jobs", "/ops/api/v1/overview"):
                answers = [each.get(address + path) for each in (nobody, user, viewer, operator)]
                assert [each.status_code for each in answers] == [401, 403, 200, 200]
            away = nobody.get(f"{address}/ops/jobs?state=pending")
            assert away.status_code == 303
            assert (
                away.headers["Location"] == "/login?from=ops&next=%2Fops%2Fjobs%3Fstate%3Dpending"
            )
            assert user.get(f"{address}/ops/jobs").status_code == 403
            assert "order.charge" in viewer.get(f"{address}/ops/jobs").text
            assert [
                each.post(pause, json={}).status_code for each in (nobody, viewer, operator)
            ] == [401, 403, 200]
    (done,) = jobs.database.read(jobs.database.store.audit.page(10))
    assert (done.actor, done.action) == ("ana", "type.pause")


def test_a_sign_in_that_nothing_recognizes_is_refused(jobs: Holdfast) -> None:
    with pytest.raises(InvalidOption, match="sign_in_url has no effect") as refused:
        mount_dashboard(FastAPI(), jobs, sign_in_url="/login")
    assert "authenticate=" in refused.value.help


def test_what_makes_no_sessions_is_refused(engine: Engine) -> None:
    for wrong in (engine, Session, None):
        with pytest.raises(UnsupportedConnection, match="not a sessionmaker"):
            session(wrong)  # type: ignore[arg-type]


def test_a_fastapi_that_would_commit_too_late_is_refused(
    jobs: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    def old_depends(dependency: Any = None, *, use_cache: bool = True) -> Any:
        return dependency

    monkeypatch.setattr(module, "Depends", old_depends)
    monkeypatch.setattr(module, "fastapi_version", "0.118.0")
    with pytest.raises(MissingExtra, match=r"this is 0\.118\.0") as raised:
        transaction(jobs)
    assert "fastapi>=0.121" in raised.value.help


def test_without_fastapi_the_error_says_what_to_install() -> None:
    script = (
        "import sys; sys.modules['fastapi'] = None\n"
        "from holdfast.errors import MissingExtra\n"
        "try:\n    import holdfast.contrib.fastapi\n"
        "except MissingExtra as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == (
        "[HF012] holdfast.contrib.fastapi needs FastAPI (pip install fastapi)"
    )


@pytest.mark.parametrize("kind", ["own", "async", "sync"])
def test_a_request_starts_and_signals_durable_functions(
    jobs: Holdfast,
    engine: Engine,
    sessions: async_sessionmaker[AsyncSession],
    any_url: str,
    kind: str,
) -> None:
    async def reserve(order: int) -> str:
        return f"reserved {order}"

    @jobs.job("order.approve")
    async def approve(job: Job[int]) -> str:
        reserved = await job.step("reserve", reserve, job.input)
        return f"{reserved}, {await job.wait_for('approved', key=job.input, returns=str)}"

    api = FastAPI(lifespan=lifespan(jobs))
    dependency: Any = {
        "own": transaction(jobs),
        "async": session(sessions),
        "sync": session(sessionmaker(engine)),
    }[kind]

    if kind == "sync":

        @api.post("/orders/{id}")
        def place_sync(id: int, db: Annotated[Session, dependency]) -> str:
            return str(jobs.start(db, approve, id).id)

        @api.post("/orders/{id}/approval")
        def approve_sync(id: int, db: Annotated[Session, dependency], refuse: bool = False) -> bool:
            sent = jobs.signal(db, "approved", key=id, data="approved", id="click")
            if refuse:
                raise HTTPException(409)
            return sent
    else:

        @api.post("/orders/{id}")
        async def place(id: int, db: Annotated[Any, dependency]) -> str:
            return str((await jobs.start(db, approve, id)).id)

        @api.post("/orders/{id}/approval")
        async def send(id: int, db: Annotated[Any, dependency], refuse: bool = False) -> bool:
            sent: bool = await jobs.signal(db, "approved", key=id, data="approved", id="click")
            if refuse:
                raise HTTPException(409)
            return sent

    with serve(api) as address, httpx.Client(base_url=address, timeout=PATIENCE_S) as client:
        id = client.post("/orders/7").json()
        assert client.post("/orders/7/approval?refuse=true").status_code == 409
        kit = Kit(jobs, any_url)
        kit.run_until_idle()
        assert jobs.chains.get(id).state == "blocked"
        assert client.post("/orders/7/approval").json() is True
        assert client.post("/orders/7/approval").json() is False
        kit.run_until_idle()
        assert jobs.chains.get(id).output == "reserved 7, approved"
        kit.close()
