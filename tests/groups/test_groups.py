"""Groups: progress in one read, one end, one cancel, on both databases."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any, TypeVar
from uuid import uuid4

import pytest
from click.testing import CliRunner

from holdfast import Holdfast, Job, Permanent
from holdfast.admin.access import Role
from holdfast.cli.main import cli
from holdfast.core.errors import ChainNotFound, InvalidOption
from holdfast.settings import read_settings
from holdfast.storage.operation import Op
from holdfast.web.app import create
from holdfast.worker.options import WorkerOptions
from holdfast_groups import GroupProgress, JobGroups, add_groups
from holdfast_groups.cli import bar_of
from holdfast_groups.progress import read_groups, read_progress, read_progress_of
from holdfast_testing.kit import Kit
from tests.support.laws import check_rows
from tests.web.conftest import Api

T = TypeVar("T")
LARGE = 100_000


class GroupScene:
    """An application with groups; its handler fails for negative numbers, and notes what followed."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.app = Holdfast(url)
        self.groups: JobGroups = add_groups(self.app)
        self.followed: list[list[str | None]] = []

        @self.app.job("part")
        def part(job: Job[int]) -> int:
            if job.input < 0:
                raise Permanent("negative")
            return job.input

        @self.app.job("whole")
        def whole(job: Job[Any]) -> str:
            self.followed.append([each.state for each in job.blockers])
            return f"{job.input} is whole"

        self.kit = Kit(self.app, url)

    def start(self, inputs: list[int], **options: Any) -> Any:
        with self.app.transaction() as tx:
            return self.groups.start(tx, "part", inputs, **options)

    def close(self) -> None:
        check_rows(self.app.database)
        self.kit.close()
        self.app.close()


@pytest.fixture(params=["postgres", "sqlite"])
def scene(request: pytest.FixtureRequest) -> Iterator[GroupScene]:
    """An application on either database."""
    scene = GroupScene(request.getfixturevalue(f"{request.param}_url"))
    yield scene
    scene.close()


def test_one_read_says_how_far_a_group_is_and_one_job_follows(scene: GroupScene) -> None:
    group = scene.start([1, 2, -3], on_complete="whole", input="it")
    before = scene.groups.progress(group)
    assert before == GroupProgress(3, 3, 0, 0, 0, 0)
    assert (before.ended, before.fraction) == (0, 0.0)
    scene.kit.run_until_idle()
    after = scene.groups.progress(group.id)
    assert after == GroupProgress(3, 0, 0, 2, 1, 0)
    assert after.fraction == 1.0
    assert scene.followed == [["completed", "completed", "failed"]]
    assert scene.app.chains.get(group).output == "it is whole"


def test_a_group_without_a_follower_ends_by_itself(scene: GroupScene) -> None:
    group = scene.start([1, 2])
    scene.kit.run_until_idle()
    assert scene.app.chains.get(group).state == "completed"


def test_a_group_is_cancelled_with_what_follows(scene: GroupScene) -> None:
    group = scene.start(list(range(5)), on_complete="whole")
    with scene.app.transaction() as tx:
        assert scene.groups.cancel(tx, group, "wrong book") == 5
    assert scene.groups.progress(group) == GroupProgress(5, 0, 0, 0, 0, 5)
    scene.kit.run_until_idle()
    assert scene.followed == []
    chain = scene.app.chains.get(group)
    assert (chain.state, chain.error) == ("cancelled", "Cancelled: wrong book")
    with scene.app.transaction() as tx:
        assert scene.groups.cancel(tx, group) == 0


def test_a_cancelled_group_keeps_what_had_ended(scene: GroupScene) -> None:
    group = scene.start([1, 2, 3])
    first = scene.app.chains.list("type:part")[-1]
    with scene.app.transaction() as tx:
        scene.app.chains.complete(tx, first.id, 7)
    with scene.app.transaction() as tx:
        assert scene.groups.cancel(tx, group) == 2
    assert scene.groups.progress(group) == GroupProgress(3, 0, 0, 1, 0, 2)


def test_parts_with_the_same_key_count_once(scene: GroupScene) -> None:
    with scene.app.transaction() as tx:
        parts = scene.app.start_many(tx, "part", [1, 2], keys=["a", "b"])
    assert scene.groups.progress_of([*parts, uuid4()]).total == 2


async def test_groups_take_async_transactions(scene: GroupScene) -> None:
    async with scene.app.transaction() as tx:
        group = await scene.groups.start(tx, "part", [1, 2], on_complete="whole")
    assert (await scene.groups.aio.progress(group)).waiting == 2
    async with scene.app.transaction() as tx:
        assert await scene.groups.cancel(tx, group) == 2
    assert (await scene.groups.aio.progress_of([group])).cancelled == 1


def test_what_cannot_be_a_group_is_refused(scene: GroupScene) -> None:
    with pytest.raises(InvalidOption, match="without inputs, start on_complete"):
        scene.start([])
    with pytest.raises(InvalidOption, match="there is no on_complete that would get the input"):
        scene.start([1], input="book")
    for inputs in (5, "abc"):
        with pytest.raises(InvalidOption, match="is not a list of inputs"):
            scene.start(inputs)  # type: ignore[arg-type]
    with pytest.raises(ChainNotFound):
        scene.groups.progress(uuid4())
    with scene.app.transaction() as tx, pytest.raises(ChainNotFound):
        scene.groups.cancel(tx, uuid4())
    assert not list(scene.app.chains.list())


def test_the_command_line_draws_a_bar_and_cancels(scene: GroupScene) -> None:
    group = scene.start([1, 2, 3, 4])
    shown = CliRunner().invoke(cli, ["groups", "show", str(group.id), "--url", scene.url])
    assert shown.exit_code == 0, shown.output
    assert "0 % · 0 of 4" in shown.output
    asked = CliRunner().invoke(cli, ["groups", "cancel", str(group.id), "--url", scene.url])
    assert asked.exit_code != 0
    assert "about to cancel 1 group" in asked.output
    assert scene.groups.progress_of([group]).cancelled == 0
    ended = CliRunner().invoke(
        cli, ["groups", "cancel", str(group.id), "--yes", "--url", scene.url]
    )
    assert ended.exit_code == 0, ended.output
    assert f"{group.id}: 4 chains cancelled" in ended.output
    again = CliRunner().invoke(
        cli, ["groups", "cancel", str(group.id), "--yes", "-o", "json", "--url", scene.url]
    )
    assert json.loads(again.stdout) == [{"id": str(group.id), "cancelled": 0}]
    assert f"{group.id}: all of it had ended" in again.stderr
    words = ["groups", "show", str(group.id), "--watch", "-o", "json", "--url", scene.url]
    watched = CliRunner().invoke(cli, words)
    row = json.loads(watched.stdout)
    assert (row["cancelled"], row["fraction"]) == (4, 1.0)
    assert "100 % · 4 of 4" in watched.stderr


def test_the_newest_groups_are_listed(scene: GroupScene) -> None:
    first, second = scene.start([1, 2]), scene.start([1, -2, 3], on_complete="whole")
    with scene.app.transaction() as tx:
        scene.app.start(tx, "whole", 1, blockers=[first])
    words = ["groups", "list", "-o", "json", "--url", scene.url]
    listed = json.loads(CliRunner().invoke(cli, words).stdout)
    found = [(each["id"], each["type"], each["ended"], each["total"]) for each in listed]
    ids = (str(second.id), str(first.id))
    table = CliRunner().invoke(cli, ["groups", "list", "--url", scene.url]).stdout.splitlines()
    assert (table[0].split()[-1], "." in table[1].split()[-1]) == ("CREATED", False)
    assert found == [(ids[0], "whole", 0, 3), (ids[1], "holdfast.group", 0, 2)]
    scene.kit.run_until_idle()
    read = scene.app.database.read
    (latest,) = read(read_groups(1))
    assert (latest.id, latest.state, latest.ended, latest.is_counted) == (
        ids[0],
        "completed",
        3,
        True,
    )
    assert [each.id for each in read(read_groups(5, before=latest.id))] == [ids[1]]


async def test_pages_show_bars_and_cancel_a_group(scene: GroupScene) -> None:
    group = scene.start([1, 2, 3, 4], on_complete="whole")
    first = scene.app.chains.list("type:part")[-1]
    with scene.app.transaction() as tx:
        scene.app.chains.complete(tx, first.id, 7)
    served = create(scene.app, settings=read_settings({}))
    api = Api(served, scene.app)
    (listed,) = (await api.call(Role.VIEWER, "GET", "/api/v1/groups?limit=1")).json()["items"]
    assert (listed["id"], listed["ended"], listed["counted"]) == (str(group.id), 1, True)
    page = (await api.call(Role.VIEWER, "GET", "/groups")).text
    assert '<progress max="4" value="1"' in page
    assert "25 %" in page
    assert "Cancel" not in page
    card = (await api.call(Role.OPERATOR, "GET", f"/jobs/{group.id}")).text
    assert "<h2>Group</h2>" in card
    assert "Cancel group" in card
    other = (await api.call(Role.OPERATOR, "GET", f"/jobs/{first.id}")).text
    assert "<h2>Group</h2>" not in other
    form = {"move": "cancel", "id": str(group.id), "back": "/groups"}
    refused = await api.call(Role.VIEWER, "POST", "/groups", data=form)
    assert refused.status_code == 403
    done = await api.call(Role.OPERATOR, "POST", "/groups", data=form)
    assert done.status_code == 303, done.text
    assert scene.groups.progress(group) == GroupProgress(4, 0, 0, 1, 0, 3)
    await served.state.site.close()


def test_a_bar_is_full_only_at_the_end() -> None:
    assert bar_of(999, 1000).count("░") == 1
    assert bar_of(1000, 1000).count("░") == 0
    assert bar_of(0, 0).endswith("100 % · 0 of 0")


def test_a_group_is_followed_once_though_workers_die_in_it(scene: GroupScene) -> None:
    group = scene.start([1, 2, -3, 4], on_complete="whole", input="it")
    scene.kit.crash("part")
    scene.kit.run_until_idle()
    assert scene.groups.progress(group) == GroupProgress(4, 0, 1, 2, 1, 0)
    assert scene.followed == []
    scene.kit.advance("2m")
    scene.kit.run_until_idle()
    scene.kit.advance("2m")
    scene.kit.run_until_idle()
    assert len(scene.followed) == 1
    assert sorted(map(str, scene.followed[0])) == ["completed"] * 3 + ["failed"]
    assert scene.app.chains.get(group.id).output == "it is whole"


def counted(op: Op[T], names: list[str]) -> Op[T]:
    """Run an operation, and note its statements."""
    rows: Any = None
    try:
        while True:
            statement = op.send(rows)
            names.append(statement.name)
            rows = yield statement
    except StopIteration as end:
        result: T = end.value
        return result


@pytest.mark.lasting
def test_a_hundred_thousand_are_counted_in_one_read_and_cancelled(scene: GroupScene) -> None:
    began = time.perf_counter()
    group = scene.start(list(range(LARGE)), on_complete="whole")
    started = time.perf_counter()
    names: list[str] = []
    client = scene.app.client
    progress = client.read(counted(read_progress(client.store, str(group.id)), names))
    read = time.perf_counter()
    with scene.app.transaction() as tx:
        assert scene.groups.cancel(tx, group) == LARGE
    ended = time.perf_counter()
    print(
        f"start {started - began:.1f} s, read {read - started:.2f} s, cancel {ended - read:.1f} s"
    )
    assert names == ["group_progress"]
    assert progress == GroupProgress(LARGE, LARGE, 0, 0, 0, 0)
    assert scene.groups.progress(group) == GroupProgress(LARGE, 0, 0, 0, 0, LARGE)
    assert (scene.app.chains.get(group).state, scene.followed) == ("cancelled", [])


@pytest.mark.lasting
def test_one_job_follows_a_hundred_thousand_and_any_of_them_are_counted_in_one_read(
    scene: GroupScene,
) -> None:
    with scene.app.transaction() as tx:
        parts = scene.app.start_many(tx, "part", list(range(LARGE)))
        ids = [each.id for each in parts]
        group = scene.app.start(tx, "whole", "it", blockers=ids, on_blocker_failure="run")
    began = time.perf_counter()
    asyncio.run(
        scene.app.make_worker(WorkerOptions(slots=50, batch=200, stop_when_idle=True)).run()
    )
    ended = time.perf_counter()
    names: list[str] = []
    op = counted(read_progress_of([str(each) for each in ids]), names)
    any_of_them = scene.app.client.read(op)
    read = time.perf_counter()
    of_group = scene.groups.progress(group)
    last = time.perf_counter()
    print(
        f"all ended and followed after {ended - began:.1f} s, read by ids {read - ended:.2f} s,"
        f" by group {last - read:.2f} s"
    )
    assert names == ["group_progress_of"]
    assert any_of_them == of_group == GroupProgress(LARGE, 0, 0, LARGE, 0, 0)
    assert [len(each) for each in scene.followed] == [LARGE]
    assert scene.app.chains.get(group).output == "it is whole"
