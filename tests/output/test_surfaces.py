"""Output on the command line and on the page of a job."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

from click.testing import CliRunner, Result

from holdfast import Job, Retry
from holdfast.admin.access import Role
from holdfast.cli.main import cli
from holdfast.settings import read_settings
from holdfast.web.app import create
from holdfast_output.cli import safe_text
from tests.output.scene import OutputScene
from tests.output.test_follow import Talk
from tests.web.conftest import Api


def show(scene: OutputScene, *words: str) -> Result:
    return CliRunner().invoke(cli, ["output", "show", *words, "--url", scene.url])


def speak(scene: OutputScene, *words: Any) -> Any:
    """Run a chain that says these words."""

    @scene.job("chat", retry=Retry(base="1s"))
    async def chat(job: Job[Any]) -> None:
        for word in words:
            job.emit(word)

    chain = scene.start("chat")
    scene.run()
    return chain


def test_the_command_line_joins_texts_and_prints_the_rest_as_json(scene: OutputScene) -> None:
    chain = speak(scene, "to ", "be\n", {"or": "not"}, "\x1b[2J")
    shown = show(scene, str(chain.id))
    assert shown.exit_code == 0, shown.output
    assert shown.stdout == 'to be\n{"or":"not"}\n\\u001b[2J\n'
    rows = [
        json.loads(line)
        for line in show(scene, str(chain.id), "-o", "json").stdout.split("\n")
        if line
    ]
    assert [each["id"] for each in rows] == [1, 2, 3, 4]
    assert show(scene, str(chain.id), "--after", "3").stdout == "\\u001b[2J\n"
    wrong = show(scene, str(chain.id), "--after", "x")
    assert (wrong.exit_code, "HF208" in wrong.output) == (2, True)


def test_secrets_are_shown_only_on_request(scene: OutputScene) -> None:
    chain = speak(scene, {"password": "hunter2"})
    assert "hunter2" not in show(scene, str(chain.id)).output
    assert "hunter2" in show(scene, str(chain.id), "--raw").output


def test_the_command_line_follows_to_the_end(scene: OutputScene) -> None:
    talk = Talk(scene)
    chain = scene.start("talk", ["a", "b"])
    with scene.working():
        talk.asked.release()
        # The second word comes while the command waits for it.
        later = threading.Timer(0.2, talk.asked.release)
        later.start()
        result = show(scene, str(chain.id), "--follow")
        later.join()
    assert (result.exit_code, result.stdout) == (0, "ab\n")
    assert "The chain has completed." in result.stderr


def test_control_characters_are_shown_and_not_obeyed() -> None:
    assert safe_text("a\tb\n\x07") == "a\tb\n\\u0007"


async def test_the_page_of_a_job_shows_what_it_emitted(scene: OutputScene) -> None:
    chain = await asyncio.to_thread(speak, scene, "<b>to</b> ", "be")
    job = scene.output.read(chain)[0].job_id
    served = create(scene.app, settings=read_settings({}))
    api = Api(served, scene.app)
    page = (await api.call(Role.DEVELOPER, "GET", f"/jobs/{job}")).text
    assert "<h2>Emitted</h2>" in page
    assert "&lt;b&gt;to&lt;/b&gt; be" in page
    assert "2 items" in page
    hidden = (await api.call(Role.VIEWER, "GET", f"/jobs/{job}")).text
    assert "<h2>Emitted</h2>" in hidden
    assert "&lt;b&gt;to" not in hidden
    await served.state.site.close()


async def test_a_job_that_said_nothing_has_no_card(scene: OutputScene) -> None:
    await asyncio.to_thread(speak, scene)
    (job,) = scene.app.jobs.list()
    served = create(scene.app, settings=read_settings({}))
    page = (await Api(served, scene.app).call(Role.DEVELOPER, "GET", f"/jobs/{job.id}")).text
    assert "Emitted" not in page
    await served.state.site.close()


async def test_a_page_shows_the_end_of_a_long_output(scene: OutputScene) -> None:
    chain = await asyncio.to_thread(speak, scene, *(f"line {number}\n" for number in range(9_000)))
    job = scene.output.read(chain)[0].job_id
    served = create(scene.app, settings=read_settings({}))
    page = (await Api(served, scene.app).call(Role.DEVELOPER, "GET", f"/jobs/{job}")).text
    assert "line 8999\n" in page
    assert "line 10\n" not in page
    assert "<span data-cut-note>, the last of them" in page
    await served.state.site.close()
