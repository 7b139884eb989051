"""Reading back: by id, as filtered pages, in both colours, inside and outside the caller's transaction."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from holdfast import Chain, Holdfast, Job, Page, Snooze
from holdfast.commands.chains import end_chain
from holdfast.core.errors import (
    ChainNotFound,
    FilterError,
    InvalidCursor,
    InvalidId,
    InvalidOption,
    JobNotFound,
    UnsupportedConnection,
)
from holdfast.core.records import Claim, Finish, FinishKind, LeaseClass, Probe
from holdfast.storage.id_generator import new_id
from holdfast.worker.options import WorkerOptions


def start(app: Holdfast, *arguments: Any, **options: Any) -> Chain:
    with app.transaction() as tx:
        return app.start(tx, *arguments, **options)


def run_and_fail(app: Holdfast, chain: Chain, error: str, kind: FinishKind = "retry") -> None:
    """Let a worker take the chain's job and fail it once, to be retried."""
    token, store = new_id(), app.database.store
    probe = Probe(chain.type, 5, token, 1, 0, "00000000-0000-0000-0000-000000000000")
    claim = Claim("worker-1", 1, (probe,), (LeaseClass(token, 60_000, 3, 100, 100),))
    (job,) = app.database.run(store.jobs.claim(claim))
    ending = Finish(job.id, token, kind, "worker-1", job.chain_id, error=error)
    app.database.run(store.jobs.finish([ending], [token]))


async def test_a_job_that_is_put_off_for_ever_is_read_and_listed(app: Holdfast) -> None:
    for_ever = datetime.max.replace(tzinfo=UTC)

    @app.job("later")
    def later(job: Job[Any]) -> Snooze:
        return Snooze(at=for_ever)

    chain = start(app, "later")
    await app.make_worker(WorkerOptions(stop_when_idle=True)).run()
    assert app.jobs.get(chain).available_at == for_ever
    assert [each.id for each in app.jobs.list()] == [chain.id]


async def test_a_job_is_read_with_everything_known_of_it(app: Holdfast) -> None:
    before = datetime.now(UTC) - timedelta(minutes=1)
    chain = start(app, "mail", {"n": 1}, key="k", priority=2)
    job = app.jobs.get(chain.id)
    assert (job.id, job.chain_id, job.chain_index) == (chain.id, chain.id, 0)
    assert (job.type, job.state, job.key, job.priority) == ("mail", "pending", "k", 2)
    assert (job.input, job.output, job.error, job.worker) == ({"n": 1}, None, None, None)
    assert before < job.created_at < datetime.now(UTC) + timedelta(minutes=1)
    assert job.available_at == job.created_at
    assert (job.started_at, job.finished_at, job.continued) == (None, None, False)
    assert repr(job) == f"JobInfo({chain.id}, type='mail', state='pending', attempt=0)"


async def test_both_colours_read_the_same(app: Holdfast) -> None:
    chain = start(app, "mail", 1)
    assert await app.aio.jobs.get(chain) == app.jobs.get(chain)
    assert await app.aio.jobs.list() == app.jobs.list()
    assert await app.aio.jobs.attempts(chain) == app.jobs.attempts(chain) == []
    assert await app.aio.chains.get(chain) == app.chains.get(chain)
    assert await app.aio.chains.list() == app.chains.list()
    assert await app.aio.chains.jobs(chain) == app.chains.jobs(chain)


async def test_what_is_not_there_is_not_found(app: Holdfast) -> None:
    for absent in (new_id(), str(uuid4())):
        for read in (app.jobs.get, app.jobs.attempts):
            with pytest.raises(JobNotFound, match=absent):
                read(absent)
        for look in (app.chains.get, app.chains.jobs):
            with pytest.raises(ChainNotFound, match=absent):
                look(absent)
    for anything in (app.jobs.get, app.chains.get, app.jobs.attempts, app.chains.jobs):
        with pytest.raises(InvalidId):
            anything("nonsense")


async def test_the_caller_s_transaction_sees_what_others_do_not_see_yet(app: Holdfast) -> None:
    with app.transaction() as tx:
        chain = app.start(tx, "mail")
        assert app.jobs.get(chain, tx=tx).state == "pending"
        assert len(app.chains.list(tx=tx)) == 1
        with pytest.raises(JobNotFound):
            app.jobs.get(chain)
    async with app.transaction() as tx_async:
        later = await app.start(tx_async, "mail")
        assert (await app.aio.chains.get(later, tx=tx_async)).type == "mail"
        with pytest.raises(ChainNotFound):
            await app.aio.chains.get(later)


@pytest.mark.parametrize("dialect", ["postgresql"])
async def test_reading_needs_no_transaction(app: Holdfast, url: str) -> None:
    chain = start(app, "mail")
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        assert app.jobs.get(chain, tx=connection).type == "mail"


async def test_a_connection_of_the_other_colour_is_refused_with_the_way(app: Holdfast) -> None:
    chain = start(app, "mail")
    async with app.transaction() as async_tx:
        with pytest.raises(UnsupportedConnection, match=r"app\.aio"):
            app.jobs.get(chain, tx=async_tx)  # type: ignore[arg-type]
    with app.transaction() as tx, pytest.raises(UnsupportedConnection, match=r"\.aio"):
        await app.aio.jobs.get(chain, tx=tx)  # type: ignore[arg-type]


async def test_pages_follow_one_another_without_gap_or_overlap(app: Holdfast) -> None:
    with app.transaction() as tx:
        started = app.start_many(tx, "mail", range(7))
    wanted = [each.id for each in reversed(started)]
    lists: list[Callable[..., Any]] = [app.jobs.list, app.chains.list]
    for read in lists:
        seen, after, sizes = [], None, []
        while True:
            page = read("type:mail", limit=3, after=after)
            seen += [each.id for each in page]
            sizes.append(len(page))
            if page.next is None:
                break
            after = page.next
        assert (seen, sizes) == (wanted, [3, 3, 1])
    exact = app.jobs.list(limit=7)
    assert (len(exact), exact.next) == (7, None)


async def test_a_cursor_is_valid_only_where_it_came_from(app: Holdfast) -> None:
    with app.transaction() as tx:
        app.start_many(tx, "mail", range(3))
    cursor = app.jobs.list("type:mail", limit=1).next
    assert cursor is not None
    assert len(app.jobs.list("  type:mail ", after=cursor)) == 2
    for wrong in (
        lambda: app.jobs.list("type:sms", after=cursor),
        lambda: app.chains.list("type:mail", after=cursor),
        lambda: app.jobs.list("type:mail", after=cursor[:-2]),
        lambda: app.jobs.list("type:mail", after="nonsense"),
        lambda: app.jobs.list("type:mail", after=""),
        lambda: app.jobs.list("type:mail", after="é"),
    ):
        with pytest.raises(InvalidCursor):
            wrong()


@pytest.mark.parametrize("limit", [0, -1, 1001, True, "many"])
async def test_a_page_has_a_sensible_length(limit: Any) -> None:
    with (
        closing(Holdfast("sqlite:///:memory:")) as app,
        pytest.raises(InvalidOption, match="from 1 to 1000"),
    ):
        app.jobs.list(limit=limit)


@pytest.fixture
def shop(app: Holdfast) -> dict[str, Chain]:
    """Chains in several states, by a name for each."""
    names = {
        "mail": start(app, "mail.send", key="order-1"),
        "digest": start(app, "mail.digest", key="order_1"),
        "sms": start(app, "sms.send", after="1h"),
        "done": start(app, "mail.send", key="Order-2"),
        "failed": start(app, "mailing"),
        "tried": start(app, "tried"),
    }
    names["blocked"] = start(app, "report", blockers=[names["mail"]])
    store = app.database.store
    app.database.run(end_chain(store, str(names["done"].id), "completed", output="1"))
    error = "Timeout: 100% of_it\\lost"
    app.database.run(end_chain(store, str(names["failed"].id), "failed", error=error))
    run_and_fail(app, names["tried"], "ValueError: no")
    return names


FILTERS = [
    ("", {"mail", "digest", "sms", "done", "failed", "tried", "blocked"}),
    ("state:pending", {"mail", "digest", "sms", "tried"}),
    ("state:failed,completed", {"failed", "done"}),
    ("state:blocked", {"blocked"}),
    ("type:mail.send", {"mail", "done"}),
    ("type:mail.send,sms.send", {"mail", "done", "sms"}),
    ("type:mail.*", {"mail", "digest", "done"}),
    ("type:*.send state:pending", {"mail", "sms"}),
    ("type:MAIL.*", set()),
    ("key:order-1", {"mail"}),
    ("key:order*", {"mail", "digest"}),
    ("key:order_*", {"digest"}),
    ("error:timeout", {"failed"}),
    ('error:"100% of_it"', {"failed"}),
    ('error:"100% of-it"', set()),
    (r'error:"it\\lost"', {"failed"}),
    ("attempt:1", {"tried"}),
    ("attempt>0", {"tried"}),
    ("attempt>=1 attempt<=1", {"tried"}),
    ("attempt<1 state:completed", {"done"}),
    ("attempt>2147483647", set()),
    ("attempt<=2147483647 attempt>0", {"tried"}),
    ("age>1h", set()),
    ("age<1h state:completed", {"done"}),
]


async def test_filters_find_the_same_jobs_on_both_databases(
    app: Holdfast, shop: dict[str, Chain]
) -> None:
    ids = {chain.id: name for name, chain in shop.items()}
    for text, wanted in FILTERS:
        assert {ids[each.id] for each in app.jobs.list(text)} == wanted, text
        assert {ids[each.id] for each in app.chains.list(text)} == wanted, text


async def test_ids_and_chains_are_filtered_too(app: Holdfast, shop: dict[str, Chain]) -> None:
    one, two = shop["mail"].id, shop["sms"].id
    for read in (app.jobs.list, app.chains.list):
        found: Any = read(f"id:{one},{two}")
        assert {each.id for each in found} == {one, two}
        found = read(f"chain:{one}")
        assert [each.id for each in found] == [one]


async def test_running_jobs_are_found_by_their_worker(app: Holdfast) -> None:
    chain, token, store = start(app, "mail"), new_id(), app.database.store
    probe = Probe("mail", 5, token, 1, 0, "00000000-0000-0000-0000-000000000000")
    claim = Claim("worker-7", 1, (probe,), (LeaseClass(token, 60_000, 3, 100, 100),))
    app.database.run(store.jobs.claim(claim))
    (running,) = app.jobs.list("worker:worker-7 state:running")
    assert (running.id, running.worker, running.attempt) == (chain.id, "worker-7", 1)
    assert running.lease_expires_at is not None
    assert len(app.jobs.list("worker:worker-8")) == 0


async def test_attempts_that_failed_are_read(app: Holdfast) -> None:
    chain = start(app, "mail")
    run_and_fail(app, chain, "ValueError: no")
    (attempt,) = app.jobs.attempts(chain)
    assert (attempt.job_id, attempt.attempt, attempt.kind) == (chain.id, 1, "retry")
    assert (attempt.worker, attempt.error) == ("worker-1", "ValueError: no")
    assert attempt.ended_at.tzinfo is UTC


async def test_a_job_shows_its_attempt_and_the_first_line_of_its_error(app: Holdfast) -> None:
    chain = start(app, "mail")
    run_and_fail(app, chain, "ValueError: no\n  in handle", "fail")
    shown = repr(app.jobs.get(chain))
    assert shown.endswith("type='mail', state='failed', attempt=1, error='ValueError: no')")


async def test_a_page_is_read_like_any_sequence(app: Holdfast) -> None:
    with app.transaction() as tx:
        started = app.start_many(tx, "mail", range(3))
    newest_first = [each.id for each in reversed(started)]
    pages: list[Page[Any]] = [app.jobs.list(), await app.aio.jobs.list(), app.chains.list()]
    for page in pages:
        assert [page[0].id, page[-1].id] == [newest_first[0], newest_first[-1]]
        assert [each.id for each in page[:2]] == newest_first[:2]
        assert [each.id for each in reversed(page)] == newest_first[::-1]
        assert page[1] in page
        with pytest.raises(IndexError):
            page[3]
    await app.aclose()


@pytest.mark.parametrize(
    "text",
    ["staet:failed", "state:finished", "type:mail.*,sms.*", "type:a type:b", "error:a,b", "age:5m"],
)
async def test_filters_that_mean_nothing_are_refused(text: str) -> None:
    with closing(Holdfast("sqlite:///:memory:")) as app, pytest.raises(FilterError):
        app.jobs.list(text)
