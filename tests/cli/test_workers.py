"""Workers are listed by their standing and asked to stop, on both stores."""

import json

from holdfast.cli.exit_codes import Exit
from tests.cli.conftest import Run
from tests.cli.scene import Scene


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
