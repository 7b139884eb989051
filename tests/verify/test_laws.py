"""Each law of rows finds what breaks it, names it, and finds nothing in a database at work."""

import asyncio
import json
import re
import sqlite3
from contextlib import closing
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from click.testing import CliRunner, Result

from holdfast import Holdfast
from holdfast.cli.exit_codes import Exit
from holdfast.cli.main import cli
from holdfast.commands.start import StartRequest, start_chains
from holdfast.core.errors import Permanent
from holdfast.core.flow import Limit, Rate
from holdfast.core.outcome import Continue
from holdfast.core.records import NewBlocker, NewJob
from holdfast.storage.id_generator import new_id
from holdfast.worker.job import Job
from holdfast_verify.laws import LAWS, Breach, check_laws
from tests.support.laws import breaches_of
from tests.support.until import until
from tests.worker.workshop import Workshop

ANY_ID = str(uuid4())

PLANTED = {
    "one-state": "delete from holdfast.outcome where job_id = '{done}'",
    "no-orphans": "insert into holdfast.failing (job_id, attempt) values ('{any}', 1)",
    "unbroken-chains": "update holdfast.job set chain_index = 7 where id = '{second}'",
    "linked-chains": "update holdfast.outcome set continued = {true} where job_id = '{done}'",
    "held-by-a-lease": "update holdfast.queue set token = '{any}' where job_id = '{waiting}'",
    "permits-are-recorded": "update holdfast.gate set holders = {nobody} where id = 'held#a'",
    "limits-hold": """
        update holdfast.gate set holders = {and_queued} where id in ('held#a', 'held');
        update holdfast.queue set token = (select token from holdfast.queue where job_id = '{held}')
         where job_id = '{queued}'""",
    "fences-grow": "update holdfast.attempt set fence = fence * 2 where job_id = '{failed}'",
    "blocked-by-something": "delete from holdfast.blocker where job_id = '{blocked}'",
    "waits-are-kept": "update holdfast.queue set available_at = {now} where job_id = '{blocked}'",
    "ends-are-noticed": "update holdfast.blocker set chain_id = '{done}' where job_id = '{blocked}'",
    "tallies-agree": "delete from holdfast.tally where failed > 0",
    "keys-have-chains": "insert into holdfast.chain_key (type, key, chain_id) values ('t', 'k', '{any}')",
    "readers-within-the-log": "insert into holdfast.log_position (reader, line, position) values ('r', 1, 99)",
}
"""A row that breaks each law, and no other that need not break with it."""

TORN_TOO = {
    "one-state": {"tallies-agree"},
    "unbroken-chains": {"linked-chains"},
    "limits-hold": {"fences-grow"},
}
"""What is broken by the same row for good reason."""

COUNTED = "insert into holdfast.tally (at, type, {column}) values ({now}, 'done', 3)"
ANCIENT = "insert into holdfast.progress (job_id, fence, fraction, note, at) values ('{held}', {fence}, 0, '', {now})"


async def work(workshop: Workshop) -> dict[str, str]:
    """Leave jobs of all kinds behind; return some of them."""

    async def done(job: Job[int]) -> int:
        return job.input

    async def chained(job: Job[int]) -> Continue:
        return Continue("done", job.input)

    async def broken(job: Job[int]) -> None:
        raise Permanent("broken")

    async def hold(job: Job[dict[str, str]]) -> None:
        holding.set()
        await asyncio.Event().wait()

    holding = asyncio.Event()
    workshop.handle("done", done)
    workshop.handle("chained", chained)
    workshop.handle("broken", broken)
    workshop.handle("limited", done, limits=[Limit(1)])
    workshop.handle("held", hold, limits=[Limit(1, by="key"), Limit(2)], rates=[Rate(9, "1h")])
    names = {
        "done": await workshop.start_one("done", 1),
        "first": await workshop.start_one("chained", 1),
        "failed": await workshop.start_one("broken", 1),
    }
    await workshop.start("limited", 1, count=3, gate="limited#")
    await workshop.until_idle()
    names["waiting"] = await workshop.start_one("never", 1)
    names["blocked"] = new_id()
    # Of a type that nobody takes: a worker would, as soon as the row says that it is due.
    job = NewJob(names["blocked"], names["blocked"], "never", "1", blockers=1)
    edge = NewBlocker(job.id, 0, names["waiting"])
    await workshop.run(start_chains(workshop.store, [StartRequest(job, None, (edge,))]))
    chain = await workshop.run(workshop.store.chains.tails([names["first"]]))
    names["held"], names["queued"] = await workshop.start("held", {"key": "a"}, 2, gate="held#a")
    running = workshop.begin()
    await holding.wait()
    await until(lambda: running.worker.counters.heartbeats > 0)
    return {**names, "second": chain[0].job_id, "any": ANY_ID, "partition": "held#a"}


@pytest.fixture
def url(workshop: Workshop, request: pytest.FixtureRequest) -> str:
    """The address of the workshop's database, with its password."""
    if workshop.store.dialect == "sqlite":
        return workshop.database.url
    found: str = request.getfixturevalue("worker_url")
    return found


def damage(url: str, statement: str, names: dict[str, str]) -> None:
    """Change a row by SQL, as no statement of ours does."""
    if url.startswith("postgresql"):
        with psycopg.connect(url, autocommit=True) as connection:
            words = {"true": "true", "now": "now()", "nobody": "'{}'"}
            words["and_queued"] = f"holders || '{names['queued']}'::uuid"
            text = statement.format(**names, **words)
            connection.execute(text.encode())
        return
    words = {"true": "1", "now": "1", "nobody": "'[]'"}
    words["and_queued"] = f"json_insert(holders, '$[#]', '{names['queued']}')"
    text = statement.format(**names, **words).replace("holdfast.", "holdfast_")
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
        file.executescript(text)


async def broken_laws(workshop: Workshop) -> dict[str, list[Any]]:
    verdicts = await workshop.run(check_laws())
    return {each.law.name: list(each.breaches) for each in verdicts if each.breaches}


def test_every_law_has_its_damage() -> None:
    assert PLANTED.keys() == {each.name for each in LAWS}


async def test_a_database_at_work_keeps_all_laws(workshop: Workshop) -> None:
    await work(workshop)
    await workshop.claim_for_nobody("never")
    assert breaches_of(await workshop.run(check_laws())) == []


@pytest.mark.parametrize("law", [each.name for each in LAWS])
async def test_a_law_names_the_row_that_breaks_it(workshop: Workshop, url: str, law: str) -> None:
    names = await work(workshop)
    damage(url, PLANTED[law], names)
    found = await broken_laws(workshop)
    assert law in found
    assert found.keys() <= {law} | TORN_TOO.get(law, set())
    (breach,) = found[law][:1]
    assert breach.subject in {*names.values(), "broken", "t k", "r"}
    assert breach.text


async def test_a_gap_in_a_chain_is_told_alike_on_both_stores(workshop: Workshop, url: str) -> None:
    names = await work(workshop)
    damage(url, PLANTED["unbroken-chains"], names)
    (breach,) = (await broken_laws(workshop))["unbroken-chains"]
    assert breach == Breach(names["first"], "it has 2 jobs, numbered up to 8")


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        (
            "delete from holdfast.tally where type = 'done'",
            "the tally says 0 completed and the rows 2",
        ),
        (
            COUNTED.replace("{column}", "completed"),
            "the tally says -3 in the queue and the rows 0, the tally says 5 completed and the rows 2",
        ),
        (
            COUNTED.replace("{column}", "cancelled"),
            "the tally says -3 in the queue and the rows 0, the tally says 3 cancelled and the rows 0",
        ),
        (
            "update holdfast.outcome set state = 'cancelled' where job_id = '{done}'",
            "the tally says 2 completed and the rows 1, the tally says 0 cancelled and the rows 1",
        ),
    ],
    ids=["gone", "completed", "cancelled", "moved"],
)
async def test_the_tally_is_held_against_all_rows_of_a_type(
    workshop: Workshop, url: str, statement: str, found: str
) -> None:
    damage(url, statement, await work(workshop))
    assert await broken_laws(workshop) == {"tallies-agree": [Breach("done", found)]}


async def test_an_event_that_was_fanned_out_is_in_no_count(workshop: Workshop, url: str) -> None:
    with closing(Holdfast(url)) as app:
        with app.transaction() as tx:
            app.publish(tx, "placed", 1)

        @app.on("placed", name="mail")
        def mail(job: Job[int]) -> None: ...

        app.subscribe_handlers()
    assert await broken_laws(workshop) == {}


@pytest.mark.parametrize("lowered", ["fence - 1", "1"])
async def test_the_fence_of_a_claim_that_was_set_back_is_found(
    workshop: Workshop, url: str, lowered: str
) -> None:
    names = await work(workshop)
    statement = "update holdfast.queue set fence = {lowered} where job_id = '{held}'"
    damage(url, statement, names | {"lowered": lowered})
    found = await broken_laws(workshop)
    assert found.keys() == {"fences-grow"}
    (breach,) = found["fences-grow"]
    assert breach.subject == names["held"]
    assert re.fullmatch(
        r"it is claimed with the fence \d+, the lowest at that time was \d+", breach.text
    )


@pytest.mark.parametrize(
    "statement",
    ["update holdfast.identity set fence_base = 7", "delete from holdfast.identity"],
    ids=["moved", "without an identity"],
)
async def test_fences_begin_where_those_of_the_server_before_ended(
    postgres_workshop: Workshop, worker_url: str, statement: str
) -> None:
    damage(worker_url, statement, {"queued": ""})
    names = await work(postgres_workshop)
    assert await broken_laws(postgres_workshop) == {}
    damage(worker_url, "update holdfast.queue set fence = fence - 1 where job_id = '{held}'", names)
    assert (await broken_laws(postgres_workshop)).keys() == {"fences-grow"}


async def test_progress_beyond_the_fence_of_its_job_is_found(workshop: Workshop, url: str) -> None:
    names = await work(workshop)
    damage(url, ANCIENT, names | {"fence": "5"})
    assert await broken_laws(workshop) == {}
    damage(url, "update holdfast.progress set fence = {fence}", names | {"fence": str(2**60)})
    (breach,) = (await broken_laws(workshop))["fences-grow"]
    assert (breach.subject, breach.text.partition(",")[0]) == (
        names["held"],
        f"a row of progress has the fence {2**60}",
    )


async def ask(url: str, *words: str) -> Result:
    """Run the command on the workshop's database."""
    command = ["verify", "--url", url, *words]
    return await asyncio.to_thread(CliRunner().invoke, cli, command)


async def test_the_command_says_that_all_laws_hold(workshop: Workshop, url: str) -> None:
    await work(workshop)
    answer = await ask(url)
    assert answer.exit_code == Exit.OK
    assert answer.stderr.splitlines()[-1] == f"all {len(LAWS)} laws hold"


@pytest.mark.parametrize(
    ("law", "name"),
    [("one-state", "done"), ("permits-are-recorded", "held"), ("limits-hold", "partition")],
)
async def test_the_command_ends_with_the_rows_and_its_own_code(
    workshop: Workshop, url: str, law: str, name: str
) -> None:
    names = await work(workshop)
    damage(url, PLANTED[law], names)
    answer = await ask(url, "-o", "json")
    assert answer.exit_code == Exit.CHECK_NOT_MET
    rows = {each["law"]: each["breaches"] for each in json.loads(answer.stdout)}
    (breach,) = rows[law]
    assert breach["subject"] == names[name]
    assert f"{law}: {names[name]}: " in answer.stderr


@pytest.mark.parametrize(
    ("limit", "named", "rows"), [(2, 2, "2+ rows"), (7, 7, "7 rows"), (20, 7, "7 rows")]
)
async def test_the_command_says_that_there_are_more_rows_than_it_names(
    workshop: Workshop, url: str, limit: int, named: int, rows: str
) -> None:
    damage(url, "delete from holdfast.outcome", await work(workshop))
    answer = await ask(url, "--limit", str(limit))
    assert f" {rows}\n" in answer.stdout
    assert ("one-state: there are more; raise --limit" in answer.stderr) is (named < 7)
    answer = await ask(url, "--limit", str(limit), "-o", "json")
    laws = {each["law"]: each for each in json.loads(answer.stdout)}
    assert (len(laws["one-state"]["breaches"]), laws["one-state"]["more"]) == (named, named < 7)
    assert laws["no-orphans"]["more"] is False
