"""Starting chains: types, keys, ids, times, priorities and blockers mean the same on both databases."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from holdfast import Chain, Holdfast, Job, Start
from holdfast.commands.chains import end_chain
from holdfast.commands.retention import FIRST_ID, Ages, remove_chains
from holdfast.core.errors import (
    ChainNotFound,
    InputInvalid,
    InvalidDuration,
    InvalidId,
    InvalidName,
    InvalidOption,
    UnknownJobType,
)
from holdfast.core.ids import bucket_of_key
from holdfast.storage.id_generator import new_id
from tests.support.buckets import bucket_of
from tests.support.until import PATIENCE_S

PRODUCERS = 64


@pytest.fixture
def strict(app: Holdfast, url: str) -> Holdfast:
    """An application on the same database that starts only what it knows."""
    return Holdfast(url, hints=False)


def start(app: Holdfast, *arguments: Any, **options: Any) -> Chain:
    with app.transaction() as tx:
        return app.start(tx, *arguments, **options)


def finish(app: Holdfast, chain: Chain, state: Any, output: str | None = None) -> None:
    app.database.run(end_chain(app.database.store, str(chain.id), state, output=output))


async def test_a_new_chain_shows_what_was_asked(app: Holdfast) -> None:
    chain = start(app, "mail.send", {"to": "ana"}, key="welcome")
    assert isinstance(chain.id, UUID)
    assert (chain.type, chain.state, chain.key, chain.jobs) == (
        "mail.send",
        "pending",
        "welcome",
        1,
    )
    assert (chain.input, chain.output, chain.error) == ({"to": "ana"}, None, None)
    assert (chain.deduplicated, chain.created_at, chain.finished_at) == (False, None, None)
    assert str(chain.id) in repr(chain)
    assert "ana" not in repr(chain)


async def test_a_handler_is_started_by_itself_or_by_name(strict: Holdfast) -> None:
    @strict.job("mail.send")
    def send(job: Job[dict[str, int]]) -> None: ...

    assert start(strict, send, {"n": 1}).type == start(strict, "mail.send", {"n": 1}).type
    strict.close()


async def test_an_unknown_type_is_refused_with_both_ways_out(strict: Holdfast) -> None:
    strict.declare("mail.send")
    with strict.transaction() as tx:
        with pytest.raises(UnknownJobType) as refusal:
            strict.start(tx, "mail.sned")
        with pytest.raises(UnknownJobType, match="not a registered handler"):
            strict.start(tx, print)
        strict.start(tx, "mail.send", {"any": "input"})
    for way in ("mail.send?", "app.declare('mail.sned')", "open_types=True"):
        assert way in refusal.value.help
    assert len(strict.jobs.list()) == 1
    strict.close()


async def test_a_declared_type_is_checked(strict: Holdfast) -> None:
    strict.declare("mail.send", dict[str, int])
    with strict.transaction() as tx, pytest.raises(InputInvalid):
        strict.start(tx, "mail.send", {"n": "one"})
    strict.close()


async def test_with_open_types_names_still_have_to_be_names(app: Holdfast) -> None:
    with app.transaction() as tx, pytest.raises(InvalidName):
        app.start(tx, "mail send")


async def test_a_type_that_only_continues_chains_begins_none(app: Holdfast) -> None:
    @app.job("order.ship", entry=False)
    def ship(job: Job[None]) -> None: ...

    with app.transaction() as tx, pytest.raises(InvalidOption, match="entry=False"):
        app.start(tx, ship)


async def test_one_open_chain_stands_for_all_starts_with_its_key(app: Holdfast) -> None:
    first = start(app, "order.charge", 1, key="k")
    again = start(app, "order.charge", 2, key="k")
    assert (again.id, again.deduplicated, again.input) == (first.id, True, 1)
    assert again.created_at is not None
    assert start(app, "order.refund", 3, key="k").id != first.id
    assert len(app.chains.list()) == 2


async def test_a_deduplicated_start_shows_the_chain_s_true_state(app: Holdfast) -> None:
    first = start(app, "order.charge", key="k")
    finish(app, first, "completed", output='{"paid":true}')
    again = start(app, "order.charge", key="k", scope="any")
    assert (again.id, again.state, again.output) == (first.id, "completed", {"paid": True})
    assert again.finished_at is not None


async def test_a_start_with_scope_any_is_answered_by_a_chain_that_is_no_longer_kept(
    app: Holdfast,
) -> None:
    first = start(app, "order.charge", {"order": 1}, key="k", scope="any")
    finish(app, first, "completed")
    late = app.database.read(app.database.store.schema.clock()) + 40 * 86_400_000_000
    ages = Ages(chains=30, dead_letters=90, runs=30)
    app.database.run(remove_chains(app.database.store, ages, FIRST_ID, 10, late))
    again = start(app, "order.charge", key="k", scope="any")
    assert (again.id, again.state, again.deduplicated) == (first.id, "removed", True)
    assert (again.type, again.key, again.jobs, again.input) == ("order.charge", "k", 0, None)
    assert start(app, "order.charge", key="k", scope="any", exclude=[again]).state == "pending"


async def test_a_key_is_free_when_its_chain_completed_but_not_when_it_failed(app: Holdfast) -> None:
    first = start(app, "order.charge", key="k")
    finish(app, first, "failed")
    assert start(app, "order.charge", key="k").id == first.id
    other = start(app, "order.charge", key="l")
    finish(app, other, "completed")
    assert not start(app, "order.charge", key="l").deduplicated


async def test_a_window_and_exclusions_free_a_key(app: Holdfast) -> None:
    first = start(app, "order.charge", key="k", window="0s")
    second = start(app, "order.charge", key="k", window="1h")
    assert second.id != first.id
    assert start(app, "order.charge", key="k").id == second.id
    assert start(app, "order.charge", key="k", exclude=[second]).id != second.id


async def test_keys_repeated_within_one_batch_are_one_chain(app: Holdfast) -> None:
    with app.transaction() as tx:
        chains = app.start_many(tx, "mail", range(4), keys=["b", "a", "b", None])
        more = app.start_many(tx, "mail", range(2), keys=["a", "c"])
    assert [each.deduplicated for each in chains] == [False, False, True, False]
    assert chains[2].id == chains[0].id
    assert chains[2].input == 0
    assert (more[0].id, more[0].deduplicated) == (chains[1].id, True)
    assert len(app.chains.list()) == 4


async def test_thousands_of_chains_are_started_together(app: Holdfast) -> None:
    with app.transaction() as tx:
        chains = app.start_many(tx, "mail", ({"n": n} for n in range(3000)), priority=7)
    assert len({each.id for each in chains}) == 3000
    assert [each.input for each in chains[:3]] == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert app.jobs.get(chains[2999]).priority == 7


async def test_nothing_to_start_is_no_mistake(app: Holdfast) -> None:
    with app.transaction() as tx:
        assert app.start_many(tx, "mail", []) == []
        assert app.start_all(tx, []) == []


async def test_different_chains_are_started_together(app: Holdfast) -> None:
    with app.transaction() as tx:
        root = app.start(tx, "root")
        chains = app.start_all(
            tx,
            [
                Start("mail", 1, key="k", priority=0),
                Start("mail", 2, key="k"),
                Start("sms", 3, blockers=[root]),
            ],
        )
    assert [each.state for each in chains] == ["pending", "pending", "blocked"]
    assert [each.deduplicated for each in chains] == [False, True, False]


async def test_a_caller_made_id_can_be_repeated_without_harm(app: Holdfast) -> None:
    made = new_id()
    first = start(app, "mail", 1, id=made)
    again = start(app, "mail", 1, id=UUID(made))
    assert (str(first.id), first.deduplicated) == (made, False)
    assert (again.id, again.deduplicated) == (first.id, True)
    assert len(app.chains.list()) == 1


async def test_everything_started_with_one_key_has_the_key_s_bucket(app: Holdfast) -> None:
    key = "invoice 7"
    with app.transaction() as tx:
        ids = [
            app.start(tx, "mail", 1, key=key).id,
            app.start(tx, "sms", 1, key=key, id=app.new_id(key)).id,
            *(each.id for each in app.start_many(tx, "push", [1, 2], keys=[key, None])),
        ]
    buckets = [bucket_of(str(each)) for each in ids]
    assert buckets[:3] == [bucket_of_key(key)] * 3
    with pytest.raises(InvalidOption, match="NUL"):
        app.new_id("a\0b")


async def test_an_id_that_belongs_to_another_chain_is_refused(app: Holdfast) -> None:
    made = str(start(app, "mail").id)
    with app.transaction() as tx, pytest.raises(InvalidId, match="another job"):
        app.start(tx, "sms", id=made)


@pytest.mark.parametrize("other", ["mail.send", "mail.count"])
async def test_one_id_for_two_chains_of_a_batch_is_refused(app: Holdfast, other: str) -> None:
    id = app.new_id()
    with pytest.raises(InvalidId, match="twice"), app.transaction() as tx:
        app.start_all(tx, [Start("mail.send", id=id), Start(other, id=id)])
    assert len(app.chains.list()) == 0


async def test_ids_have_to_be_of_version_7(app: Holdfast) -> None:
    bad_ids: list[Any] = ["", "nonsense", str(uuid4()), uuid4(), 7]
    with app.transaction() as tx:
        for bad in bad_ids:
            with pytest.raises(InvalidId):
                app.start(tx, "mail", id=bad)
            with pytest.raises((InvalidId, ChainNotFound)):
                app.start(tx, "mail", blockers=[bad])


async def test_a_time_in_the_past_means_now(app: Holdfast) -> None:
    long_ago = datetime(1999, 1, 1, tzinfo=UTC)
    job = app.jobs.get(start(app, "mail", at=long_ago))
    assert job.planned_at == long_ago
    assert job.available_at == job.created_at


async def test_a_later_time_is_kept_exactly(app: Holdfast) -> None:
    at = datetime(2999, 12, 31, 23, 59, 59, 123456, tzinfo=UTC)
    job = app.jobs.get(start(app, "mail", at=at))
    assert job.planned_at == job.available_at == at


async def test_a_delay_is_counted_by_the_database_s_clock(app: Holdfast) -> None:
    with app.transaction() as tx:
        chains = [
            app.start(tx, "mail", after="90s"),
            *app.start_many(tx, "mail", [1], after=timedelta(seconds=90)),
            *app.publish(tx, "placed", after=90),
        ]
    for chain in chains:
        job = app.jobs.get(chain)
        assert job.available_at is not None
        delay = job.available_at - job.created_at
        assert timedelta(seconds=80) < delay <= timedelta(seconds=90)


BAD_OPTIONS: list[tuple[dict[str, Any], type[Exception]]] = [
    ({"priority": 10}, InvalidOption),
    ({"priority": -1}, InvalidOption),
    ({"priority": True}, InvalidOption),
    ({"priority": "high"}, InvalidOption),
    ({"max_attempts": 0}, InvalidOption),
    ({"max_attempts": 2**31}, InvalidOption),
    ({"max_attempts": True}, InvalidOption),
    ({"max_attempts": 2.5}, InvalidOption),
    ({"blockers": None}, InvalidOption),
    ({"blockers": 5}, InvalidOption),
    ({"blockers": "01890000-0000-7000-8000-000000000000"}, InvalidOption),
    ({"at": datetime(2030, 1, 1)}, InvalidOption),  # noqa: DTZ001
    ({"at": "tomorrow"}, InvalidOption),
    ({"at": datetime.now(UTC), "after": "1s"}, InvalidOption),
    ({"after": "soon"}, InvalidDuration),
    ({"after": -1}, InvalidDuration),
    ({"scope": "never", "key": "k"}, InvalidOption),
    ({"window": "1h"}, InvalidOption),
    ({"scope": "any"}, InvalidOption),
    ({"on_blocker_failure": "panic"}, InvalidOption),
    ({"key": ""}, InvalidOption),
    ({"key": "a\0b"}, InvalidOption),
    ({"key": "\ud800"}, InvalidOption),
    ({"key": "é" * 513}, InvalidOption),
    ({"key": 7}, InvalidOption),
    ({"colour": "red"}, InvalidOption),
]


async def test_options_that_cannot_be_used_are_refused_before_anything_is_written(
    app: Holdfast,
) -> None:
    with app.transaction() as tx:
        for options, error in BAD_OPTIONS:
            with pytest.raises(error):
                app.start(tx, "refused", **options)
        with pytest.raises(InvalidOption, match="2 inputs but 1 keys"):
            app.start_many(tx, "refused", [1, 2], keys=["a"])
        with pytest.raises(InvalidOption, match="need keys"):
            app.start_many(tx, "refused", [1, 2], window="1h")
        app.start(tx, "kept")
    assert [each.type for each in app.jobs.list()] == ["kept"]


async def test_the_longest_key_of_the_longest_name_fits(app: Holdfast) -> None:
    name, key = "é" * 200, "🐎" * 256
    assert start(app, name, key=key).id == start(app, name, key=key).id


async def test_limits_of_attempts_and_priorities_are_kept(app: Holdfast) -> None:
    job = app.jobs.get(start(app, "mail", priority=0, max_attempts=3))
    assert (job.priority, job.max_attempts, job.attempt) == (0, 3, 0)
    usual = app.jobs.get(start(app, "mail"))
    assert (usual.priority, usual.max_attempts) == (5, None)


async def test_a_chain_waits_for_its_blockers(app: Holdfast) -> None:
    first, second = start(app, "first"), start(app, "second")
    waiting = start(app, "last", blockers=[first, second.id])
    assert waiting.state == "blocked"
    finish(app, first, "completed")
    assert app.chains.get(waiting).state == "blocked"
    finish(app, second, "completed")
    assert app.chains.get(waiting).state == "pending"


async def test_a_chain_whose_blockers_have_ended_is_open_at_once(app: Holdfast) -> None:
    done = start(app, "first")
    finish(app, done, "completed")
    assert start(app, "last", blockers=[done]).state == "pending"


async def test_an_unknown_blocker_is_refused_and_nothing_is_written(app: Holdfast) -> None:
    with app.transaction() as tx:
        known = app.start(tx, "first")
        with pytest.raises(ChainNotFound):
            app.start(tx, "last", key="k", blockers=[known, new_id()])
        assert not app.start(tx, "last", key="k").deduplicated
    assert sorted(each.type for each in app.jobs.list()) == ["first", "last"]


async def test_publishing_reaches_every_subscriber_and_waits_for_the_first(app: Holdfast) -> None:
    with app.transaction() as tx:
        (early,) = app.publish(tx, "placed", 1, priority=3)
    assert early.type == "placed"

    @app.on("placed")
    def mail(job: Job[int]) -> None: ...

    @app.on("placed", name="stock")
    async def reserve(job: Job[int]) -> None: ...

    app.migrate()
    with app.transaction() as tx:
        both = app.publish(tx, "placed", 2)
    assert [each.type for each in both] == ["placed/mail", "placed/stock"]
    assert len({each.id for each in both}) == 2
    found = app.jobs.list("state:pending type:placed/*")
    assert sorted((each.type, each.input) for each in found) == [
        ("placed/mail", 1),
        ("placed/mail", 2),
        ("placed/stock", 1),
        ("placed/stock", 2),
    ]


async def test_a_chain_s_output_is_read_as_a_type(app: Holdfast) -> None:
    chain = start(app, "mail")
    finish(app, chain, "completed", output="[1,2]")
    assert app.chains.get(chain).output_as(list[int]) == [1, 2]


@pytest.mark.parametrize("dialect", ["postgresql"])
async def test_64_producers_of_one_key_start_one_chain(app: Holdfast, url: str) -> None:
    together = Barrier(PRODUCERS)

    def produce(number: int) -> Chain:
        with psycopg.connect(url) as connection:
            together.wait(PATIENCE_S)
            return app.start(connection, "contested", number, key="one")

    with ThreadPoolExecutor(PRODUCERS) as producers:
        chains = list(producers.map(produce, range(PRODUCERS)))
    assert len({each.id for each in chains}) == 1
    assert sum(not each.deduplicated for each in chains) == 1
    assert len(app.jobs.list()) == 1


@pytest.mark.parametrize("dialect", ["postgresql"])
async def test_batches_of_the_same_keys_in_any_order_do_not_lock_each_other_out(
    app: Holdfast, url: str
) -> None:
    keys = [f"key {number}" for number in range(200)]
    together = Barrier(2)

    def produce(order: list[str]) -> list[Chain]:
        with psycopg.connect(url) as connection:
            together.wait(PATIENCE_S)
            return app.start_many(connection, "mail", order, keys=order)

    with ThreadPoolExecutor(2) as producers:
        answers = list(producers.map(produce, [keys, keys[::-1]]))
    assert {each.id for each in answers[0]} == {each.id for each in answers[1]}
    assert len(app.chains.list(limit=1000)) == 200


async def test_every_start_of_a_versioned_type_stores_its_version(strict: Holdfast) -> None:
    strict.declare("mail.send", version=3)
    strict.declare("mail.old")
    strict.declare("mail.sent", version=2)
    with strict.transaction() as tx:
        plain = strict.start(tx, "mail.send")
        keyed = strict.start(tx, "mail.send", key="k", priority=1)
        (many,) = strict.start_many(tx, "mail.send", [None])
        (event,) = strict.publish(tx, "mail.sent")
        old = strict.start(tx, "mail.old")
        strict.chains.continue_with(tx, old, "mail.send")
    found = [strict.jobs.get(each.id).version for each in (plain, keyed, many, event, old)]
    assert found == [3, 3, 3, 2, 1]
    (next,) = [each for each in strict.jobs.list("type:mail.send") if each.chain_id == old.id]
    assert next.version == 3
    strict.close()


async def test_the_version_of_a_type_that_is_not_known_here_can_be_given(
    app: Holdfast, strict: Holdfast
) -> None:
    chain = start(app, "mail.elsewhere", 1, version=2)
    assert app.jobs.get(chain.id).version == 2
    assert app.jobs.get(start(app, "mail.elsewhere", 1, version=1).id).version == 1
    strict.declare("mail.send", version=3)
    assert start(strict, "mail.send", version=3).state == "pending"
    for target, version in (("mail.send", 2), ("mail.send", 0)):
        with pytest.raises(InvalidOption):
            start(strict, target, version=version)
    with pytest.raises(InvalidOption):
        start(app, "mail.elsewhere", version=0)
    strict.close()


async def test_a_start_says_when_it_expires(app: Holdfast) -> None:
    before = datetime.now(UTC)
    hour = timedelta(hours=1)
    chains = [
        start(app, "mail.send", 1, expires="1h"),
        start(app, "mail.send", 2, expires=before + hour),
        start(app, "mail.send", 3, expires="1h", after="10m", key="with-a-key"),
        start(app, "mail.send", 4),
    ]
    jobs = [app.jobs.get(each.id) for each in chains]
    times = [each.expires_at for each in jobs]
    assert times[3] is None
    for each in times[:3]:
        assert each is not None
        assert abs(each - before - hour) < timedelta(minutes=5)


async def test_a_type_gives_its_time_to_starts_that_have_none(app: Holdfast) -> None:
    async def short(job: Job[int]) -> None: ...

    app.job("code.send", expires="5m")(short)
    before = datetime.now(UTC)
    chains = [
        start(app, short, 1),
        start(app, short, 2, after="1h"),
        start(app, short, 3, at=before + timedelta(hours=1)),
        start(app, short, 4, expires="1h"),
    ]
    with app.transaction() as tx:
        chains += app.start_many(tx, short, [5])
    minutes = []
    for each in chains:
        job = app.jobs.get(each.id)
        assert job.expires_at is not None
        minutes.append(round((job.expires_at - before).total_seconds() / 60))
    assert minutes == [5, 65, 65, 60, 5]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"expires": "5m", "after": "10m"}, "before it is due"),
        ({"expires": 0}, "before it is due"),
        (
            {"expires": datetime(2030, 1, 1, tzinfo=UTC), "at": datetime(2030, 1, 2, tzinfo=UTC)},
            "before it is due",
        ),
        ({"expires": datetime(2030, 1, 1)}, "expires=datetime.* not a time with a time zone"),  # noqa: DTZ001
        ({"expires": "5m", "debounce": "1s", "key": "doc"}, "expires cannot be combined"),
    ],
)
async def test_a_time_to_expire_that_cannot_work_is_refused(
    app: Holdfast, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidOption, match=said):
        start(app, "mail.send", 1, **options)
    assert not list(app.chains.list())
