"""OpenTelemetry through the application: sending, the jobs it leads to, and the attempts linked to it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, get_current_span
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from holdfast import Holdfast, Job, Permanent, StepFailed, SyncJob
from holdfast.scheduler.cycle_run import CycleRun
from holdfast.settings import load_settings
from holdfast_otel import use_opentelemetry
from holdfast_testing.kit import Kit
from tests.client.connection_types.alchemy import driver_url


class Undo(Exception):
    """Leaves a block whose work is not wanted."""


@pytest.fixture
def exported() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(exported: InMemorySpanExporter) -> TracerProvider:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exported))
    return provider


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def kit(url: str, provider: TracerProvider) -> Iterator[Kit]:
    app = Holdfast(url)
    use_opentelemetry(app, provider)

    @app.job("report")
    async def report(job: Job[Any]) -> None: ...

    @app.job("summary")
    async def summary(job: Job[Any]) -> None: ...

    @app.on("order.placed", name="mail")
    async def mail(job: Job[Any]) -> None: ...

    @app.on("order.placed", name="stock")
    async def stock(job: Job[Any]) -> None: ...

    yield Kit(app, url)
    app.close()


def named(exported: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [each for each in exported.get_finished_spans() if each.name == name]


def span_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


def links(span: ReadableSpan) -> list[int]:
    return [each.context.span_id for each in span.links]


def test_an_attempt_is_linked_to_the_sending_of_its_job(
    kit: Kit, exported: InMemorySpanExporter, provider: TracerProvider
) -> None:
    app = kit.app
    with provider.get_tracer("test").start_as_current_span("request"), app.transaction() as tx:
        chain = app.start(tx, "report")
        assert named(exported, "send report") == []
    kit.run_until_idle()
    (request,), (send,) = named(exported, "request"), named(exported, "send report")
    (attempt,) = named(exported, "process report")
    assert send.kind is SpanKind.PRODUCER
    assert send.parent is not None
    assert send.parent.span_id == span_id(request)
    assert (send.attributes or {})["messaging.message.id"] == str(chain.id)
    assert links(attempt) == [span_id(send)]


def test_many_starts_and_an_event_s_deliveries_are_one_sending_each(
    kit: Kit, exported: InMemorySpanExporter
) -> None:
    app = kit.app
    with app.transaction() as tx:
        app.start_many(tx, "report", [1, 2, 3])
        app.publish(tx, "order.placed")
    kit.run_until_idle()
    (send,), (publish,) = named(exported, "send report"), named(exported, "send order.placed")
    assert [links(each) for each in named(exported, "process report")] == [[span_id(send)]] * 3
    for handler in ("mail", "stock"):
        (attempt,) = named(exported, f"process order.placed/{handler}")
        assert links(attempt) == [span_id(publish)]


def test_what_was_rolled_back_was_never_sent(kit: Kit, exported: InMemorySpanExporter) -> None:
    app = kit.app
    with suppress(Undo), app.transaction() as tx:
        app.start(tx, "report")
        raise Undo
    with app.transaction() as tx:
        app.start(tx, "summary")
        tx.execute("savepoint part")
        app.start(tx, "report")
        tx.execute("rollback to part")
    assert [each.name for each in exported.get_finished_spans()] == ["send summary"]


async def test_the_same_in_the_other_colour(kit: Kit, exported: InMemorySpanExporter) -> None:
    app = kit.app
    with suppress(Undo):
        async with app.transaction() as tx:
            await app.start(tx, "report")
            raise Undo
    async with app.transaction() as tx:
        await app.start(tx, "summary")
    await app.aclose()
    assert [each.name for each in exported.get_finished_spans()] == ["send summary"]


def test_a_start_that_an_earlier_one_stands_for_sends_nothing(
    kit: Kit, exported: InMemorySpanExporter
) -> None:
    app = kit.app
    for _ in range(2):
        with app.transaction() as tx:
            app.start(tx, "report", key="k")
    assert len(named(exported, "send report")) == 1


def test_a_chain_continued_from_outside_is_sent_on(
    kit: Kit, exported: InMemorySpanExporter
) -> None:
    app = kit.app
    with app.transaction() as tx:
        chain = app.start(tx, "report")
        app.chains.continue_with(tx, chain.id, "summary")
    kit.run_until_idle()
    (send,), (attempt,) = named(exported, "send summary"), named(exported, "process summary")
    assert links(attempt) == [span_id(send)]


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_a_session_sends_after_its_commit(
    kit: Kit, url: str, exported: InMemorySpanExporter
) -> None:
    engine = create_engine(driver_url(url, "psycopg"))
    with Session(engine) as session, session.begin():
        with suppress(Undo), session.begin_nested():
            kit.app.start(session, "report")
            raise Undo
        kit.app.start(session, "summary")
        assert exported.get_finished_spans() == ()
    engine.dispose()
    assert [each.name for each in exported.get_finished_spans()] == ["send summary"]


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_where_nobody_tells_of_the_commit_the_caller_s_own_span_is_the_link(
    kit: Kit, url: str, exported: InMemorySpanExporter, provider: TracerProvider
) -> None:
    request = provider.get_tracer("test").start_as_current_span("request")
    with psycopg.connect(url) as connection, request:
        kit.app.start(connection, "report")
    kit.run_until_idle()
    (caller,), (attempt,) = named(exported, "request"), named(exported, "process report")
    assert named(exported, "send report") == []
    assert links(attempt) == [span_id(caller)]


def test_who_does_not_use_opentelemetry_does_not_import_it(sqlite_url: str) -> None:
    script = (
        "import sys; from holdfast import Holdfast\n"
        "app = Holdfast(sys.argv[1], open_types=True); app.migrate()\n"
        "with app.transaction() as tx: app.start(tx, 'report')\n"
        "assert not [each for each in sys.modules if each.startswith('opentelemetry')]\n"
    )
    subprocess.run([sys.executable, "-c", script, sqlite_url], check=True)


async def test_a_cycle_s_run_is_a_span_around_its_handler(
    url: str, provider: TracerProvider, exported: InMemorySpanExporter
) -> None:
    app = Holdfast(url)
    use_opentelemetry(app, provider)
    app.migrate()
    seen: list[int] = []

    @app.cycle("sweep", every="1h")
    def sweep(run: CycleRun) -> None:
        seen.append(get_current_span().get_span_context().span_id)

    @app.cycle("break", every="1h")
    async def broken(run: CycleRun) -> None:
        raise Undo

    # The first tick makes the cycles known, the second runs what was asked for.
    tick = app.assembly(load_settings(environ={})).tick()
    await tick.run()
    with app.transaction() as tx:
        for name in app.cycle_specs:
            app.cycles.run_now(tx, name)
    await tick.run()
    await tick.close()
    await app.aclose()
    (span,), (failed,) = named(exported, "tick sweep"), named(exported, "tick break")
    assert seen == [span_id(span)]
    assert (span.attributes or {})["holdfast.cycle"] == "sweep"
    assert "holdfast.slot" in (span.attributes or {})
    assert (failed.attributes or {})["error.type"] == "Undo"


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
def test_each_step_that_runs_is_a_span_within_its_attempt(
    kit: Kit, exported: InMemorySpanExporter, is_async: bool
) -> None:
    async def reserve(tx: Any, number: int) -> int:
        return number

    async def charge(number: int) -> None:
        raise Permanent("no cover")

    async def order(job: Job[Any]) -> None:
        await job.step("reserve", reserve, 7, atomic=True)
        with suppress(StepFailed):
            await job.step("charge", charge, 7, key=7)
        await job.wait_for("paid")

    def reserve_sync(tx: Any, number: int) -> int:
        return number

    def charge_sync(number: int) -> None:
        raise Permanent("no cover")

    def order_sync(job: SyncJob[Any]) -> None:
        job.step("reserve", reserve_sync, 7, atomic=True)
        with suppress(StepFailed):
            job.step("charge", charge_sync, 7, key=7)
        job.wait_for("paid")

    app = kit.app
    app.job("order")(order if is_async else order_sync)
    with app.transaction() as tx:
        app.start(tx, "order")
    kit.run_until_idle()
    kit.signal("paid")
    kit.run_until_idle()
    # Of the second attempt there is none: what was recorded does not run again.
    first, _ = named(exported, "process order")
    (reserved,), (charged,) = named(exported, "step reserve"), named(exported, "step charge")
    assert [each.parent and each.parent.span_id for each in (reserved, charged)] == [
        span_id(first)
    ] * 2
    assert dict(charged.attributes or {}) == {
        "holdfast.step": "charge[7]",
        "holdfast.step.attempt": 1,
        "error.type": "Permanent",
    }
    assert reserved.status.is_ok
