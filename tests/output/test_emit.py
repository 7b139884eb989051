"""What handlers emit is stored along their chain, under the token of the attempt that emits it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Continue, Holdfast, Job, Permanent, Retry, Seal, Snooze, SyncJob
from holdfast.core.errors import (
    DatabaseUnreachable,
    InvalidOption,
    LeaseLost,
    PayloadNotEncodable,
    PayloadTooLarge,
    WrongState,
)
from holdfast_output import add_output, emission_writer
from holdfast_output.emission import BATCH_BYTES, ITEM_BYTES
from holdfast_output.errors import EmitTooLate, OutputFull
from holdfast_output.output_store import NewBatch, append
from holdfast_testing.kit import Kit
from tests.output.scene import OutputScene
from tests.sealed.conftest import NEW

SOON = Retry(base="1s", cap="1s")


def test_what_an_async_handler_emits_is_read_in_order(scene: OutputScene) -> None:
    @scene.job("chat")
    async def chat(job: Job[Any]) -> str:
        for token in ("to", "be", {"or": ["not"]}, None):
            job.emit(token)
        return "done"

    chain = scene.start("chat")
    assert scene.said(chain) == []
    scene.run()
    items = scene.output.read(chain)
    assert [each.data for each in items] == ["to", "be", {"or": ["not"]}, None]
    assert [each.id for each in items] == [1, 2, 3, 4]
    assert {each.epoch for each in items} == {1}
    assert scene.output.read(chain, after=2) == items[2:]
    assert scene.app.chains.get(chain).output == "done"
    (told,) = scene.told("output_written")
    assert (told["type"], told["items"]) == ("chat", 4)


def test_what_a_sync_handler_and_its_threads_emit_is_kept(scene: OutputScene) -> None:
    @scene.job("render")
    def render(job: Job[Any]) -> None:
        threads = [threading.Thread(target=job.emit, args=(page,)) for page in range(20)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()

    chain = scene.start("render")
    scene.run()
    assert sorted(scene.said(chain)) == list(range(20))


def test_the_jobs_of_a_chain_append_to_one_output(scene: OutputScene) -> None:
    @scene.job("first")
    async def first(job: Job[Any]) -> Any:
        job.emit("first")
        return Continue("second")

    @scene.job("second")
    async def second(job: Job[Any]) -> None:
        job.emit("second")

    chain = scene.start("first")
    scene.run()
    items = scene.output.read(chain)
    assert [(each.id, each.epoch, each.data) for each in items] == [
        (1, 1, "first"),
        (2, 1, "second"),
    ]
    assert items[0].job_id != items[1].job_id


def test_a_retry_begins_an_epoch_and_what_the_failed_attempt_said_does_not_count(
    scene: OutputScene,
) -> None:
    @scene.job("chat", retry=SOON)
    async def chat(job: Job[Any]) -> None:
        job.emit(f"attempt {job.attempt}")
        if job.attempt < 4:
            raise ValueError("cut off")

    chain = scene.start("chat")
    for _ in range(4):
        scene.run()
        scene.kit.advance("2s")
    items = scene.output.read(chain)
    assert [(each.epoch, each.data) for each in items] == [(4, "attempt 4")]
    # Of the attempts before it one is kept, for those who look for what went wrong.
    assert scene.rows() == [(3, '["attempt 3"]'), (4, '["attempt 4"]')]


def test_an_attempt_that_snoozes_said_what_it_said_until_the_next_one_emits(
    scene: OutputScene,
) -> None:
    runs: list[int] = []

    @scene.job("poll")
    async def poll(job: Job[Any]) -> Any:
        runs.append(1)
        job.emit(len(runs))
        return Snooze("1s") if len(runs) == 1 else None

    chain = scene.start("poll")
    scene.run()
    assert scene.said(chain) == [1]
    scene.kit.advance("2s")
    scene.run()
    assert scene.said(chain) == [2]


def test_an_atomic_handlers_output_comes_with_its_commit(scene: OutputScene) -> None:
    seen: list[Any] = []

    @scene.job("book", atomic=True, retry=SOON)
    async def book(job: Job[Any]) -> None:
        job.emit(job.attempt)
        if job.attempt == 1:
            raise ValueError("rolled back")

    @scene.job("sync", atomic=True)
    def sync(job: Job[Any]) -> None:
        job.emit("in a thread")

    chains = [scene.start("book"), scene.start("sync")]
    scene.run()
    scene.kit.advance("2s")
    scene.run()
    assert [scene.said(each) for each in chains] == [[2], ["in a thread"]]
    assert len(scene.rows()) == 2, "what was rolled back said nothing"
    assert seen == []


def test_what_is_emitted_before_and_in_complete_is_kept(scene: OutputScene) -> None:
    @scene.job("complete")
    async def complete(job: Job[Any]) -> None:
        job.emit("before")
        async with job.complete():
            job.emit("inside")
        job.emit("after")

    @scene.job("own")
    def own(job: Job[Any]) -> None:
        job.emit("before")
        with scene.app.transaction() as tx:
            job.complete(tx=tx)
            with pytest.raises(EmitTooLate):
                job.emit("after")

    chains = [scene.start("complete"), scene.start("own")]
    scene.run()
    assert [scene.said(each) for each in chains] == [["before", "inside", "after"], ["before"]]
    assert [scene.app.chains.get(each).state for each in chains] == ["completed"] * 2


def test_an_attempt_that_lost_its_job_cannot_emit(scene: OutputScene) -> None:
    raised: list[BaseException] = []

    @scene.job("slow")
    def slow(job: Job[Any]) -> None:
        with scene.app.transaction() as tx:
            scene.app.chains.cancel(tx, job.chain_id)
        job.emit("too late")
        while not raised:
            try:
                job.emit("again")
            except LeaseLost as error:
                raised.append(error)
            job.wait_for_abort(0.01)

    chain = scene.start("slow")
    scene.run()
    assert scene.said(chain) == []
    assert str(raised[0]).startswith("[HF050]")
    assert [each["type"] for each in scene.told("output_refused")] == ["slow"]


def test_a_batch_is_written_once_and_only_under_the_token(scene: OutputScene) -> None:
    batches: list[NewBatch] = []

    @scene.job("hold")
    def hold(job: Job[Any]) -> None:
        claimed = job.claimed
        batch = NewBatch(claimed.chain_id, claimed.id, claimed.token, 1, 2, 1, None, '["a","b"]')
        other = NewBatch(
            claimed.chain_id,
            claimed.id,
            "0193a6f0-7c00-7000-8000-000000000000",
            3,
            3,
            1,
            None,
            "[1]",
        )
        for _ in range(2):
            assert scene.app.database.run(append([batch, other])) == {(claimed.chain_id, 2)}
        batches.append(batch)

    chain = scene.start("hold")
    scene.run()
    assert scene.said(chain) == ["a", "b"]
    assert scene.app.database.run(append(batches)) == set(), "the job has ended"


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (object(), PayloadNotEncodable),
        (float("nan"), PayloadNotEncodable),
        ("a\0b", PayloadNotEncodable),
        ("x" * ITEM_BYTES, PayloadTooLarge),
    ],
)
def test_what_cannot_be_kept_is_refused_where_it_is_emitted(
    sqlite_url: str, data: Any, error: type[Exception]
) -> None:
    scene = OutputScene(sqlite_url)

    @scene.job("chat")
    async def chat(job: Job[Any]) -> None:
        with pytest.raises(error):
            job.emit(data)
        job.emit("fine")

    chain = scene.start("chat")
    scene.run()
    assert scene.said(chain) == ["fine"]
    scene.close()


@pytest.mark.parametrize(
    ("item", "limit"), [("a", {"max_items": 3}), ("a", {"max_bytes": 9}), ("字", {"max_bytes": 15})]
)
def test_what_goes_beyond_the_bound_is_refused_with_a_code(
    sqlite_url: str, item: str, limit: dict[str, int]
) -> None:
    scene = OutputScene(sqlite_url, None, **limit)

    @scene.job("chat")
    async def chat(job: Job[Any]) -> None:
        for _ in range(3):
            job.emit(item)
        with pytest.raises(OutputFull, match="HF206"):
            job.emit("b")

    chain = scene.start("chat")
    scene.run()
    assert scene.said(chain) == [item] * 3
    scene.close()


def test_large_output_is_cut_into_batches(scene: OutputScene) -> None:
    @scene.job("large")
    async def large(job: Job[Any]) -> None:
        for _ in range(10):
            job.emit("x" * (BATCH_BYTES // 4))

    chain = scene.start("large")
    scene.run()
    assert len(scene.said(chain)) == 10
    assert len(scene.rows()) >= 2


def test_a_task_that_outlives_its_handler_cannot_emit(scene: OutputScene) -> None:
    kept: list[Job[Any]] = []

    @scene.job("chat")
    async def chat(job: Job[Any]) -> None:
        job.emit("in time")
        kept.append(job)

    chain = scene.start("chat")
    scene.run()
    with pytest.raises(EmitTooLate, match="HF207"):
        kept[0].emit("too late")
    assert scene.said(chain) == ["in time"]


def test_an_application_without_output_refuses_to_emit(sqlite_url: str) -> None:
    app = Holdfast(sqlite_url)

    @app.job("chat")
    async def chat(job: Job[Any]) -> None:
        with pytest.raises(WrongState, match="add_output"):
            job.emit("a")

    with app.transaction() as tx:
        chain = app.start(tx, "chat")
    kit = Kit(app, sqlite_url)
    kit.run_until_idle()
    assert app.chains.get(chain).state == "completed"
    kit.close()
    app.close()


def test_a_batch_handler_cannot_emit(scene: OutputScene) -> None:
    @scene.job("many", batch=5)
    async def many(jobs: list[Job[Any]]) -> None:
        for job in jobs:
            with pytest.raises(WrongState, match="batch handlers"):
                job.emit("a")

    chain = scene.start("many")
    scene.run()
    assert scene.app.chains.get(chain).state == "completed"


def test_sealed_types_store_what_they_emit_sealed(
    request: pytest.FixtureRequest, sealed_scene: OutputScene
) -> None:
    scene = sealed_scene

    @scene.job("secret", sealed=True)
    async def secret(job: Job[Any]) -> None:
        job.emit("the patient's name")

    chain = scene.start("secret", "in")
    scene.run()
    ((_, stored),) = scene.rows()
    assert "patient" not in stored
    assert scene.said(chain) == ["the patient's name"]


@pytest.fixture(params=["postgres", "sqlite"])
def sealed_scene(request: pytest.FixtureRequest) -> Iterator[OutputScene]:
    """An application that seals, on either database."""
    scene = OutputScene(request.getfixturevalue(f"{request.param}_url"), seal=Seal({"k": NEW}))
    yield scene
    scene.close()


def test_what_a_chain_emitted_goes_with_it(scene: OutputScene) -> None:
    @scene.job("chat")
    async def chat(job: Job[Any]) -> None:
        job.emit("a")

    chain = scene.start("chat")
    kept = scene.start("chat")
    scene.run()
    with scene.app.transaction() as tx:
        scene.app.chains.delete(tx, chain)
    assert len(scene.rows()) == 1
    assert scene.said(kept) == ["a"]


class TestDurableFunctions:
    """A function that goes on is replayed, and says nothing twice."""

    def test_what_was_emitted_before_it_parked_is_not_emitted_again(
        self, scene: OutputScene
    ) -> None:
        ran: list[str] = []

        @scene.job("order")
        async def order(job: Job[Any]) -> None:
            async def charge() -> None:
                ran.append("charge")
                job.emit("in the step")

            job.emit("before")
            await job.step("charge", charge)
            job.emit("between")
            await job.sleep("1h")
            job.emit("after")

        chain = scene.start("order")
        scene.run()
        assert scene.said(chain) == ["before", "in the step", "between"]
        scene.kit.advance("2h")
        scene.run()
        items = scene.output.read(chain)
        assert [each.data for each in items] == ["before", "in the step", "between", "after"]
        assert {each.epoch for each in items} == {1}
        assert [each.id for each in items] == [1, 2, 3, 4]
        assert ran == ["charge"]

    @pytest.mark.parametrize("fails", [False, True], ids=["completes", "fails"])
    def test_a_function_that_only_says_again_what_is_stored_ends_at_once(
        self, scene: OutputScene, fails: bool
    ) -> None:
        @scene.job("order")
        async def order(job: Job[Any]) -> None:
            job.emit("before")
            await job.sleep("1h")
            await job.sleep("1h", key="again")
            if fails:
                raise Permanent("for good")

        chain = scene.start("order")
        for _ in range(3):
            scene.kit.run_until_idle(timeout="10s")
            scene.kit.advance("2h")
        assert scene.app.chains.get(chain).state == ("failed" if fails else "completed")
        assert scene.said(chain) == ["before"]

    @pytest.mark.parametrize("sleeps", [False, True], ids=["at once", "later"])
    def test_what_undoes_a_step_emits_too(self, scene: OutputScene, sleeps: bool) -> None:
        @scene.job("order", retry=Retry(max_attempts=1))
        async def order(job: Job[Any]) -> None:
            async def charge() -> int:
                job.emit("charged")
                return 7

            async def refund(payment: int) -> None:
                job.emit(f"refunded {payment}")

            await job.step("charge", charge, undo=refund)
            if sleeps:
                await job.sleep("1h")
            raise Permanent("for good")

        chain = scene.start("order")
        scene.run()
        scene.kit.advance("2h")
        scene.run()
        (job,) = scene.app.jobs.list("state:failed").items
        assert job.error is not None
        assert job.error.startswith("Permanent: for good")
        assert scene.said(chain) == ["charged", "refunded 7"]

    def test_a_sync_function_says_nothing_twice_either(self, scene: OutputScene) -> None:
        @scene.job("order")
        def order(job: SyncJob[Any]) -> None:
            job.emit("before")
            job.step("charge", job.emit, "in the step")
            job.sleep("1h")
            job.emit("after")

        chain = scene.start("order")
        scene.run()
        scene.kit.advance("2h")
        scene.run()
        assert scene.said(chain) == ["before", "in the step", "after"]

    def test_a_step_that_is_run_again_begins_an_epoch_without_what_it_had_said(
        self, scene: OutputScene
    ) -> None:
        tries: list[int] = []

        @scene.job("order", retry=SOON)
        async def order(job: Job[Any]) -> None:
            async def ask() -> None:
                tries.append(1)
                for token in ("a", "b"):
                    job.emit(f"{token}{len(tries)}")
                if len(tries) < 2:
                    raise ValueError("cut off")

            async def first() -> None:
                job.emit("first")

            job.emit("before")
            await job.step("first", first)
            await job.step("ask", ask)
            job.emit("after")

        chain = scene.start("order")
        scene.run()
        assert scene.said(chain) == ["before", "first", "a1", "b1"]
        scene.kit.advance("1m")
        scene.run()
        items = scene.output.read(chain)
        assert [each.data for each in items] == ["before", "first", "a2", "b2", "after"]
        assert {each.epoch for each in items} == {2}
        assert [each.id for each in items] == sorted(each.id for each in items)
        assert items[0].id > 4, "a reader that follows gets all of the new epoch"

    def test_an_epoch_whose_beginning_was_rolled_back_has_what_was_said_before(
        self, scene: OutputScene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tries, refused = list[int](), list[NewBatch]()

        @scene.job("order", retry=SOON)
        async def order(job: Job[Any]) -> None:
            async def ask() -> None:
                tries.append(1)
                job.emit(f"a{len(tries)}")
                if len(tries) < 2:
                    raise ValueError("cut off")

            job.emit("before")
            await job.step("ask", ask)

        def append_later(batches: list[NewBatch], now: Any) -> Any:
            begun = [each for each in batches if each.epoch == 2]
            if begun and not refused:
                refused.extend(begun)
                raise DatabaseUnreachable("the connection was lost")
            return append(batches, now)

        monkeypatch.setattr(emission_writer, "append", append_later)
        chain = scene.start("order")
        scene.run()
        scene.kit.advance("1m")
        scene.run()
        assert refused
        assert scene.said(chain) == ["before", "a2"]
        assert scene.rows() == [(2, '["before"]'), (2, '["a2"]')]


@pytest.mark.parametrize(
    "options",
    [
        {"flush": "0s"},
        {"flush": "1h"},
        {"max_items": 0},
        {"max_bytes": "16MB"},
        {"max_items": True},
    ],
)
def test_bounds_that_cannot_work_are_refused(options: dict[str, Any], tmp_path: Path) -> None:
    app = Holdfast(f"sqlite:///{tmp_path / 'holdfast.db'}")
    with pytest.raises(InvalidOption, match=next(iter(options))):
        add_output(app, **options)
    add_output(app, flush="10ms", max_items=1, max_bytes=1)
    app.close()
