"""What is undone takes its hints, events and spans with it, whatever words and ways it was undone with."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import transaction
from psycopg import Rollback, sql

from holdfast import Holdfast, Job, Retry
from holdfast.core.errors import NoTransaction, TransactionAborted
from holdfast.core.events import Event
from holdfast.scheduler.cycle_run import wrap_nothing
from holdfast_testing.kit import Kit
from tests.client.conftest import KINDS, Heard
from tests.client.connection_types.held import Held, Undo

postgresql = pytest.mark.parametrize("dialect", ["postgresql"])
sqlite = pytest.mark.parametrize("dialect", ["sqlite"])


class Witness:
    """An observer that keeps what it is told."""

    def __init__(self, app: Holdfast) -> None:
        self.events: list[Event] = []
        app.observe(self)

    def observe(self, event: Event) -> None:
        self.events.append(event)

    def told(self, name: str) -> list[str]:
        return [each.fields["type"] for each in self.events if each.name == name]


def give_up() -> None:
    """Leave a block as psycopg's own word for it does: without an exception outside."""
    raise Rollback


def assert_only(app: Holdfast, heard: Heard, witness: Witness, *types: str) -> None:
    assert sorted(each.type for each in app.jobs.list()) == sorted(types)
    assert sorted(heard.types) == sorted(types)
    assert witness.told("job_created") == list(types)


@dataclass
class Spelling:
    """One of the endless ways to write a savepoint."""

    savepoint: str
    undo: str
    release: str


NAMES = {
    "postgresql": [
        "part",
        "PART",
        '"part"',
        '"Part of; it"',
        '"a ""quoted"" one"',
        '"rollback"',
        '"--"',
        'U&"\\0070art"',
        "x" * 80,
        "größe",
        "p$1",
    ],
    "sqlite": [
        "part",
        "PART",
        '"part"',
        "[part of; it]",
        "`part`",
        "'part'",
        '"a ""quoted"" one"',
        '"--"',
        "x" * 80,
        "größe",
    ],
}
BREAKS = [" ", "\n", "\t", "  ", "/**/", " /* rollback to x; */ ", "--x\n", " -- '\n", "/*\n*/"]
BEFORE = ["", " ", ";", " ; ", "/* savepoint x */", "-- x\n", "\n\n"]


def spellings(dialect: str, count: int) -> Iterator[Spelling]:
    """Make up spellings, always the same ones."""
    dice = random.Random(f"savepoints on {dialect}")

    def spelled(words: str, name: str) -> str:
        written = [
            "".join(dice.choice((c.upper(), c.lower())) for c in word) for word in words.split()
        ]
        joined = "".join(each + dice.choice(BREAKS) for each in written) + name
        before = "" if dialect == "sqlite" else dice.choice(BEFORE)
        return before.replace(";", "" if dialect == "sqlite" else ";") + joined

    for _ in range(count):
        name = dice.choice(NAMES[dialect])
        undo = dice.choice(["rollback to", "rollback to savepoint", "rollback transaction to"])
        release = dice.choice(["release", "release savepoint"])
        yield Spelling(spelled("savepoint", name), spelled(undo, name), spelled(release, name))


LITERALS = [
    "select 'x; rollback to part'",
    "select 'a' /* ; rollback to part */",
    "select 1 -- ; rollback to part",
    "select '; release part; savepoint part'",
]


def test_no_spelling_lets_out_what_was_undone(app: Holdfast, heard: Heard, dialect: str) -> None:
    witness = Witness(app)
    expected = []
    for number, spelling in enumerate(spellings(dialect, 60)):
        with app.transaction() as tx:
            app.start(tx, f"first-{number}")
            tx.execute(spelling.savepoint)
            app.start(tx, f"undone-{number}")
            tx.execute(spelling.undo)
            app.start(tx, f"second-{number}")
            tx.execute(spelling.release)
            app.start(tx, f"third-{number}")
        expected += [f"first-{number}", f"second-{number}", f"third-{number}"]
    assert witness.told("job_created") == expected
    assert heard.types == expected


async def test_no_spelling_lets_it_out_in_the_other_colour(
    app: Holdfast, heard: Heard, dialect: str
) -> None:
    witness = Witness(app)
    expected = []
    for number, spelling in enumerate(spellings(dialect, 30)):
        async with app.transaction() as tx:
            await tx.execute(spelling.savepoint)
            await app.start(tx, f"undone-{number}")
            await tx.execute(spelling.undo)
            await app.start(tx, f"kept-{number}")
        expected.append(f"kept-{number}")
    assert witness.told("job_created") == expected
    assert heard.types == expected


@pytest.mark.parametrize("literal", LITERALS)
def test_words_in_a_text_or_comment_undo_nothing(app: Holdfast, heard: Heard, literal: str) -> None:
    witness = Witness(app)
    with app.transaction() as tx:
        tx.execute("savepoint part")
        app.start(tx, "kept")
        tx.execute(literal)
    assert_only(app, heard, witness, "kept")


Way = Callable[[Any, Holdfast], None]


def by_cursor(tx: Any, app: Holdfast) -> None:
    cursor = tx.connection.cursor()
    cursor.execute("savepoint part")
    app.start(tx, "undone")
    cursor.execute("rollback to part")


def by_an_answer_s_cursor(tx: Any, app: Holdfast) -> None:
    cursor = tx.execute("select 1")
    cursor.execute("savepoint part")
    app.start(tx, "undone")
    cursor.execute("rollback to part")


def by_an_answer_s_connection(tx: Any, app: Holdfast) -> None:
    connection = tx.execute("select 1").connection
    connection.execute("savepoint part")
    app.start(tx, "undone")
    connection.execute("rollback to part")


def by_several_statements(tx: Any, app: Holdfast) -> None:
    tx.execute("select 1; savepoint outer_part; savepoint inner_part")
    app.start(tx, "undone")
    tx.execute("release inner_part; rollback to outer_part; select 2")


def by_a_failure_in_the_midst(tx: Any, app: Holdfast) -> None:
    tx.execute("savepoint part")
    app.start(tx, "undone")
    with suppress(Exception):
        tx.execute("select * from nowhere")
    tx.execute("rollback to part")


def by_a_failed_script(tx: Any, app: Holdfast) -> None:
    tx.execute("savepoint part")
    app.start(tx, "undone")
    with suppress(Exception):
        tx.execute("rollback to part; select * from nowhere")
    tx.execute("rollback to part")


def by_the_library(tx: Any, app: Holdfast) -> None:
    session = tx.connection.pgconn
    session.exec_(b"savepoint part")
    app.start(tx, "undone")
    session.exec_(b"rollback to part")


def by_psycopg_s_pipeline(tx: Any, app: Holdfast) -> None:
    tx.execute("savepoint part")
    app.start(tx, "undone")
    with tx.connection.pipeline():
        tx.connection.execute("rollback to part")
        tx.connection.execute("select 1")


def by_many(tx: Any, app: Holdfast) -> None:
    cursor = tx.connection.cursor()
    cursor.execute("savepoint part")
    app.start(tx, "undone")
    cursor.executemany("rollback to part", [()])


ON_BOTH: list[Way] = [
    by_cursor,
    by_an_answer_s_cursor,
    by_an_answer_s_connection,
    by_a_failure_in_the_midst,
]
ON_POSTGRESQL: list[Way] = [
    by_several_statements,
    by_a_failed_script,
    by_the_library,
    by_psycopg_s_pipeline,
    by_many,
]
WAYS = [
    pytest.param(way, dialect, id=f"{way.__name__}-{dialect}")
    for dialect, ways in (("postgresql", [*ON_BOTH, *ON_POSTGRESQL]), ("sqlite", ON_BOTH))
    for way in ways
]


@pytest.mark.parametrize(("way", "dialect"), WAYS)
def test_no_way_around_us_lets_out_what_was_undone(app: Holdfast, heard: Heard, way: Way) -> None:
    witness = Witness(app)
    with app.transaction() as tx:
        app.start(tx, "first")
        way(tx, app)
        app.start(tx, "second")
    assert_only(app, heard, witness, "first", "second")


@postgresql
def test_what_a_function_undoes_within_itself_undoes_nothing_of_ours(
    app: Holdfast, heard: Heard
) -> None:
    witness = Witness(app)
    with app.transaction() as tx:
        app.start(tx, "first")
        tx.execute(
            "do $$ begin begin perform 1/0; exception when division_by_zero then null; end; end $$"
        )
        app.start(tx, "second")
    assert_only(app, heard, witness, "first", "second")


def test_a_start_that_was_undone_and_made_again_is_told_once(app: Holdfast, heard: Heard) -> None:
    witness = Witness(app)
    with app.transaction() as tx:
        tx.execute("savepoint part")
        first = app.start(tx, "same")
        tx.execute("rollback to part")
        app.start(tx, "same", id=first.id)
    assert_only(app, heard, witness, "same")


TELLING = [each for each in KINDS if each.tells_of_commit]
kinds = pytest.mark.parametrize(
    ("kind", "dialect"), [pytest.param(each, each.dialect, id=each.name) for each in TELLING]
)


@kinds
async def test_a_savepoint_that_the_library_does_not_know_of_lets_nothing_out(
    app: Holdfast, held: Held, heard: Heard
) -> None:
    witness = Witness(app)
    await held.start(app, "first")
    await held.execute("/* ours */ savepoint part")
    await held.start(app, "undone")
    await held.execute("rollback/**/to/**/part")
    await held.start(app, "second")
    await held.execute("select 'x; rollback to part'")
    assert (heard.hints, witness.events) == ([], [])
    await held.commit()
    assert_only(app, heard, witness, "first", "second")


@pytest.mark.parametrize(
    ("kind", "dialect"),
    [
        pytest.param(each, each.dialect, id=each.name)
        for each in TELLING
        if each.name.startswith("django")
    ],
)
async def test_django_s_own_savepoints_without_a_block_let_nothing_out(
    app: Holdfast, held: Held, heard: Heard
) -> None:
    witness = Witness(app)
    using = held.tx.alias
    await held.start(app, "first")
    part = transaction.savepoint(using=using)
    await held.start(app, "undone")
    transaction.savepoint_rollback(part, using=using)
    await held.start(app, "second")
    await held.commit()
    assert_only(app, heard, witness, "first", "second")


@contextmanager
def undone_part(tx: Any) -> Iterator[None]:
    tx.execute("savepoint part")
    yield
    tx.execute("rollback to part")


def test_ends_from_outside_that_were_undone_are_not_told(app: Holdfast, heard: Heard) -> None:
    with app.transaction() as tx:
        chains = [app.start(tx, f"work-{number}") for number in range(4)]
    heard.hints.clear()
    witness = Witness(app)
    with app.transaction() as tx:
        with undone_part(tx):
            app.chains.complete(tx, chains[0])
            app.chains.cancel(tx, chains[1])
            app.jobs.cancel(tx, chains[2])
            app.chains.delete(tx, chains[3])
            app.chains.continue_with(tx, app.start(tx, "new"), "next")
        app.chains.cancel(tx, chains[0], "meant")
        app.chains.continue_with(tx, chains[1], "next")
    assert [each.name for each in witness.events] == ["job_cancelled", "job_continued"]
    assert {(each.kind, each.type, each.ids) for each in heard.hints} == {
        ("ended", "", (str(chains[0].id),)),
        ("due", "next", ()),
    }


def test_dead_letters_whose_redrive_was_undone_are_not_told(
    app: Holdfast, heard: Heard, url: str
) -> None:
    @app.job("broken", retry=Retry(max_attempts=1))
    def broken(job: Job[Any]) -> None:
        raise Undo

    with app.transaction() as tx:
        chain = app.start(tx, broken)
        other, third = app.start(tx, broken), app.start(tx, broken)
    Kit(app, url).run_until_idle()
    heard.hints.clear()
    witness = Witness(app)
    with app.transaction() as tx:
        with undone_part(tx):
            app.dead_letters.redrive(tx, chain.id)
            app.chains.retry(tx, other)
            app.dead_letters.drop(tx, third.id)
        app.chains.retry(tx, chain)
    assert [each.fields["job_id"] for each in witness.events] == [str(chain.id)]
    assert heard.types == ["broken"]


SPANS = ["savepoint part", "/**/savepoint/**/part"]


@pytest.mark.parametrize("words", SPANS)
def test_spans_of_what_was_undone_are_not_ended(app: Holdfast, words: str) -> None:
    ended = []

    class Spans:
        def trace(self, type: str) -> None:
            self._type = type

        def end(self, job_id: str | None) -> None:
            ended.append(self._type)

    app.use_spans(Spans, wrap_nothing)
    with app.transaction() as tx:
        app.start(tx, "first")
        tx.execute(words)
        app.start(tx, "undone")
        tx.execute("rollback to part")
    assert ended == ["first"]


def test_a_transaction_that_cannot_commit_says_so_and_tells_nothing(
    app: Holdfast, heard: Heard, dialect: str
) -> None:
    witness = Witness(app)

    def swallow_the_failure() -> None:
        with app.transaction() as tx:
            app.start(tx, "lost")
            with suppress(Exception):
                tx.execute("select * from nowhere")

    if dialect == "sqlite":
        swallow_the_failure()
        assert_only(app, heard, witness, "lost")
        return
    with pytest.raises(TransactionAborted):
        swallow_the_failure()
    assert_only(app, heard, witness)


REPLACED: dict[str, list[tuple[str, ...]]] = {
    "postgresql": [
        ("rollback; begin",),
        ("commit; begin",),
        ("/**/ROLLBACK/**/;/**/START TRANSACTION",),
        ("rollback and chain",),
        ("commit and chain",),
        ("abort; begin isolation level serializable",),
        ("select 1; end; begin",),
    ],
    "sqlite": [
        ("rollback", "begin immediate"),
        ("commit", "begin immediate"),
        ("end", "/**/begin"),
    ],
}
REPLACED_BY_HANDLERS = {"rollback; begin-postgresql", "rollback and chain-postgresql"}
REPLACED_BY_HANDLERS |= {"rollback; begin immediate-sqlite", "commit; begin immediate-sqlite"}
REPLACING = [
    pytest.param(words, dialect, id=f"{'; '.join(words)}-{dialect}")
    for dialect, ways in REPLACED.items()
    for words in ways
]


@pytest.mark.parametrize(("words", "dialect"), REPLACING)
@pytest.mark.parametrize("by", ["transaction", "connection"])
def test_another_transaction_in_the_place_of_ours_is_refused(
    app: Holdfast, heard: Heard, words: tuple[str, ...], by: str, dialect: str
) -> None:
    witness = Witness(app)

    def replace_it() -> None:
        with app.transaction() as tx:
            app.start(tx, "before")
            if by == "connection" or dialect == "sqlite":
                connection = tx.connection
                for each in words:
                    connection.execute(each)
            else:
                tx.execute(*words)
            app.start(tx, "after")

    with pytest.raises(NoTransaction, match="ended inside its block"):
        replace_it()
    assert (heard.hints, witness.events) == ([], [])
    assert "after" not in [each.type for each in app.jobs.list()]


@sqlite
def test_a_script_commits_before_it_begins_and_is_refused(app: Holdfast, heard: Heard) -> None:
    witness = Witness(app)

    def run_a_script() -> None:
        with app.transaction() as tx:
            app.start(tx, "before")
            tx.connection.executescript("begin; savepoint part;")
            app.start(tx, "after")

    with pytest.raises(NoTransaction, match="ended inside its block"):
        run_a_script()
    assert (heard.hints, witness.events) == ([], [])


@pytest.mark.parametrize(
    ("words", "dialect"), [each for each in REPLACING if each.id in REPLACED_BY_HANDLERS]
)
@pytest.mark.parametrize("mode", ["atomic", "staged", "prepared", "async-atomic"])
def test_a_handler_that_replaces_its_transaction_completes_nothing(
    app: Holdfast, words: tuple[str, ...], mode: str, url: str, dialect: str
) -> None:
    def replace(tx: Any) -> None:
        tx.execute("insert into sale values (1)")
        connection = tx.connection
        for each in words:
            connection.execute(each)

    @app.job("atomic", atomic=True, retry=Retry(max_attempts=1))
    def atomic(job: Job[Any]) -> None:
        replace(job.tx)

    @app.job("staged", retry=Retry(max_attempts=1))
    def staged(job: Job[Any]) -> None:
        with job.complete() as done:
            replace(done.tx)

    @app.job("prepared", retry=Retry(max_attempts=1))
    def prepared(job: Job[Any]) -> None:
        with job.prepare() as tx:
            replace(tx)

    @app.job("async-atomic", atomic=True, retry=Retry(max_attempts=1))
    async def async_atomic(job: Job[Any]) -> None:
        await job.tx.execute("insert into sale values (1)")
        for each in words:
            await job.tx.execute(each)

    handlers: dict[str, Any] = {"atomic": atomic, "staged": staged, "prepared": prepared}
    with app.transaction() as tx:
        chain = app.start(tx, handlers.get(mode, async_atomic))
    Kit(app, url).run_until_idle()
    (job,) = app.jobs.list()
    assert (job.id, job.state) == (chain.id, "failed")
    assert "ended inside its block" in str(job.error)


def test_nested_savepoints_in_words(app: Holdfast, heard: Heard) -> None:
    witness = Witness(app)
    with app.transaction() as tx:
        app.start(tx, "first")
        tx.execute("savepoint outer_part")
        app.start(tx, "undone")
        tx.execute("savepoint inner_part")
        app.start(tx, "undone-too")
        tx.execute("release savepoint inner_part")
        tx.execute("rollback to outer_part")
        app.start(tx, "second")
        assert (heard.hints, witness.events) == ([], [])
    assert_only(app, heard, witness, "first", "second")


async def test_nested_savepoints_in_the_other_colour(app: Holdfast, heard: Heard) -> None:
    witness = Witness(app)
    async with app.transaction() as tx:
        await app.start(tx, "first")
        await tx.execute("savepoint outer_part")
        await tx.execute("savepoint inner_part")
        await app.start(tx, "undone")
        await tx.execute("rollback to inner_part")
        await app.start(tx, "second")
        await tx.execute("release outer_part")
    assert_only(app, heard, witness, "first", "second")


def test_savepoints_on_the_driver_s_own_connection(app: Holdfast, heard: Heard) -> None:
    witness = Witness(app)
    with app.transaction() as tx:
        app.start(tx, "kept")
        tx.connection.execute("savepoint part")
        app.start(tx, "undone")
        tx.connection.cursor().execute("rollback to part")
    assert_only(app, heard, witness, "kept")


@postgresql
def test_psycopg_s_nested_transactions(app: Holdfast, heard: Heard) -> None:
    witness = Witness(app)
    with app.transaction() as tx:
        with tx.connection.transaction():
            app.start(tx, "kept")
            with suppress(Undo), tx.connection.transaction():
                app.start(tx, "undone")
                raise Undo
        with tx.connection.transaction():
            app.start(tx, "rolled-back")
            give_up()
        with tx.connection.transaction(force_rollback=True):
            app.start(tx, "tried")
        tx.connection.execute(sql.SQL("savepoint {}").format(sql.Identifier("Part")))
        app.start(tx, "undone")
        tx.connection.execute(b'rollback to "Part"')
    assert_only(app, heard, witness, "kept")


@postgresql
async def test_psycopg_s_nested_transactions_in_the_other_colour(
    app: Holdfast, heard: Heard
) -> None:
    witness = Witness(app)
    async with app.transaction() as tx:
        async with tx.connection.transaction():
            await app.start(tx, "kept")
        with suppress(Undo):
            async with tx.connection.transaction():
                await app.start(tx, "undone")
                raise Undo
        async with tx.connection.transaction(force_rollback=True):
            await app.start(tx, "tried")
    assert_only(app, heard, witness, "kept")


def test_the_next_transaction_on_a_connection_begins_with_nothing(
    app: Holdfast, heard: Heard
) -> None:
    witness = Witness(app)
    with suppress(Undo), app.transaction() as tx:
        tx.execute("savepoint part")
        app.start(tx, "undone")
        raise Undo
    with app.transaction() as tx:
        app.start(tx, "kept")
    assert_only(app, heard, witness, "kept")


@pytest.mark.parametrize("mode", ["atomic", "staged", "async-atomic", "async-staged"])
def test_in_a_handler_s_completing_transaction(
    app: Holdfast, heard: Heard, mode: str, url: str
) -> None:
    def sync_parts(tx: Any) -> None:
        app.start(tx, "kept")
        tx.execute("savepoint part")
        app.start(tx, "undone")
        tx.execute("rollback to part")

    async def async_parts(tx: Any) -> None:
        await app.start(tx, "kept")
        await tx.execute("savepoint part")
        await app.start(tx, "undone")
        await tx.execute("rollback to part")

    @app.job("atomic", atomic=True)
    def atomic(job: Job[Any]) -> None:
        sync_parts(job.tx)

    @app.job("async-atomic", atomic=True)
    async def async_atomic(job: Job[Any]) -> None:
        await async_parts(job.tx)

    @app.job("staged")
    def staged(job: Job[Any]) -> None:
        with job.complete() as done:
            sync_parts(done.tx)

    @app.job("async-staged")
    async def async_staged(job: Job[Any]) -> None:
        async with job.complete() as done:
            await async_parts(done.tx)

    handlers = {"atomic": atomic, "async-atomic": async_atomic}
    handlers |= {"staged": staged, "async-staged": async_staged}
    witness = Witness(app)
    kit = Kit(app, url)
    with app.transaction() as tx:
        app.start(tx, handlers[mode])
    heard.hints.clear()
    witness.events.clear()
    kit.run_until_idle()
    assert [each.type for each in heard.hints if each.kind == "due"] == ["kept"]
    assert witness.told("job_created") == ["kept"]
