"""Context that travels: captured at start, restored for handlers, inherited by what they start, on both databases."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any

import pytest

from holdfast import Continue, Holdfast, Job, Retry
from holdfast.core.errors import ContextInvalid
from holdfast_context import TravelContext, add_context
from holdfast_context.errors import ContextDeclared, ContextNotEntered
from holdfast_testing.kit import Kit
from tests.support.laws import check_rows

TENANT: ContextVar[str | None] = ContextVar("tenant", default=None)


@contextmanager
def as_tenant(tenant: str | None) -> Iterator[None]:
    token = TENANT.set(tenant)
    try:
        yield
    finally:
        TENANT.reset(token)


@asynccontextmanager
async def as_tenant_async(tenant: str) -> AsyncIterator[None]:
    with as_tenant(tenant):
        yield


def capture() -> dict[str, str]:
    tenant = TENANT.get()
    return {} if tenant is None else {"tenant": tenant, "locale": "es"}


class TravelScene:
    """An application whose handlers note the tenant that they were called in."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.app = Holdfast(url)
        self.begun: list[tuple[str, str]] = []
        self.context: TravelContext = add_context(
            self.app,
            capture=capture,
            enter=lambda context: as_tenant(context["tenant"]),
            begin=self.begin,
        )
        self.seen: list[tuple[str, str | None, dict[str, str]]] = []
        self.kit = Kit(self.app, url)

    def begin(self, tx: Any, context: Any) -> None:
        self.begun.append((type(tx).__name__, context["tenant"]))

    def note(self, job: Job[Any]) -> None:
        self.seen.append((job.type, TENANT.get(), job.context))

    def start(
        self, type: str, input: Any = None, tenant: str | None = "acme", **options: Any
    ) -> Any:
        with as_tenant(tenant), self.app.transaction() as tx:
            return self.app.start(tx, type, input, **options)

    def tenants(self) -> list[tuple[str, str | None]]:
        return [(type, tenant) for type, tenant, _ in self.seen]

    def close(self) -> None:
        check_rows(self.app.database)
        self.kit.close()
        self.app.close()


@pytest.fixture(params=["postgres", "sqlite"])
def scene(request: pytest.FixtureRequest) -> Iterator[TravelScene]:
    """An application on either database."""
    scene = TravelScene(request.getfixturevalue(f"{request.param}_url"))
    yield scene
    scene.close()


def test_handlers_run_in_the_context_that_their_jobs_were_started_in(scene: TravelScene) -> None:
    @scene.app.job("sync")
    def sync(job: Job[Any]) -> None:
        scene.note(job)

    @scene.app.job("loop")
    async def loop(job: Job[Any]) -> None:
        scene.note(job)

    scene.start("sync")
    scene.start("loop", tenant="globex")
    scene.start("loop", tenant="initech", priority=3)
    scene.kit.run_until_idle()
    assert sorted(scene.tenants(), key=str) == [
        ("loop", "globex"),
        ("loop", "initech"),
        ("sync", "acme"),
    ]
    assert scene.seen[0][2]["locale"] == "es"
    assert TENANT.get() is None


def test_a_job_that_was_started_outside_of_a_context_runs_in_none(scene: TravelScene) -> None:
    @scene.app.job("plain")
    def plain(job: Job[Any]) -> None:
        scene.note(job)

    scene.start("plain", tenant=None)
    scene.kit.run_until_idle()
    assert scene.seen == [("plain", None, {})]


def test_a_context_that_is_given_replaces_what_is_captured(scene: TravelScene) -> None:
    @scene.app.job("plain")
    def plain(job: Job[Any]) -> None:
        scene.note(job)

    scene.start("plain", context={"tenant": "globex"})
    scene.start("plain", context={})
    with as_tenant("acme"), scene.app.transaction() as tx:
        scene.app.start_many(tx, "plain", [1, 2], context={"tenant": "initech"})
    scene.kit.run_until_idle()
    assert sorted(str(each[2]) for each in scene.seen) == [
        "{'tenant': 'globex'}",
        "{'tenant': 'initech'}",
        "{'tenant': 'initech'}",
        "{}",
    ]


def test_a_retried_attempt_sees_the_same_context(scene: TravelScene) -> None:
    @scene.app.job("flaky", retry=Retry(base="1s", jitter=0))
    def flaky(job: Job[Any]) -> None:
        scene.note(job)
        if job.attempt == 1:
            raise ValueError("once")

    scene.start("flaky")
    with as_tenant("globex"):
        scene.kit.run_until_idle()
        scene.kit.advance("1m")
        scene.kit.run_until_idle()
    assert scene.tenants() == [("flaky", "acme"), ("flaky", "acme")]


def test_an_attempt_after_the_death_of_a_worker_sees_the_same_context(scene: TravelScene) -> None:
    @scene.app.job("killed")
    def killed(job: Job[Any]) -> None:
        scene.note(job)

    scene.start("killed")
    scene.kit.crash("killed")
    scene.kit.advance("1h")
    scene.kit.run_until_idle()
    assert scene.tenants() == [("killed", "acme")]


def test_continuations_inherit_the_context(scene: TravelScene) -> None:
    @scene.app.job("first")
    def first(job: Job[Any]) -> Continue:
        return Continue("second")

    @scene.app.job("second")
    async def second(job: Job[Any]) -> None:
        scene.note(job)

    scene.start("first")
    scene.kit.run_until_idle()
    assert scene.tenants() == [("second", "acme")]


def test_a_continuation_from_outside_inherits_the_context(scene: TravelScene) -> None:
    @scene.app.job("first")
    def first(job: Job[Any]) -> None:
        raise AssertionError("not called")

    @scene.app.job("second")
    def second(job: Job[Any]) -> None:
        scene.note(job)

    chain = scene.start("first", after="1h")
    with as_tenant("globex"), scene.app.transaction() as tx:
        scene.app.chains.continue_with(tx, chain.id, "second")
    scene.kit.run_until_idle()
    assert scene.tenants() == [("second", "acme")]


def test_jobs_that_a_handler_starts_inherit_what_it_does_not_capture(scene: TravelScene) -> None:
    @scene.app.job("parent", atomic=True)
    def parent(job: Job[Any]) -> None:
        scene.app.start(job.tx, "child")
        with as_tenant(None):
            scene.app.start(job.tx, "child")
        with as_tenant("globex"):
            scene.app.start(job.tx, "child")

    @scene.app.job("child")
    def child(job: Job[Any]) -> None:
        scene.note(job)

    scene.start("parent")
    scene.kit.run_until_idle()
    assert sorted(scene.tenants(), key=str) == [
        ("child", "acme"),
        ("child", "acme"),
        ("child", "globex"),
    ]


def test_children_of_a_durable_function_and_its_undos_inherit_the_context(
    scene: TravelScene,
) -> None:
    undone: list[str | None] = []

    @scene.app.job("function", retry=Retry(max_attempts=1))
    async def function(job: Job[Any]) -> None:
        async def charge() -> int:
            return 7

        async def refund(charged: int) -> None:
            undone.append(TENANT.get())

        await job.step("charge", charge, undo=refund)
        await job.run("part", 1)
        raise ValueError("undo it")

    @scene.app.job("part")
    def part(job: Job[int]) -> int:
        scene.note(job)
        return job.input

    scene.start("function")
    scene.kit.run_until_idle()
    assert scene.tenants() == [("part", "acme")]
    assert undone == ["acme"]


def test_events_carry_the_context_to_the_jobs_that_they_start(scene: TravelScene) -> None:
    @scene.app.on("order.paid")
    def mail(job: Job[Any]) -> None:
        scene.note(job)

    scene.kit.run_until_idle()
    with as_tenant("acme"), scene.app.transaction() as tx:
        scene.app.publish(tx, "order.paid", {"order": 7})
        scene.app.publish(tx, "order.paid", {"order": 8}, context={"tenant": "globex"})
    scene.kit.run_until_idle()
    assert sorted(scene.tenants(), key=str) == [
        ("order.paid/mail", "acme"),
        ("order.paid/mail", "globex"),
    ]


def test_an_event_that_waits_for_its_first_handler_keeps_the_context(scene: TravelScene) -> None:
    with as_tenant("acme"), scene.app.transaction() as tx:
        scene.app.publish(tx, "order.late", {"order": 7})

    @scene.app.on("order.late")
    def mail(job: Job[Any]) -> None:
        scene.note(job)

    scene.kit.run_until_idle()
    assert scene.tenants() == [("order.late/mail", "acme")]


def test_begin_is_called_with_each_transaction_of_a_handler(scene: TravelScene) -> None:
    @scene.app.job("atomic", atomic=True)
    def atomic(job: Job[Any]) -> None:
        assert scene.begun == [(type(job.tx).__name__, "acme")]

    @scene.app.job("staged")
    async def staged(job: Job[Any]) -> None:
        async with job.prepare():
            pass
        async with job.complete():
            pass

    scene.start("atomic")
    scene.kit.run_until_idle()
    scene.begun.clear()
    scene.start("staged", tenant="globex")
    scene.kit.run_until_idle()
    assert [tenant for _, tenant in scene.begun] == ["globex", "globex"]


def test_on_failed_runs_in_the_context(scene: TravelScene) -> None:
    def sorry(job: Job[Any]) -> None:
        scene.note(job)

    @scene.app.job("fails", retry=Retry(max_attempts=1), on_failed=sorry)
    def fails(job: Job[Any]) -> None:
        raise ValueError("no")

    scene.start("fails")
    scene.kit.run_until_idle()
    scene.kit.advance("1m")
    scene.kit.run_until_idle()
    assert scene.tenants() == [("fails", "acme")]


def test_a_batch_is_called_once_for_each_context(scene: TravelScene) -> None:
    calls: list[tuple[str | None, list[int]]] = []

    @scene.app.job("many", batch=10, retry=Retry(max_attempts=1))
    async def many(jobs: list[Job[int]]) -> list[int]:
        tenant, inputs = TENANT.get(), sorted(each.input for each in jobs)
        calls.append((tenant, inputs))
        if tenant == "globex":
            raise ValueError("only they fail")
        return [each.input for each in jobs]

    for number, tenant in enumerate(["acme", "globex", "acme"]):
        scene.start("many", number, tenant=tenant)
    scene.kit.run_until_idle()
    assert sorted(calls, key=str) == [("acme", [0, 2]), ("globex", [1])]
    assert sorted(str(each.state) for each in scene.kit.started("many")) == [
        "completed",
        "completed",
        "failed",
    ]


def test_enter_may_be_async_for_async_handlers_and_is_refused_for_sync_ones(
    sqlite_url: str,
) -> None:
    app = Holdfast(sqlite_url)
    add_context(app, capture=capture, enter=lambda context: as_tenant_async(context["tenant"]))
    seen: list[str | None] = []

    @app.job("loop")
    async def loop(job: Job[Any]) -> None:
        seen.append(TENANT.get())

    @app.job("sync", retry=Retry(max_attempts=1))
    def sync(job: Job[Any]) -> None:
        seen.append("called")

    kit = Kit(app, sqlite_url)
    with as_tenant("acme"), app.transaction() as tx:
        app.start(tx, "loop")
        refused = app.start(tx, "sync")
    kit.run_until_idle()
    assert seen == ["acme"]
    error = str(app.jobs.get(refused.id).error)
    assert ContextNotEntered.__name__ in error
    kit.close()
    app.close()


def test_a_job_shows_its_context(scene: TravelScene) -> None:
    @scene.app.job("plain")
    def plain(job: Job[Any]) -> None: ...

    chain = scene.start("plain")
    assert scene.app.jobs.get(chain.id).context == {"tenant": "acme", "locale": "es"}


@pytest.mark.parametrize(
    "context",
    [
        {"tenant": 7},
        {"tenant": None},
        {"tenant": ""},
        {"tenant": "x" * 201},
        {"tenant": "a\nb"},
        {"the tenant": "acme"},
        {"x" * 41: "acme"},
        {f"n{number}": "v" for number in range(17)},
        {"tenant": {"nested": "acme"}},
        "acme",
    ],
    ids=repr,
)
def test_what_is_not_a_flat_mapping_of_short_texts_is_refused(
    scene: TravelScene, context: Any
) -> None:
    @scene.app.job("plain")
    def plain(job: Job[Any]) -> None: ...

    with pytest.raises(ContextInvalid) as refused:
        scene.start("plain", context=context)
    assert refused.value.code == "HF201"
    assert scene.kit.started() == []


def test_what_capture_returns_is_checked_too(sqlite_url: str) -> None:
    app = Holdfast(sqlite_url)
    add_context(app, capture=lambda: {"tenant": 7})

    @app.job("plain")
    def plain(job: Job[Any]) -> None: ...

    with pytest.raises(ContextInvalid, match="tenant is 7"), app.transaction() as tx:
        app.start(tx, "plain")
    with pytest.raises(ContextDeclared):
        add_context(app, capture=capture)
    app.close()


def test_a_context_goes_with_its_job(scene: TravelScene) -> None:
    @scene.app.job("plain")
    def plain(job: Job[Any]) -> None: ...

    chain = scene.start("plain")
    assert [str(each.id) for each in scene.app.jobs.list("context.tenant:acme").items] == [
        str(chain.id)
    ]
    with scene.app.transaction() as tx:
        scene.app.chains.delete(tx, chain.id)
    assert scene.app.jobs.list("context.tenant:acme").items == ()
