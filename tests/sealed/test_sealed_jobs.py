"""Sealed jobs run as others do, and nobody without the key reads their payloads."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

import pytest

from holdfast import Busy, Continue, Fair, Holdfast, Job, Limit, Permanent, Retry, Seal, errors
from holdfast.commands.explain import look_around, why
from holdfast.core.sealing import is_sealed
from holdfast.scheduler.doctor import Finding
from holdfast.scheduler.doctor.checks import run_checks
from holdfast.settings import load_settings
from holdfast_testing.kit import Kit
from tests.sealed.conftest import NEW, OLD, MakeKit, Patient

ANA = Patient("Ana Sol")
GATES_SQLITE, GATES_POSTGRES = "select id from holdfast_gate", "select id from holdfast.gate"
COPY_SQLITE = (
    "update holdfast_job set input = (select input from holdfast_job where id = ?) where id = ?"
)
COPY_POSTGRES = (
    "update holdfast.job set input = (select input from holdfast.job where id = %s) where id = %s"
)


def start(kit: Kit, target: Any = "letter.write", input: Any = ANA, **options: Any) -> Any:
    with kit.app.transaction() as tx:
        return kit.app.start(tx, target, input, **options)


def stored(kit: Kit, id: Any) -> tuple[str, str | None]:
    """Return input and output of a job as the database has them."""
    store = kit.app.database.store
    (record,) = kit.app.database.read(store.jobs.get([str(id)]))
    return record.input, record.output


def sentence(kit: Kit, id: Any) -> str:
    database = kit.app.database
    (record,) = database.read(database.store.jobs.get([str(id)]))
    return why(record, database.read(look_around(database.store, record)))


def examined(kit: Kit) -> list[Finding]:
    async def run() -> list[Finding]:
        try:
            return await run_checks(kit.app.database, load_settings())
        finally:
            await kit.app.aclose()

    return asyncio.run(run())


def copy_input(kit: Kit, source: Any, target: Any) -> None:
    """Give a job the stored input of another, as someone who can write to the database could."""
    copy = COPY_SQLITE if kit.app.url.startswith("sqlite") else COPY_POSTGRES
    with kit.app.transaction() as tx:
        tx.execute(copy, (str(source), str(target)))


def test_input_and_output_are_stored_sealed_and_read_in_clear(kit: Kit) -> None:
    chain = start(kit)
    assert chain.input == asdict(ANA)
    kit.run_until_idle()
    done = kit.app.chains.wait(chain, timeout="5s")
    assert done.output == "Dear Ana Sol"
    assert all(map(is_sealed, filter(None, stored(kit, chain.id))))
    (job,) = kit.started()
    assert (job.input, job.output) == (asdict(ANA), "Dear Ana Sol")
    assert kit.app.chains.get(chain).output == "Dear Ana Sol"


def test_options_start_many_and_start_all_seal_too(kit: Kit) -> None:
    from holdfast import Start

    with kit.app.transaction() as tx:
        kit.app.start_many(tx, "letter.write", [ANA, ANA], keys=["a", "b"])
        kit.app.start_all(tx, [Start("letter.write", ANA, priority=1)])
        kit.app.start(tx, "letter.write", ANA, after="1h")
    jobs = kit.started()
    assert len(jobs) == 4
    assert all(is_sealed(stored(kit, each.id)[0]) for each in jobs)
    kit.run_until_idle()
    assert [each.state for each in kit.started()].count("completed") == 3


def test_a_process_without_the_key_sees_everything_but_the_payloads(
    kit: Kit, make_kit: MakeKit
) -> None:
    chain = start(kit, key="patient:7")
    kit.run_until_idle()
    other = make_kit(None)
    job = other.app.jobs.get(chain.id)
    assert (job.state, job.key) == ("completed", "patient:7")
    with pytest.raises(errors.SealKeyMissing, match="'new', which this process does not have"):
        _ = job.input
    with pytest.raises(errors.SealKeyMissing):
        _ = job.output
    with pytest.raises(errors.SealKeyMissing):
        _ = other.app.chains.get(chain).output
    with pytest.raises(errors.SealKeyMissing):
        _ = other.app.chains.wait(chain.id, timeout="5s").output


def test_a_sealed_type_is_not_started_without_a_key(make_kit: MakeKit) -> None:
    kit = make_kit(None)
    with pytest.raises(errors.SealKeyMissing, match=r"letter\.write is sealed") as refusal:
        start(kit)
    assert "HOLDFAST_SEAL_KEYS" in refusal.value.help
    assert kit.started() == []


def test_a_worker_without_the_key_leaves_the_job_waiting_for_one_that_has_it(
    kit: Kit, make_kit: MakeKit
) -> None:
    chain = start(kit)
    other = make_kit(Seal({"third": Seal.new_key()}))
    other.run_until_idle()
    job = other.app.jobs.get(chain.id)
    assert (job.state, job.attempt) == ("pending", 0)
    assert sentence(other, chain.id).startswith(
        "Waiting for a key that opens its input: sealed with the key 'new', which this process"
    )
    found = {each.check: each for each in examined(other)}
    assert found["sealed"].verdict == "warning"
    assert "letter.write, sealed with the key 'new'" in found["sealed"].measured
    assert found["unreadable"].verdict == "ok"
    kit.run_until_idle()
    assert kit.app.chains.wait(chain, timeout="5s").output == "Dear Ana Sol"


def test_the_input_of_another_job_is_refused(kit: Kit) -> None:
    first, second = start(kit), start(kit, input=Patient("Ben Luz"))
    copy_input(kit, first.id, second.id)
    with pytest.raises(errors.SealBroken, match="cannot be opened with the key 'new'"):
        _ = kit.app.jobs.get(second.id).input
    kit.run_until_idle()
    assert [kit.app.jobs.get(each.id).state for each in (first, second)] == ["completed", "pending"]
    assert "cannot be opened" in sentence(kit, second.id)


def test_another_key_of_the_same_id_opens_nothing(kit: Kit, make_kit: MakeKit) -> None:
    chain = start(kit)
    other = make_kit(Seal({"new": OLD}))
    with pytest.raises(errors.SealBroken):
        _ = other.app.jobs.get(chain.id).input


def test_keys_are_rotated_while_jobs_wait(make_kit: MakeKit) -> None:
    before = make_kit(Seal({"old": OLD}))
    waiting = start(before)
    during = make_kit(Seal({"old": OLD, "new": NEW}, current="new"))
    fresh = start(during)
    assert '"key":"new"' in stored(during, fresh.id)[0]
    during.run_until_idle()
    assert '"key":"new"' in str(stored(during, waiting.id)[1])
    after = make_kit(Seal({"new": NEW}))
    assert after.app.chains.get(waiting).output == "Dear Ana Sol"
    with pytest.raises(errors.SealKeyMissing, match="'old'"):
        _ = after.app.chains.get(waiting).input


def test_jobs_from_before_a_type_was_sealed_run_and_their_output_is_sealed(
    kit: Kit, url: str
) -> None:
    plain = Holdfast(url, open_types=True)
    with plain.transaction() as tx:
        chain = plain.start(tx, "letter.write", asdict(ANA))
    plain.close()
    kit.run_until_idle()
    input, output = stored(kit, chain.id)
    assert not is_sealed(input)
    assert is_sealed(str(output))


def test_a_type_that_is_not_registered_here_is_sealed_on_request(kit: Kit, url: str) -> None:
    producer = Holdfast(url, seal=Seal({"new": NEW}), open_types=True)
    with producer.transaction() as tx:
        chain = producer.start(tx, "letter.write", asdict(ANA), sealed=True)
    producer.close()
    assert is_sealed(stored(kit, chain.id)[0])
    kit.run_until_idle()
    assert kit.app.chains.get(chain).output == "Dear Ana Sol"
    with pytest.raises(errors.InvalidOption, match="is sealed"):
        start(kit, sealed=False)


def test_a_continued_chain_seals_what_each_type_says(kit: Kit) -> None:
    app = kit.app

    @app.job("letter.plan", sealed=True)
    async def plan(job: Job[Patient]) -> Continue:
        return Continue("letter.write", job.input)

    chain = start(kit, plan)
    kit.run_until_idle()
    first, second = app.chains.jobs(chain)
    assert first.input == second.input == asdict(ANA)
    assert is_sealed(stored(kit, second.id)[0])
    assert app.chains.get(chain).output == "Dear Ana Sol"


def test_a_blocked_job_gets_the_opened_output(kit: Kit) -> None:
    app, seen = kit.app, list[Any]()

    @app.job("letter.send")
    async def send(job: Job[None]) -> None:
        seen.append(job.blockers[0].output)
        raise Permanent(f"not sent: {job.blockers[0].output}")

    written = start(kit)
    sent = start(kit, send, None, blockers=[written])
    kit.run_until_idle()
    assert seen == ["Dear Ana Sol"]
    assert app.jobs.blockers(sent.id)[0].output == "Dear Ana Sol"
    assert "Ana" not in str(app.jobs.get(sent.id).error)


def test_completing_and_continuing_from_outside_seal(kit: Kit) -> None:
    app = kit.app
    first, second = start(kit), start(kit)
    with app.transaction() as tx:
        assert app.chains.complete(tx, first, "By hand for Ana").output == "By hand for Ana"
        app.chains.continue_with(tx, second, "letter.write", Patient("Ben Luz"))
    assert is_sealed(str(stored(kit, first.id)[1]))
    assert [each.input["name"] for each in app.chains.jobs(second)] == ["Ana Sol", "Ben Luz"]
    kit.run_until_idle()
    assert app.chains.get(second).output == "Dear Ben Luz"


def test_each_delivery_of_an_event_opens_it(kit: Kit) -> None:
    app, seen = kit.app, list[str]()
    with app.transaction() as tx:
        app.declare("patient.moved", Patient, sealed=True)
        app.publish(tx, "patient.moved", ANA)

    @app.on("patient.moved", name="mail", sealed=True)
    async def mail(job: Job[Patient]) -> None:
        seen.append(f"mail {job.input.name}")

    @app.on("patient.moved", name="count", sealed=True)
    async def count(job: Job[Patient]) -> None:
        seen.append(f"count {job.input.name}")

    app.subscribe_handlers()
    with app.transaction() as tx:
        app.publish(tx, "patient.moved", Patient("Ben Luz"))
    jobs = kit.started()
    assert all(is_sealed(stored(kit, each.id)[0]) for each in jobs)
    kit.run_until_idle()
    assert sorted(seen) == ["count Ana Sol", "count Ben Luz", "mail Ana Sol", "mail Ben Luz"]
    with pytest.raises(errors.InvalidOption, match="differ in sealed="):
        app.on("patient.moved", name="other")(lambda job: None)


def test_events_from_before_a_subscription_are_opened_after_a_replay(kit: Kit, url: str) -> None:
    app, seen = kit.app, list[str]()

    @app.on("patient.moved", name="mail", sealed=True)
    async def mail(job: Job[Patient]) -> None: ...

    app.subscribe_handlers()
    with app.transaction() as tx:
        app.publish(tx, "patient.moved", ANA)
    kit.run_until_idle()

    @app.on("patient.moved", name="late", since="2020-01-01", sealed=True)
    async def late(job: Job[Patient]) -> None:
        seen.append(job.input.name)

    kit.run_until_idle()
    kit.run_until_idle()
    assert seen == ["Ana Sol"]


def test_a_debounced_job_opens_its_last_input(kit: Kit) -> None:
    first = start(kit, key="patient:7", debounce="1m")
    again = start(kit, input=Patient("Ben Luz"), key="patient:7", debounce="1m")
    assert again.id == first.id
    with kit.app.transaction() as tx:
        names = ("Cai Rey", "Dana Paz")
        chains = kit.app.start_many(
            tx, "letter.write", [Patient(each) for each in names], keys=["x", "x"], debounce="1m"
        )
    assert chains[0].id == chains[1].id
    kit.advance("2m")
    kit.run_until_idle()
    assert kit.app.chains.get(first).output == "Dear Ben Luz"
    assert kit.app.chains.get(chains[0]).output == "Dear Dana Paz"


def test_keys_of_limits_are_computed_before_sealing(kit: Kit, url: str) -> None:
    app = kit.app

    @app.job("scan.read", sealed=True, limits=[Limit(1, by="clinic")], fair=Fair(by="clinic"))
    async def read(job: Job[Patient]) -> str:
        return job.input.name

    plain = Holdfast(url, seal=Seal({"new": NEW}), open_types=True)
    with plain.transaction() as tx:
        # Started where the limit is not known, so a worker has to open it to line it up.
        plain.start(tx, "scan.read", asdict(ANA), sealed=True)
    plain.close()
    chain = start(kit, read)
    kit.run_until_idle()
    assert app.chains.get(chain).output == "Ana Sol"
    query = GATES_SQLITE if url.startswith("sqlite") else GATES_POSTGRES
    with app.transaction() as tx:
        found = {row[0] for row in tx.execute(query).fetchall()}
    assert found == {"scan.read#north"}
    assert [each.state for each in kit.started("scan.read")] == ["completed", "completed"]


def test_errors_say_what_and_where_but_not_their_text(kit: Kit) -> None:
    app = kit.app

    @app.job("bad", sealed=True, retry=Retry(max_attempts=1))
    async def bad(job: Job[Patient]) -> None:
        try:
            raise KeyError(job.input.name)
        except KeyError as error:
            raise ValueError(f"no record of {job.input.name}") from error

    @app.job("busy", sealed=True)
    async def busy(job: Job[Patient]) -> None:
        raise Busy("1h", f"no room for {job.input.name}")

    @app.job("batch", sealed=True, batch=5, retry=Retry(max_attempts=1))
    async def batch(jobs: list[Job[Patient]]) -> None:
        raise ValueError(jobs[0].input.name)

    dead, full, one = start(kit, bad), start(kit, busy), start(kit, batch)
    kit.run_until_idle()
    text = str(app.jobs.get(dead.id).error)
    assert text.startswith("ValueError: (the text is sealed)\n")
    assert "in bad" in text
    assert "after KeyError:" in text
    texts = [text, app.jobs.get(one.id).error, *(e.error for e in app.jobs.attempts(full.id))]
    assert all("Ana" not in str(each) for each in texts)
    with pytest.raises(errors.ChainFailed) as failed:
        app.chains.wait(dead, timeout="5s")
    assert "Ana" not in str(failed.value)


def test_an_input_that_does_not_decode_is_not_repeated(kit: Kit, url: str) -> None:
    plain = Holdfast(url, seal=Seal({"new": NEW}), open_types=True)
    with plain.transaction() as tx:
        chain = plain.start(tx, "letter.write", {"Ana Sol": 7}, sealed=True)
    plain.close()
    kit.run_until_idle()
    assert kit.app.jobs.get(chain.id).state == "pending"
    assert "the sealed input cannot be read as Patient" in sentence(kit, chain.id)


def test_a_payload_in_clear_cannot_pass_for_a_sealed_one(kit: Kit) -> None:
    kit.app.declare("anything")
    with pytest.raises(errors.PayloadNotEncodable, match=r"begins like a sealed one"):
        start(kit, "anything", {"$sealed": {"key": "new", "data": ""}})


def test_a_sealed_job_is_found_by_its_key_without_the_key_that_opens_it(
    kit: Kit, make_kit: MakeKit
) -> None:
    chain, _ = start(kit, key="patient:7"), start(kit, key="patient:8")
    stranger = make_kit(None).app
    for search in ("key:patient:7", "key:patient:7 type:letter.write state:pending"):
        (found,) = stranger.jobs.list(search)
        assert found.id == chain.id
    assert not stranger.jobs.list("key:Ana").items
