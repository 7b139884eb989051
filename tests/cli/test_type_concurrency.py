"""A type's concurrency from an environment variable, in a real worker: default, variable, live change and return."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.cli.exit_codes import Exit
from tests.cli.conftest import Run
from tests.cli.processes import Command
from tests.cli.scene import Scene
from tests.support.until import until

APPLICATION = """
import asyncio
import pathlib
from holdfast import Holdfast, Job, from_env

app = Holdfast()
running = 0

@app.job("invoice.pdf.render.requested", concurrency=from_env("PDF_RENDER_CONCURRENCY", 2))
async def render(job: Job[int]) -> None:
    global running
    running += 1
    print(f"render {job.input} {running}", flush=True)
    while not pathlib.Path(f"end-{job.input}").exists():
        await asyncio.sleep(0.02)
    running -= 1

@app.job("other")
async def other(job: Job[None]) -> None:
    print("other", flush=True)
"""
RENDER = "invoice.pdf.render.requested"
QUICK = {"OUTBOX_LEASE_HEARTBEAT_MS": "200"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the application, to work in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PDF_RENDER_CONCURRENCY", raising=False)
    (tmp_path / "billing.py").write_text(APPLICATION)
    return tmp_path


@pytest.fixture
def producer(url: str) -> Iterator[Holdfast]:
    """An application whose starts a worker hears of at once; those of the scene wait for its next poll."""
    app = Holdfast(url, open_types=True)
    yield app
    app.close()


class RenderWorker(Command):
    """A worker with its defaults, and what its handlers say."""

    def __init__(self, scene: Scene, producer: Holdfast, env: Mapping[str, str]) -> None:
        super().__init__("worker", "billing:app", env=env)
        self._scene = scene
        self._producer = producer

    def begun(self, count: int) -> list[int]:
        """Wait for so many renders to begin; return which."""
        return [int(self.line().split()[1]) for _ in range(count)]

    def assert_no_more_begin(self) -> None:
        """Have the worker run another job, and see no render begin before it."""
        with self._producer.transaction() as tx:
            self._producer.start(tx, "other", None)
        assert self.line() == "other\n"

    def next_heartbeats(self) -> None:
        """Wait until the worker has certainly read the settings of its types again."""
        first = self._seen_at()
        asyncio.run(until(lambda: self._seen_at() > first))
        second = self._seen_at()
        asyncio.run(until(lambda: self._seen_at() > second))

    def _seen_at(self) -> int:
        workers = self._scene.database.read(self._scene.store.workers.page(10))
        return max((each.seen_at for each in workers), default=0)


@pytest.mark.parametrize(("environ", "limit"), [({}, 2), ({"PDF_RENDER_CONCURRENCY": "3"}, 3)])
def test_so_many_run_at_once_as_the_variable_says(
    folder: Path, scene: Scene, producer: Holdfast, environ: dict[str, str], limit: int
) -> None:
    for number in range(8):
        scene.start(RENDER, input=str(number))
    with RenderWorker(scene, producer, environ) as worker:
        first = worker.begun(limit)
        worker.assert_no_more_begin()
        for number in range(8):
            (folder / f"end-{number}").touch()
        said = [worker.line().split() for _ in range(8 - limit)]
    assert sorted([*first, *(int(each[1]) for each in said)]) == list(range(8))
    assert max(int(each[2]) for each in said) <= limit


def test_a_command_changes_it_in_running_workers_and_another_returns_it(
    folder: Path, scene: Scene, producer: Holdfast, run: Run
) -> None:
    ids = [scene.start(RENDER, input=str(number)) for number in range(9)]
    with RenderWorker(scene, producer, QUICK) as worker:
        running = worker.begun(2)
        assert run("types", "set", RENDER, "--concurrency", "4").exit_code == 0
        running += worker.begun(2)
        worker.assert_no_more_begin()
        assert run("types", "reset", RENDER).exit_code == 0
        worker.next_heartbeats()
        for number in running[:2]:
            (folder / f"end-{number}").touch()
        ended = [ids[number] for number in running[:2]]
        asyncio.run(until(lambda: {scene.state(each) for each in ended} == {"completed"}))
        worker.assert_no_more_begin()
        for number in range(9):
            (folder / f"end-{number}").touch()
        said = [worker.line().split() for _ in range(5)]
    assert max(int(each[2]) for each in said) <= 2


def test_a_value_that_cannot_be_used_stops_the_worker_with_the_variables_name(
    folder: Path, scene: Scene
) -> None:
    with Command("worker", "billing:app", env={"PDF_RENDER_CONCURRENCY": "many"}) as worker:
        code = worker.process.wait()
        said = worker.error()
    assert code == Exit.USAGE
    assert "error[HF010]: PDF_RENDER_CONCURRENCY cannot be used as concurrency" in said
    assert "PDF_RENDER_CONCURRENCY='many' (env)" in said
    assert "set PDF_RENDER_CONCURRENCY to a whole number from 1 to 1000000" in said


def test_commands_show_where_the_value_comes_from(
    folder: Path, scene: Scene, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each application is imported once in this process, so each has a name of its own.
    def load(name: str) -> list[dict[str, str]]:
        (folder / f"{name}.py").write_text(APPLICATION)
        rows = run("config", "show", f"{name}:app", "--origin", "-o", "json").stdout
        return [each for each in json.loads(rows) if each["name"] == "PDF_RENDER_CONCURRENCY"]

    origin = f"concurrency of {RENDER}"
    assert [(each["value"], each["origin"]) for each in load("by_default")] == [
        ("2", f"default: {origin}")
    ]
    monkeypatch.setenv("PDF_RENDER_CONCURRENCY", "5")
    assert [(each["value"], each["origin"]) for each in load("by_variable")] == [
        ("5", f"env: {origin}")
    ]
    doctor = json.loads(run("doctor", "by_variable:app", "-o", "json").stdout)
    (found,) = [each for each in doctor if each["check"] == "variables"]
    assert f"PDF_RENDER_CONCURRENCY=5 (env: {origin})" in found["measured"]


def test_a_type_shows_variable_override_code_and_default(
    folder: Path, scene: Scene, run: Run
) -> None:
    scene.start(RENDER, input="1")
    with Command("types", "show", RENDER, "billing:app", "-o", "json") as command:
        found = json.loads(command.process.communicate()[0])
    assert {each["option"]: (each["value"], each["from"]) for each in found["options"]} == {
        "lease": ("1m", "default"),
        "timeout": ("3m", "default"),
        "concurrency": (2, "PDF_RENDER_CONCURRENCY (default)"),
        "max_attempts": (25, "default"),
    }
    assert found["live"] == 1
    assert run("types", "set", RENDER, "--concurrency", "7", "--lease", "30s").exit_code == 0
    bare = run("types", "show", RENDER).stdout
    assert "holdfast types set" in bare
    assert "--app module:attribute shows it" in bare
    with Command("types", "show", RENDER, "billing:app") as command:
        text = command.process.communicate()[0]
    assert [line.split()[:2] for line in text.splitlines() if "holdfast types set" in line] == [
        ["lease", "30s"],
        ["concurrency", "7"],
    ]
    assert run("types", "show", "nothing").exit_code == Exit.NOT_FOUND
    assert run("types", "reset", RENDER, "--dry-run").exit_code == 0
    assert "holdfast types set" in run("types", "show", RENDER).stdout
    assert run("types", "reset", RENDER, "--reason", "calm again").exit_code == 0
    assert "holdfast types set" not in run("types", "show", RENDER).stdout
    assert scene.deeds()[-1] == ("type.set", f"type {RENDER}", "calm again")
