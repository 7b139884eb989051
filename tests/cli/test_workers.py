"""Workers are listed by their standing and asked to stop, on both stores."""

import asyncio
import json
import signal
from pathlib import Path
from time import monotonic

import pytest

from holdfast.cli.exit_codes import Exit
from tests.cli.conftest import Run
from tests.cli.processes import Command
from tests.cli.scene import Scene
from tests.support.until import SLOWNESS, until


def standings(run: Run, *words: str) -> dict[str, str]:
    rows = json.loads(run("workers", "list", "-o", "json", *words).stdout)
    return {each["id"]: each["standing"] for each in rows}


def test_a_list_tells_who_lives_drains_and_has_stopped(run: Run, scene: Scene) -> None:
    for id in ("w-1", "w-2", "w-3"):
        scene.worker("mail.send", id=id)
    scene.database.run(scene.store.workers.stop("w-3", "{}"))
    assert run("workers", "drain", "w-2", "--reason", "moved").exit_code == 0
    assert standings(run) == {"w-1": "live", "w-2": "draining"}
    assert standings(run, "--all") == {"w-1": "live", "w-2": "draining", "w-3": "stopped"}
    assert scene.deeds() == [("worker.drain", "worker w-2", "moved")]
    table = run("workers", "list").stdout
    assert "mail.send" in table
    assert "host:1" in table


def test_a_list_that_is_cut_says_so(run: Run, scene: Scene) -> None:
    for id in ("w-1", "w-2", "w-3"):
        scene.worker("mail.send", id=id)
    cut = run("workers", "list", "--limit", "2", "-o", "id")
    assert len(cut.stdout.split()) == 2
    assert "there are more than these 2" in cut.stderr
    assert "there are more" not in run("workers", "list", "--limit", "3").stderr


def test_a_worker_that_a_reaper_gave_up_did_not_stop(run: Run, scene: Scene) -> None:
    for id in ("w-1", "w-2"):
        scene.worker("mail.send", id=id)
    scene.database.run(scene.store.workers.stop("w-2", "{}"))
    in_an_hour = scene.database.run(scene.store.schema.clock()) + 3_600_000_000
    scene.database.run(scene.store.workers.mark_vanished(in_an_hour))
    assert standings(run) == {}
    assert standings(run, "--all") == {"w-1": "vanished", "w-2": "stopped"}


def test_what_is_held_is_what_has_not_ended(run: Run, scene: Scene) -> None:
    scene.worker("mail.send", slots=3)
    for _ in range(3):
        scene.start("mail.send")
    held = scene.claim("mail.send")
    waiting = scene.start("mail.send")
    for left in (3, 2, 1):
        (row,) = json.loads(run("workers", "list", "-o", "json").stdout)
        assert (row["held"], row["slots"]) == (left, 3)
        heads, cells = (line.split() for line in run("workers", "list").stdout.splitlines())
        assert cells[heads.index("HELD")] == str(left)
        why = json.loads(run("jobs", "show", waiting, "-o", "json").stdout)["why"]
        assert ("all workers are busy" in why) == (left == 3)
        scene.finish(held.pop(), "complete")


def test_an_unknown_worker_is_answered_with_the_nearest(run: Run, scene: Scene) -> None:
    scene.worker(id="mailer-1")
    result = run("workers", "drain", "mailer-2")
    assert result.exit_code == Exit.NOT_FOUND
    assert "error[HF069]" in result.stderr
    assert "did you mean mailer-1?" in result.stderr


def test_a_dry_drain_asks_nobody(run: Run, scene: Scene) -> None:
    scene.worker(id="w-1")
    assert run("workers", "drain", "w-1", "--dry-run").exit_code == 0
    assert standings(run) == {"w-1": "live"}


def test_nobody_is_said_on_stderr(run: Run, scene: Scene) -> None:
    result = run("workers", "list")
    assert (result.stdout, result.stderr) == ("", "no live workers\n")


APPLICATION = """
from holdfast import Holdfast, Job

app = Holdfast()

@app.job("mail.send")
def send(job: Job[None]) -> None: ...
"""


def test_a_killed_worker_is_silent_after_three_of_its_own_heartbeats(
    run: Run, scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def live() -> int:
        return len(scene.database.read(scene.store.workers.page(10, live=True)))

    (tmp_path / "shop.py").write_text(APPLICATION)
    monkeypatch.chdir(tmp_path)
    with Command("worker", "shop:app", env={"OUTBOX_LEASE_DURATION_MS": "6000"}) as command:
        command.wait_for_word("worker_started")
        asyncio.run(until(live))
        assert list(standings(run).values()) == ["live"]
        command.ended_by(signal.SIGKILL)
    began = monotonic()
    asyncio.run(until(lambda: not live()))
    assert 3 < monotonic() - began < 10 * SLOWNESS
    assert list(standings(run).values()) == ["silent"]
    findings = {each["check"]: each for each in json.loads(run("doctor", "-o", "json").stdout)}
    assert findings["workers"]["measured"].startswith("0 live")
    status = json.loads(run("status", "-o", "json").stdout)
    assert (status["workers"], status["silent"]) == (0, 1)
