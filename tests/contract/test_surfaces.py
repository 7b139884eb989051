"""Every command means the same through every surface: what it does, what it leaves, how it refuses, what is audited.

The Python API in both colours, HTTP, the pages' forms, the command line and the live view get the same scene.
"""

from __future__ import annotations

import asyncio
import html
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import httpx
import pytest
import pytest_asyncio
from click.testing import CliRunner, Result

import holdfast.commands
from holdfast import Holdfast
from holdfast.admin.access import LOCAL, MAX_REASON_LENGTH, Caller, Gateway
from holdfast.cli.exit_codes import Exit
from holdfast.cli.main import cli
from holdfast.commands.start import StartRequest, start_chains
from holdfast.core.errors import HoldfastError, InvalidOption
from holdfast.core.records import NewBlocker, NewJob
from holdfast.settings import read_settings
from holdfast.storage.id_generator import new_id
from holdfast.web.app import create
from holdfast_top.screen import TopSource
from tests.archive.scene import OCTOBER, SEPTEMBER, Deliveries, declare
from tests.cli.scene import Scene
from tests.support.limited_scene import MAIL, LimitedScene

HOST = "http://127.0.0.1"
SAME_SITE = {"Sec-Fetch-Site": "same-origin"}
CODE = re.compile(r"\bHF\d{3}\b")

Surface = Callable[[str, list[str]], Awaitable[str | None]]
"""Carries a command out for ids; returns the code of the refusal, None when it was done."""


@pytest.fixture(params=["sqlite_url", "postgres_url"], ids=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of each store in turn."""
    found: str = request.getfixturevalue(request.param)
    return found


@pytest_asyncio.fixture
async def app(url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Holdfast]:
    """A migrated application that the commands find too."""
    monkeypatch.setenv("HOLDFAST_URL", url)
    app = Holdfast(url, open_types=True)

    @app.cycle("cleanup", every="1h")
    async def cleanup(run: Any) -> None: ...

    @app.cycle("tidy", every="1h", sharded=True)
    async def tidy(run: Any) -> None: ...

    app.migrate()
    for index in ("0", "1"):
        shard = {"WORKER_TICK_SHARD_INDEX": index, "WORKER_TICK_SHARD_COUNT": "2"}
        tick = app.assembly(read_settings(shard)).tick()
        await tick.run()
        await tick.close()
    yield app
    await app.aclose()


@pytest.fixture
def scene(app: Holdfast) -> Scene:
    """The application's database, to be filled."""
    return Scene(app.database)


def python(app: Holdfast, tx: Any, command: str, ids: list[str]) -> Any:
    """Call the Python API, in the colour of the transaction."""
    calls: dict[str, Callable[..., Any]] = {
        "job.retry": app.dead_letters.redrive,
        "job.cancel": app.jobs.cancel,
        "job.run_now": app.jobs.trigger,
        "dead.redrive": app.dead_letters.redrive,
        "dead.drop": app.dead_letters.drop,
        "chain.cancel": app.chains.cancel,
        "chain.delete": app.chains.delete,
        "worker.drain": app.workers.drain,
        "cycle.run_now": app.cycles.run_now,
        "cycle.pause": app.cycles.pause,
        "cycle.resume": app.cycles.resume,
        "subscription.remove": app.subscriptions.remove,
    }
    return calls[command](tx, *ids)


ROUTES = {
    "job.retry": "/api/v1/jobs/retry",
    "job.cancel": "/api/v1/jobs/cancel",
    "job.run_now": "/api/v1/jobs/run-now",
    "dead.redrive": "/api/v1/dead-letters/redrive",
    "dead.drop": "/api/v1/dead-letters/drop",
    "chain.cancel": "/api/v1/chains/{}/cancel",
    "chain.delete": "/api/v1/chains/{}",
    "worker.drain": "/api/v1/workers/{}/drain",
    "cycle.run_now": "/api/v1/cycles/{}/run-now",
    "cycle.pause": "/api/v1/cycles/{}/pause",
    "cycle.resume": "/api/v1/cycles/{}/resume",
    "type.pause": "/api/v1/types/{}/pause",
    "type.resume": "/api/v1/types/{}/resume",
    "subscription.remove": "/api/v1/subscriptions/{}/{}",
    "subscription.replay": "/api/v1/subscriptions/{}/{}/replay",
}
BODIES = {"subscription.replay": {"since": "1d"}}
ARCHIVE_ROUTES = {
    "archive.verify": "/api/v1/archive/manifests/{}/verify",
    "archive.restore": "/api/v1/archive/manifests/{}/restore",
}
DELETED = {"chain.delete", "subscription.remove"}
WORDS = {
    "job.retry": ("jobs", "retry"),
    "job.cancel": ("jobs", "cancel"),
    "job.run_now": ("jobs", "run-now"),
    "dead.redrive": ("dead", "redrive"),
    "dead.drop": ("dead", "drop"),
    "chain.cancel": ("chains", "cancel"),
    "chain.delete": ("chains", "delete"),
    "worker.drain": ("workers", "drain"),
    "cycle.run_now": ("cycles", "run-now"),
    "cycle.pause": ("cycles", "pause"),
    "cycle.resume": ("cycles", "resume"),
    "type.pause": ("types", "pause"),
    "type.resume": ("types", "resume"),
    "subscription.remove": ("events", "unsubscribe"),
    "subscription.replay": ("events", "replay"),
}
ARGUMENTS: dict[str, Callable[[list[str]], list[str]]] = {
    "subscription.replay": lambda ids: [ids[0], "--to", ids[1], "--since", "1d", "--yes"]
}
FORMS: dict[str, tuple[str, Callable[[list[str]], dict[str, Any]]]] = {
    "job.retry": ("/jobs/move", lambda ids: {"move": "retry", "id": ids}),
    "job.cancel": ("/jobs/move", lambda ids: {"move": "cancel", "id": ids}),
    "job.run_now": ("/jobs/move", lambda ids: {"move": "run_now", "id": ids}),
    "chain.cancel": ("/chains/{}", lambda ids: {"move": "cancel"}),
    "chain.delete": ("/chains/{}", lambda ids: {"move": "delete"}),
    "worker.drain": ("/workers", lambda ids: {"move": "drain", "name": ids}),
    "cycle.run_now": ("/cycles", lambda ids: {"move": "run_now", "name": ids}),
    "cycle.pause": ("/cycles", lambda ids: {"move": "pause", "name": ids}),
    "cycle.resume": ("/cycles", lambda ids: {"move": "resume", "name": ids}),
    "type.pause": ("/types", lambda ids: {"move": "pause", "name": ids}),
    "type.resume": ("/types", lambda ids: {"move": "resume", "name": ids}),
    "subscription.remove": (
        "/system",
        lambda ids: {"move": "remove", "event": ids[0], "handler": ids[1]},
    ),
    "subscription.replay": (
        "/system",
        lambda ids: {"move": "replay", "type": "/".join(ids), "since": "1d"},
    ),
    "archive.verify": ("/archive", lambda ids: {"move": "verify", "name": ids}),
    "archive.restore": ("/archive", lambda ids: {"move": "restore", "name": ids}),
}
CONFIRMED = dict.fromkeys(
    ("job.cancel", "dead.drop", "chain.delete", "subscription.remove", "archive.restore"),
    ("--yes",),
)
SURFACES = ("sync", "async", "http", "pages", "cli", "top")
AUDITED = ("http", "pages", "cli", "top")


class Surfaces:
    """Every surface over the same database."""

    def __init__(self, app: Holdfast) -> None:
        self.app = app
        self.words = ""
        """What the last refusal said."""
        self.served = create(app, settings=read_settings({}))
        self._transport = httpx.ASGITransport(self.served, client=("127.0.0.1", 50_000))

    def client(self) -> httpx.AsyncClient:
        """A browser or program at this machine."""
        return httpx.AsyncClient(transport=self._transport, base_url=HOST)

    def __getitem__(self, name: str) -> Surface:
        """The surface of a name."""
        found: Surface = getattr(self, f"_{name}")
        return found

    async def _sync(self, command: str, ids: list[str]) -> str | None:
        def call() -> None:
            with self.app.transaction() as tx:
                python(self.app, tx, command, ids)

        return await self._code(asyncio.to_thread(call))

    async def _async(self, command: str, ids: list[str]) -> str | None:
        async def call() -> None:
            async with self.app.transaction() as tx:
                await python(self.app, tx, command, ids)

        return await self._code(call())

    async def _http(self, command: str, ids: list[str]) -> str | None:
        path = (ROUTES | ARCHIVE_ROUTES)[command]
        async with self.client() as client:
            if "{}" not in path:
                answer = await client.post(path, json={"ids": ids})
            elif command in DELETED:
                answer = await client.delete(path.format(*ids))
            else:
                answer = await client.post(path.format(*ids), json=BODIES.get(command, {}))
        if answer.is_success:
            return None
        found = answer.json()
        self.words = f"{found['detail']}\n{found['help']}"
        return str(found["code"])

    async def _pages(self, command: str, ids: list[str]) -> str | None:
        path, fields = FORMS[command]
        async with self.client() as client:
            address = path.format(*ids[:1])
            answer = await client.post(address, data=fields(ids), headers=SAME_SITE)
        if answer.status_code < 400:
            return None
        self.words = html.unescape(answer.text)
        found = CODE.search(answer.text)
        return found.group() if found else answer.text

    async def _cli(self, command: str, ids: list[str]) -> str | None:
        result = await asyncio.to_thread(
            command_line,
            *(WORDS.get(command) or command.split(".")),
            *(ARGUMENTS[command](ids) if command in ARGUMENTS else ids),
            *CONFIRMED.get(command, ()),
        )
        self.words = result.stderr
        found = CODE.search(result.stderr)
        if found is None and result.exit_code not in (Exit.OK, Exit.PARTLY):
            return f"exit {result.exit_code}: {result.output}"
        return found.group() if found else None

    async def _top(self, command: str, ids: list[str]) -> str | None:
        return await self._code(TopSource(Gateway(self.app), Caller(LOCAL)).act(command, ids[0]))

    async def _code(self, call: Awaitable[Any]) -> str | None:
        try:
            await call
        except HoldfastError as error:
            self.words = f"{error.message}\n{error.help}"
            return error.code
        return None


def command_line(*words: str) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(cli, list(words))


@pytest_asyncio.fixture
async def surfaces(app: Holdfast) -> AsyncIterator[Surfaces]:
    """Every surface over the same database."""
    found = Surfaces(app)
    yield found
    await found.served.state.site.close()


# The live view acts on groups of dead letters and knows no chains; the pages act on groups too.
# Types and replays are a matter of operators, so the Python API has no command for them.
OF_OPERATORS = {"type.pause", "type.resume", "subscription.replay"}
OF_SUBSCRIPTIONS = {"subscription.remove", "subscription.replay"}
LACKS = {
    "sync": OF_OPERATORS,
    "async": OF_OPERATORS,
    "top": {"chain.cancel", "chain.delete", "dead.redrive", "dead.drop"} | OF_SUBSCRIPTIONS,
    "pages": {"dead.redrive", "dead.drop"},
}
ONE_AT_A_TIME = {"top"}


def having(command: str, several: bool = False) -> list[str]:
    """The surfaces that have a command."""
    return [
        name
        for name in SURFACES
        if command not in LACKS.get(name, ()) and not (several and name in ONE_AT_A_TIME)
    ]


def make(scene: Scene, state: str) -> str:
    """Make a job in a state."""
    if state == "running":
        return scene.running(f"t{new_id()[-6:]}").id
    if state == "failed":
        return scene.failed(type=f"t{new_id()[-6:]}")
    if state == "completed":
        return scene.ended("complete", f"t{new_id()[-6:]}")
    if state == "blocked":
        return scene.start("waits", blockers=(scene.start("first"),))
    return scene.start("later", at=4_000_000_000_000_000)


MOVES = {
    "job.retry": ("failed", "pending"),
    "job.cancel": ("pending", "cancelled"),
    "job.run_now": ("pending", "pending"),
    "dead.redrive": ("failed", "pending"),
    "dead.drop": ("failed", None),
    "chain.cancel": ("running", "cancelled"),
    "chain.delete": ("completed", None),
}
WRONG = {
    "job.retry": "completed",
    "job.cancel": "failed",
    "job.run_now": "blocked",
    "dead.redrive": "pending",
    "dead.drop": "running",
    "chain.cancel": "completed",
}

VERBS = {
    "job.retry": "retry",
    "job.cancel": "cancel",
    "job.run_now": "run",
    "dead.redrive": "redrive",
    "dead.drop": "drop",
    "chain.cancel": "cancel",
}


def state_of(scene: Scene, id: str) -> str | None:
    found = scene.database.read(scene.store.jobs.get([id]))
    return found[0].state if found else None


@pytest.mark.parametrize("command", MOVES)
async def test_a_command_does_the_same_through_every_surface(
    command: str, surfaces: Surfaces, scene: Scene
) -> None:
    before, after = MOVES[command]
    noun = "job" if command.startswith("job") or command == "dead.redrive" else "chain"
    for name in having(command):
        id = make(scene, before)
        old = len(scene.deeds())
        assert await surfaces[name](command, [id]) is None, name
        assert state_of(scene, id) == after, name
        deeds = [deed[:2] for deed in scene.deeds()[old:]]
        assert deeds == ([(command, f"{noun} {id}")] if name in AUDITED else []), name


@pytest.mark.parametrize("command", WRONG)
async def test_a_command_is_refused_alike_where_the_state_forbids_it(
    command: str, surfaces: Surfaces, scene: Scene
) -> None:
    for name in having(command):
        id = make(scene, WRONG[command])
        old = len(scene.deeds())
        assert await surfaces[name](command, [id]) == "HF067", name
        noun = "chain" if command == "chain.cancel" else "job"
        # In Python a failed job is retried by redriving it.
        is_python = name in ("sync", "async")
        verb = "redrive" if is_python and command == "job.retry" else VERBS[command]
        words = f"cannot {verb} a {noun} that is {WRONG[command]}"
        assert words in surfaces.words, (name, surfaces.words)
        assert state_of(scene, id) == WRONG[command], name
        assert len(scene.deeds()) == old, name


MISSING = {
    "job": ("HF061", "there is no job {}"),
    "dead": ("HF061", "there is no job {}"),
    "chain": ("HF060", "there is no chain {}"),
    "worker": ("HF069", "there is no live worker {}"),
    "cycle": ("HF082", "there is no cycle '{}'"),
    "type": ("HF020", "no job type '{}' in this database"),
    "subscription": ("HF028", "no handler 'mail' subscribes to '{}'"),
}


@pytest.mark.parametrize("command", [*WORDS])
async def test_what_does_not_exist_is_refused_alike(
    command: str, surfaces: Surfaces, scene: Scene
) -> None:
    noun = command.split(".")[0]
    code, words = MISSING[noun]
    for name in having(command):
        id = new_id()
        targets = [id, "mail"] if noun == "subscription" else [id]
        assert await surfaces[name](command, targets) == code, (name, surfaces.words)
        assert words.format(id) in surfaces.words, (name, surfaces.words)


@pytest.mark.parametrize(
    ("command", "targets", "meant"),
    [
        ("worker.drain", ["w-77"], "w-7"),
        ("cycle.run_now", ["clenup"], "cleanup"),
        ("cycle.pause", ["tidi"], "tidy"),
        ("cycle.resume", ["tidy:0/3"], "tidy:0/2"),
        ("type.pause", ["mail.snd"], "mail.send"),
        ("subscription.remove", ["order.placed", "mial"], "order.placed mail"),
        ("subscription.replay", ["order.placed", "mial"], "order.placed mail"),
    ],
)
async def test_a_misspelled_name_gets_the_same_suggestion_everywhere(
    command: str, targets: list[str], meant: str, surfaces: Surfaces, scene: Scene
) -> None:
    scene.start("mail.send")
    scene.worker("mail.send")
    scene.subscribe("order.placed", "mail")
    noun = command.split(".")[0]
    for name in having(command):
        assert await surfaces[name](command, targets) == MISSING[noun][0], name
        assert f"did you mean {meant}?" in surfaces.words, (name, surfaces.words)


@pytest.mark.parametrize(("named", "meant"), [("tidy", {"0", "1"}), ("tidy:0/2", {"0"})])
async def test_a_cycle_is_named_with_all_its_shards_or_by_one_of_them(
    named: str, meant: set[str], surfaces: Surfaces, scene: Scene
) -> None:
    targets = [f"cycle tidy:{each}/2" for each in sorted(meant)]
    for name in SURFACES:
        old = len(scene.deeds())
        for command in ("cycle.pause", "cycle.run_now", "cycle.resume"):
            assert await surfaces[name](command, [named]) is None, (name, surfaces.words)
            paused = {
                each.name.removesuffix("/2").removeprefix("tidy:")
                for each in scene.database.read(scene.store.cycles.page())
                if each.paused
            }
            assert paused == (set() if command == "cycle.resume" else meant), (name, command)
        deeds = [deed[:2] for deed in scene.deeds()[old:]]
        expected = [
            (command, target)
            for command in ("cycle.pause", "cycle.run_now", "cycle.resume")
            for target in targets
        ]
        assert sorted(deeds) == (sorted(expected) if name in AUDITED else []), name


@pytest.mark.parametrize("command", [each for each in MOVES if not each.startswith("chain")])
async def test_of_several_those_are_moved_that_can_be(
    command: str, surfaces: Surfaces, scene: Scene
) -> None:
    before, after = MOVES[command]
    for name in having(command, several=True):
        able, unable = make(scene, before), make(scene, WRONG[command])
        assert await surfaces[name](command, [able, unable, new_id()]) is None, name
        assert state_of(scene, able) == after, name
        assert state_of(scene, unable) == WRONG[command], name


def awaited_letter(scene: Scene) -> str:
    """Make a dead letter that a job waits for until it completes."""
    running = scene.running(f"t{new_id()[-6:]}")
    id = new_id()
    job = NewJob(id=id, chain_id=id, type="waits", input="{}", blockers=1)
    edge = NewBlocker(id, 0, running.chain_id, "wait")
    scene.database.run(start_chains(scene.store, [StartRequest(job, None, (edge,))]))
    scene.finish(running, "fail", error="ValueError: no", fingerprint="x")
    return running.id


async def test_dead_letters_that_others_wait_for_are_left_alone_alike(
    surfaces: Surfaces, scene: Scene
) -> None:
    for name in having("dead.drop"):
        awaited, free = awaited_letter(scene), make(scene, "failed")
        assert await surfaces[name]("dead.drop", [awaited]) == "HF066", name
        assert await surfaces[name]("dead.drop", [awaited, free]) is None, name
        assert (state_of(scene, awaited), state_of(scene, free)) == ("failed", None), name


@pytest.mark.parametrize("filter", ["", " ", "boom", "state:failed,", "nope:1"])
async def test_a_filter_that_chooses_nothing_in_particular_changes_nothing(
    filter: str, surfaces: Surfaces, scene: Scene
) -> None:
    id = make(scene, "failed")
    for move in ("redrive", "drop"):
        async with surfaces.client() as client:
            path = f"/api/v1/dead-letters/{move}"
            answer = await client.post(path, json={"filter": filter})
            form = {"move": move, "filter": filter}
            page = await client.post("/dead", data=form, headers=SAME_SITE)
        result = await asyncio.to_thread(command_line, "dead", move, filter, "--yes")
        assert (answer.status_code, page.status_code, result.exit_code) == (400, 400, Exit.USAGE)
        assert f"error[HF070]: {answer.json()['detail']}" in result.stderr
    for move in ("retry", "cancel", "run-now"):
        result = await asyncio.to_thread(command_line, "jobs", move, filter, "--yes")
        assert "error[HF070]" in result.stderr
    assert state_of(scene, id) == "failed"
    assert not scene.deeds()


async def test_a_form_that_names_no_job_is_refused_as_the_request_is(surfaces: Surfaces) -> None:
    for command in ("job.retry", "job.cancel", "job.run_now"):
        for name in ("http", "pages"):
            assert await surfaces[name](command, []) == "HF073", (name, command)


@pytest.mark.parametrize("rate", ["0", "0.0001", "999999999", "nan", "-1"])
async def test_a_rate_is_refused_alike(rate: str, surfaces: Surfaces, scene: Scene) -> None:
    id = make(scene, "failed")
    async with surfaces.client() as client:
        form = {"move": "redrive", "filter": f"id:{id}", "rate": rate}
        assert (await client.post("/dead", data=form, headers=SAME_SITE)).status_code == 400
        if rate != "nan":
            body = {"ids": [id], "rate": float(rate)}
            answer = await client.post("/api/v1/dead-letters/redrive", json=body)
            assert (answer.status_code, answer.json()["code"]) == (400, "HF073")
    for words in ((), ("--dry-run",)):
        given = ("dead", "redrive", id, "--rate", rate, *words)
        result = await asyncio.to_thread(command_line, *given)
        assert result.stderr.startswith("error[HF073]"), words
    assert state_of(scene, id) == "failed"


@pytest.mark.parametrize("command", ["chain.cancel", "chain.delete"])
async def test_a_later_job_that_is_named_as_a_chain_leads_to_its_chain(
    command: str, surfaces: Surfaces, scene: Scene
) -> None:
    first = scene.running("mail.send")
    later = scene.continued(first, "mail.log")
    for name in having(command):
        assert await surfaces[name](command, [later]) == "HF060", name
        assert f"this is job 2 of chain {first.id}" in surfaces.words, (name, surfaces.words)


async def test_lists_have_the_same_fields_in_every_format(surfaces: Surfaces, scene: Scene) -> None:
    make(scene, "failed")
    LimitedScene(scene).declare(MAIL)
    LimitedScene(scene).start(MAIL, "42", 3)
    scene.subscribe("order.placed", "mail")
    await surfaces["cli"]("type.pause", ["mail.send"])
    for words, path in LISTS.items():
        async with surfaces.client() as client:
            served = (await client.get(f"/api/v1/{path}")).json()["items"]
        result = await asyncio.to_thread(command_line, *words.split(), "-o", "json")
        printed = json.loads(result.stdout)
        # What If-Match names is for requests only; that of a job is of its input.
        own = {"version"} if path == "types" else set()
        fields = [each.keys() - own for each in served]
        assert [set(each) for each in printed] == fields, words
        assert served, words


LISTS = {
    "jobs list": "jobs",
    "chains list": "chains",
    "dead list": "dead-letters",
    "types list": "types",
    "limits list": "limits",
    "events subscriptions": "subscriptions",
    "cycles list": "cycles",
    "cycles runs": "cycles/runs",
    "workers list": "workers",
    "audit list": "audit",
    "doctor": "doctor",
}


async def test_workers_and_cycles_are_commanded_alike(surfaces: Surfaces, scene: Scene) -> None:
    for name in SURFACES:
        scene.worker("mail.send")
        old = len(scene.deeds())
        for command, target in (
            ("worker.drain", "w-7"),
            ("cycle.pause", "cleanup"),
            ("cycle.resume", "cleanup"),
            ("cycle.run_now", "cleanup"),
        ):
            assert await surfaces[name](command, [target]) is None, (name, command)
        expected = [
            ("worker.drain", "worker w-7"),
            ("cycle.pause", "cycle cleanup"),
            ("cycle.resume", "cycle cleanup"),
            ("cycle.run_now", "cycle cleanup"),
        ]
        deeds = [deed[:2] for deed in scene.deeds()[old:]]
        assert deeds == (expected if name in AUDITED else []), name


async def test_types_and_subscriptions_are_commanded_alike(
    surfaces: Surfaces, scene: Scene
) -> None:
    scene.start("mail.send")
    for name in having("type.pause"):
        old = len(scene.deeds())
        for command in ("type.pause", "type.resume"):
            assert await surfaces[name](command, ["mail.send"]) is None, (name, surfaces.words)
            (setting,) = scene.database.read(scene.store.workers.settings())
            assert setting.paused == (command == "type.pause"), name
        deeds = [deed[:2] for deed in scene.deeds()[old:]]
        assert deeds == [("type.pause", "type mail.send"), ("type.resume", "type mail.send")], name
    for name in having("subscription.remove"):
        scene.subscribe("order.placed", "mail", "stock")
        old = len(scene.deeds())
        assert await surfaces[name]("subscription.remove", ["order.placed", "mail"]) is None, name
        assert scene.subscribed("order.placed") == ["stock"], name
        expected = [("subscription.remove", "subscription order.placed/mail")]
        assert [deed[:2] for deed in scene.deeds()[old:]] == (
            expected if name in AUDITED else []
        ), name


async def test_stored_events_are_replayed_alike(surfaces: Surfaces, scene: Scene) -> None:
    for name in having("subscription.replay"):
        event = f"order.{name}"
        scene.subscribe(event, "mail")
        scene.start(f"{event}/mail")
        scene.subscribe(event, "stock")
        old = len(scene.deeds())
        for _ in range(2):
            assert await surfaces[name]("subscription.replay", [event, "stock"]) is None, name
            jobs = await surfaces.app.aio.jobs.list(f"type:{event}/stock")
            assert len(jobs.items) == 1, name
        assert [deed[:2] for deed in scene.deeds()[old:]] == [
            ("subscription.replay", f"subscription {event}/stock")
        ] * 2, name


async def test_manifests_are_verified_and_restored_alike(
    surfaces: Surfaces, scene: Scene, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_ARCHIVE", str(tmp_path / "archive"))
    deliveries = Deliveries(url)
    deliveries.create()
    declare(surfaces.app, tmp_path / "archive").run()
    for name in ("http", "pages", "cli"):
        old = len(scene.deeds())
        deliveries.execute("delete from deliveries where id < 11")
        for command in ("archive.verify", "archive.restore"):
            assert await surfaces[name](command, [OCTOBER]) is None, (name, surfaces.words)
        assert deliveries.count() == 95, name
        assert await surfaces[name]("archive.restore", [SEPTEMBER]) is None, name
        assert deliveries.count() == 100, name
        assert [deed[:2] for deed in scene.deeds()[old:]] == [
            ("archive.verify", f"manifest {OCTOBER}"),
            ("archive.restore", f"manifest {OCTOBER}"),
            ("archive.restore", f"manifest {SEPTEMBER}"),
        ], name
        deliveries.execute("update deliveries set note = 'changed' where id = 1")
        assert await surfaces[name]("archive.restore", [OCTOBER]) == "HF113", name
        assert await surfaces[name]("archive.verify", ["deliveries/1999-01"]) == "HF110", name
        deliveries.execute("update deliveries set note = 'note 1' where id = 1")


REASONS = {
    "grün – 日本": None,
    "one line\nand another": None,
    "x" * MAX_REASON_LENGTH: None,
    "x" * (MAX_REASON_LENGTH + 1): "HF073",
    "\x1b[31mred": "HF073",
    "nul\0": "HF073",
}


@pytest.mark.parametrize(("reason", "code"), REASONS.items(), ids=range(len(REASONS)))
async def test_the_reason_of_a_change_is_kept_or_refused_alike(
    reason: str, code: str | None, surfaces: Surfaces, scene: Scene
) -> None:
    scene.start("mail.send")

    async def post(path: str, **sent: Any) -> str | None:
        async with surfaces.client() as client:
            answer = await client.post(path, **sent)
        found = CODE.search(answer.text) if answer.status_code >= 400 else None
        return found.group() if found else None

    async def by_command() -> str | None:
        words = ("types", "pause", "mail.send", "--reason", reason)
        result = await asyncio.to_thread(command_line, *words)
        found = CODE.search(result.stderr)
        return found.group() if found else None

    path = "/api/v1/types/mail.send/pause"
    form = {"move": "pause", "name": "mail.send", "reason": reason}
    ways = {
        "http": post(path, json={"reason": reason}),
        "pages": post("/types", data=form, headers=SAME_SITE),
        "cli": by_command(),
    }
    if reason.isprintable():
        ways["header"] = post(path, headers={"X-Reason": reason.encode()})
    for name, call in ways.items():
        old = len(scene.deeds())
        assert await call == code, name
        kept = [each.reason for each in scene.database.read(scene.store.audit.page(1))]
        assert len(scene.deeds()) == old + (code is None), name
        assert code is not None or kept == [reason], name


OUT_OF_RANGE = ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00")


@pytest.mark.parametrize("at", OUT_OF_RANGE)
async def test_a_time_that_could_not_be_shown_is_refused_alike(
    at: str, surfaces: Surfaces, scene: Scene
) -> None:
    moment = datetime.fromisoformat(at)

    def start() -> None:
        with surfaces.app.transaction() as tx:
            surfaces.app.start(tx, "mail.send", {}, at=moment)

    with pytest.raises(InvalidOption, match="years 1 to 9999"):
        await asyncio.to_thread(start)
    async with surfaces.app.transaction() as tx:
        with pytest.raises(InvalidOption, match="years 1 to 9999"):
            await surfaces.app.start(tx, "mail.send", {}, at=moment)
    words = ("jobs", "start", "mail.send", "{}", "--new-type", "--at", at)
    result = await asyncio.to_thread(command_line, *words)
    assert result.exit_code == Exit.USAGE
    assert "years 1 to 9999" in result.stderr
    assert not (await surfaces.app.aio.jobs.list()).items


async def test_limits_are_set_alike(surfaces: Surfaces, scene: Scene) -> None:
    limited = LimitedScene(scene)
    limited.declare(MAIL)

    async def over_http(words: list[str], path: str, body: dict[str, Any]) -> str | None:
        async with surfaces.client() as client:
            method = "POST" if path.endswith("/rest") else "PATCH"
            answer = await client.request(method, f"/api/v1/limits/{path}", json=body)
        return None if answer.is_success else str(answer.json()["code"])

    async def by_command(words: list[str], path: str, body: dict[str, Any]) -> str | None:
        result = await asyncio.to_thread(command_line, "limits", *words)
        found = CODE.search(result.stderr)
        return found.group() if found else None

    async def by_form(words: list[str], path: str, body: dict[str, Any]) -> str | None:
        move = "pause_key" if path.endswith("/rest") else "set_limit"
        fields = {"move": move, "name": path.removesuffix("/rest")} | body
        async with surfaces.client() as client:
            answer = await client.post("/limits", data=fields, headers=SAME_SITE)
        found = CODE.search(answer.text) if answer.status_code >= 400 else None
        return found.group() if found else None

    for set_it in (over_http, by_command, by_form):
        old = len(scene.deeds())
        for words, path, body, code in (
            ("set mail.send --key 42 --limit 9", "mail.send", {"key": "42", "limit": 9}, None),
            ("rest mail.send 5m --key 42", "mail.send/rest", {"key": "42", "duration": "5m"}, None),
            ("set mail.send --limit 9", "mail.send", {"limit": 9}, "HF073"),
            ("set mail.snd --limit 9", "mail.snd", {"limit": 9}, "HF020"),
            ("set @smtp --rate 5/1s", "@smtp", {"rate": "5/1s"}, None),
            ("set mail.send --key \0 --limit 9", "mail.send", {"key": "\0", "limit": 9}, "HF073"),
            (
                "rest mail.send 5m --key \0",
                "mail.send/rest",
                {"key": "\0", "duration": "5m"},
                "HF073",
            ),
        ):
            assert await set_it(words.split(" "), path, body) == code, (set_it.__name__, words)
        (smtp, own) = scene.database.read(scene.store.limits.settings())
        assert (own.id, own.allowed, own.paused_until is None) == ("mail.send#42", 9, False)
        assert (smtp.id, smtp.rate, smtp.period_ms) == ("@smtp", 5, 1_000)
        assert [deed[:2] for deed in scene.deeds()[old:]] == [
            ("limit.set", "limit mail.send 42"),
            ("limit.rest", "limit mail.send 42"),
            ("limit.set", "limit @smtp"),
        ]
        for each in (smtp, own):
            scene.database.run(scene.store.limits.clear(each.id))


async def test_what_names_no_limit_is_refused_alike(surfaces: Surfaces, scene: Scene) -> None:
    LimitedScene(scene).declare(MAIL)
    for body, words in (
        ({"key": "42", "scope": "each"}, ("--key", "42", "--each")),
        ({"key": "42", "scope": "total"}, ("--key", "42", "--total")),
        ({"key": ""}, ("--key", "")),
        ({"key": "k" * 1_025}, ("--key", "k" * 1_025)),
    ):
        async with surfaces.client() as client:
            path = "/api/v1/limits/mail.send"
            answer = (await client.patch(path, json=body | {"limit": 9})).json()
        given = ("limits", "set", "mail.send", "--limit", "9", *words)
        result = await asyncio.to_thread(command_line, *given)
        assert answer["code"] == "HF073", body
        assert f"error[HF073]: {answer['detail']}" in result.stderr, body
        assert f"help: {answer['help']}" in result.stderr, body
    assert not scene.database.read(scene.store.limits.settings())
    assert not scene.deeds()


async def test_times_are_shown_alike_in_answers_and_in_the_audit_log(
    surfaces: Surfaces, scene: Scene
) -> None:
    LimitedScene(scene).declare(MAIL)
    scene.subscribe("order.placed", "mail")
    async with surfaces.client() as client:
        body = {"key": "42", "duration": "5m"}
        rested = (await client.post("/api/v1/limits/mail.send/rest", json=body)).json()
        listed = (await client.get("/api/v1/limits")).json()["items"]
        path = "/api/v1/subscriptions/order.placed/mail/replay"
        await client.post(path, json={"since": "2026-01-31"})
        replayed, rest = (await client.get("/api/v1/audit")).json()["items"]
    (until,) = [each["paused_until"] for each in listed if each["key"] == "42"]
    assert rested["paused_until"] == rest["after"]["paused_until"] == until
    assert replayed["after"]["since"] == "2026-01-31T00:00:00Z"


async def test_limits_are_listed_alike(surfaces: Surfaces, scene: Scene) -> None:
    limited = LimitedScene(scene)
    limited.declare(MAIL)
    limited.start(MAIL, "42", 4)
    limited.claim(MAIL)
    async with surfaces.client() as client:
        page = (await client.get("/types/mail.send")).text
        served = (await client.get("/api/v1/limits?full=true")).json()["items"]
        metrics = (await client.get("/metrics")).text
    result = await asyncio.to_thread(command_line, "limits", "list", "--full", "-o", "json")
    assert json.loads(result.stdout) == served
    assert [(each["key"], each["running"], each["waiting"]) for each in served] == [("42", 2, 2)]
    for shown in ("2 per tenant_id", "2 of 2", "Pause 10 min", "Set limit"):
        assert shown in page
    assert 'holdfast_limit_full_keys{type="mail.send"} 1.0' in metrics
    assert 'holdfast_limit_waiting_jobs{type="mail.send"} 2.0' in metrics
    lines = [line for line in metrics.splitlines() if line.startswith("holdfast_limit_")]
    assert {line.partition("{")[2].partition("}")[0] for line in lines} == {
        'type="@smtp"',
        'type="mail.send"',
    }


async def test_a_signal_is_the_same_through_every_surface(surfaces: Surfaces, scene: Scene) -> None:
    app, signal = surfaces.app, {"name": "approved", "key": "7", "data": {"by": "ana"}}
    async with app.transaction() as tx:
        assert await app.signal(tx, "approved", key=7, data={"by": "ana"})
    async with surfaces.client() as client:
        await client.post("/api/v1/signals", json=signal)
        form = {"move": "signal", **signal, "data": '{"by":"ana"}'}
        await client.post("/signals", data=form, headers=SAME_SITE)
    words = ("signal", "approved", "7", "--data", '{"by": "ana"}')
    assert (await asyncio.to_thread(command_line, *words)).exit_code == 0
    sent = scene.database.read(scene.store.signals.list(10))
    assert [(each.name, each.key, each.data) for each in sent] == [
        ("approved", "7", '{"by":"ana"}')
    ] * 4
    assert {each.until - each.at for each in sent} == {7 * 24 * 3_600_000_000}
    assert [each[:2] for each in scene.deeds()] == [("signal.send", "signal approved 7")] * 3


COMMANDS = {
    "cancel_chain": "chain.cancel",
    "cancel_jobs": "job.cancel",
    "delete_chains": "chain.delete",
    "drain_worker": "worker.drain",
    "drop_jobs": "dead.drop",
    "pause_cycle": "cycle.pause",
    "pause_type": "type.pause",
    "redrive_dead_letters": "dead.redrive",
    "redrive_jobs": "job.retry",
    "remove_subscription": "subscription.remove",
    "replay_events": "subscription.replay",
    "request_cycle": "cycle.run_now",
    "run_jobs_now": "job.run_now",
}
ON_ONE_SURFACE = {
    "adopt_database",  # the command line
    "complete_chain",  # the Python API, as the next three
    "continue_chain",
    "retry_chain",
    "run_chain_now",
    "create_token",  # HTTP and the command line, which both call the service, as the next three
    "revoke_token",
    "pause_all",
    "set_type",
    "set_limit",  # HTTP, the command line and the page of the type, which all call the service
    "rest_limit",
    "send_signal",  # all of them, with a test of its own
}


def test_every_command_is_compared_or_has_but_one_surface() -> None:
    found = set()
    for module in iter_modules(holdfast.commands.__path__, "holdfast.commands."):
        for name, value in vars(import_module(module.name)).items():
            answers = str(getattr(value, "__annotations__", {}).get("return", ""))
            if not name.startswith("_") and answers.startswith("Op[Change["):
                found.add(name)
    wrappers = {"count_answer", "drop_answer", "with_audit"}
    assert found - wrappers == COMMANDS.keys() | ON_ONE_SURFACE
    assert set(COMMANDS.values()) <= WORDS.keys()


async def test_the_figures_of_the_queue_have_one_name_each(
    surfaces: Surfaces, scene: Scene
) -> None:
    make(scene, "failed")
    make(scene, "completed")
    async with surfaces.client() as client:
        overview = (await client.get("/api/v1/overview")).json()["health"]
        metrics = (await client.get("/metrics")).text
    result = await asyncio.to_thread(command_line, "status", "-o", "json")
    told = json.loads(result.stdout)
    assert told.keys() - overview.keys() == {"dead", "types"}
    assert overview.keys() <= told.keys()
    assert told["dead"] == told["failed"] == 1
    timely = {"at", "oldest_due_seconds"}
    assert {each: told[each] for each in overview.keys() - timely} == {
        each: overview[each] for each in overview.keys() - timely
    }
    for state in ("running", "blocked", "completed", "failed", "cancelled"):
        assert f'holdfast_queue_depth{{state="{state}"}} {overview[state]}.0' in metrics
    assert f"holdfast_queue_due_jobs {overview['due']}.0" in metrics
    assert f"holdfast_fleet_workers {overview['workers']}.0" in metrics
    screen = (await asyncio.to_thread(command_line, "status")).stdout
    for name in ("due", "running", "blocked", "later", "completed", "cancelled", "failed"):
        assert re.search(rf"^  {name} +{overview[name]}\b", screen, re.MULTILINE), name


async def test_jobs_that_no_code_can_read_are_counted_alike(
    surfaces: Surfaces, scene: Scene
) -> None:
    for number in range(3):
        id = make(scene, "pending")
        scene.database.run(scene.store.unreadable.note(id, "later", f"no {number}"))
    scene.worker("later")
    words = "3 jobs are waiting for code that can read their input or records"
    async with surfaces.client() as client:
        overview = (await client.get("/api/v1/overview")).json()["health"]
        findings = (await client.get("/api/v1/doctor")).json()["items"]
        metrics = (await client.get("/metrics")).text
        page = (await client.get("/")).text
    assert (overview["unreadable"], overview["summary"]) == (3, words)
    assert "holdfast_queue_unreadable_jobs 3.0" in metrics
    assert page.count(words) == 1
    (finding,) = (each for each in findings if each["check"] == "unreadable")
    assert finding["measured"].startswith("3 jobs of later")
    told = await asyncio.to_thread(command_line, "status", "-o", "json")
    assert json.loads(told.stdout)["unreadable"] == 3
    screen = (await asyncio.to_thread(command_line, "status")).stdout
    assert screen.startswith(f"{words}\n")
    assert re.search(r"^  unreadable +3$", screen, re.MULTILINE)
    condition = ("status", "--fail-if", "unreadable>2")
    assert (await asyncio.to_thread(command_line, *condition)).exit_code == Exit.CHECK_NOT_MET


@pytest.mark.parametrize("surface", ["http", "pages", "cli"])
async def test_a_job_is_run_again_in_the_same_way(
    surfaces: Surfaces, scene: Scene, surface: str
) -> None:
    earlier = scene.start("mail.send", input='{"to":"ana","token":"t-1"}', priority=2, key="k")
    edited = {"to": "bob", "token": "t-1"}
    async with surfaces.client() as client:
        if surface == "http":
            body = {"like": earlier, "input": edited, "reason": "again"}
            answer = await client.post("/api/v1/chains", json=body)
            assert answer.status_code == 201
        elif surface == "pages":
            form = {"like": earlier, "in.": '{"to":"bob","token":"•••"}', "priority": "2"}
            answer = await client.post("/start", data=form | {"reason": "again"}, headers=SAME_SITE)
            assert answer.status_code == 303
        else:
            words = ("jobs", "start", "--like", earlier, "--set", "to=bob", "--reason", "again")
            result = await asyncio.to_thread(CliRunner().invoke, cli, words)
            assert result.exit_code == 0, result.output
    jobs = (await surfaces.app.aio.jobs.list()).items
    (new,) = [each for each in jobs if str(each.id) != earlier]
    (record,) = scene.database.read(scene.store.jobs.get([str(new.id)]))
    assert (record.type, record.priority, record.key) == ("mail.send", 2, None)
    assert json.loads(record.input) == edited
    (entry,) = scene.database.read(scene.store.audit.page(10))
    assert (entry.action, entry.target, entry.reason) == ("chain.start", f"chain {new.id}", "again")
    assert json.loads(entry.after or "")["like"] == earlier
