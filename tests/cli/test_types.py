"""Job types are listed, paused, resumed and set, on both stores."""

import json
import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.exit_codes import Exit
from holdfast.core.records import TypeSetting
from holdfast_testing.kit import Kit
from tests.cli.conftest import Run
from tests.cli.scene import Scene


def listed(run: Run) -> dict[str, dict[str, Any]]:
    rows = json.loads(run("types", "list", "-o", "json").stdout)
    return {each["type"]: each for each in rows}


def setting(scene: Scene, type: str) -> TypeSetting:
    return next(
        each for each in scene.database.read(scene.store.workers.settings()) if each.type == type
    )


def test_a_list_tells_depth_age_results_and_handlers(run: Run, scene: Scene) -> None:
    scene.failed(type="pdf")
    scene.ended("complete", "pdf")
    scene.start("pdf")
    scene.worker("mail.send", "pdf")
    rows = listed(run)
    assert list(rows) == ["mail.send", "pdf"]
    pdf = rows["pdf"]
    assert (pdf["live"], pdf["completed"], pdf["failed"], pdf["workers"]) == (1, 1, 1, 1)
    assert pdf["oldest_due_at"] is not None
    assert (pdf["due"], pdf["due_bounded"], rows["mail.send"]["due"]) == (1, False, 0)
    assert "OLDEST DUE" in run("types", "list").stdout
    assert run("types", "list", "-o", "id").stdout == "mail.send\npdf\n"


def test_a_type_shows_that_it_has_an_on_failed(run: Run, scene: Scene) -> None:
    for each in ("mail.send", "pdf"):
        scene.start(each)
    scene.database.run(scene.store.on_failed.declare(["pdf"]))
    assert {name: each["on_failed"] for name, each in listed(run).items()} == {
        "mail.send": False,
        "pdf": True,
    }
    assert "on failed" in run("types", "show", "pdf").stdout


def test_due_jobs_beyond_what_a_list_counts_have_a_plus(run: Run, scene: Scene) -> None:
    for _ in range(101):
        scene.start("pdf")
    row = listed(run)["pdf"]
    assert (row["due"], row["due_bounded"]) == (100, True)
    assert " 100+ " in run("types", "list").stdout
    assert json.loads(run("types", "show", "pdf", "-o", "json").stdout)["due"] == 100


def test_a_paused_type_is_shown_with_who_paused_it_until_it_is_resumed(
    run: Run, scene: Scene
) -> None:
    scene.start("pdf")
    assert run("types", "pause", "pdf", "--reason", "printer on fire").exit_code == 0
    assert listed(run)["pdf"]["paused"] is True
    assert listed(run)["pdf"]["paused_by"]
    assert "by " in run("types", "list").stdout
    assert run("types", "resume", "pdf").exit_code == 0
    assert listed(run)["pdf"]["paused"] is False
    assert scene.deeds() == [
        ("type.pause", "type pdf", "printer on fire"),
        ("type.resume", "type pdf", None),
    ]


def test_everything_can_be_paused_at_once(run: Run, scene: Scene) -> None:
    assert run("types", "pause", "--all").exit_code == 0
    identity = scene.database.read(scene.store.schema.identity())
    assert identity is not None
    assert identity.paused
    assert run("types", "resume", "--all").exit_code == 0
    assert [target for _, target, _ in scene.deeds()] == ["everything", "everything"]


def test_settings_are_changed_one_by_one_and_taken_back(run: Run, scene: Scene) -> None:
    scene.start("pdf")
    words = ("--lease", "120s", "--timeout", "5m", "--concurrency", "2", "--max-attempts", "4")
    assert run("types", "set", "pdf", *words).exit_code == 0
    assert setting(scene, "pdf") == TypeSetting(
        "pdf", lease_ms=120_000, timeout_ms=300_000, concurrency=2, max_attempts=4
    )
    assert "lease 2m · timeout 5m · concurrency 2 · attempts 4" in run("types", "list").stdout
    assert run("types", "set", "pdf", "--lease", "default").exit_code == 0
    assert setting(scene, "pdf").lease_ms is None
    assert setting(scene, "pdf").concurrency == 2


@pytest.mark.parametrize(
    ("timings", "lease", "code"),
    [
        ("{}", "1s", "HF018"),
        ('{"shutdown_ms": 500}', "1s", "HF019"),
        ('{"shutdown_ms": 500, "reaper_interval_ms": 500}', "400ms", "HF018"),
    ],
)
def test_a_lease_that_does_not_fit_the_timings_of_the_workers_is_refused(
    run: Run, scene: Scene, timings: str, lease: str, code: str
) -> None:
    scene.worker("pdf", timings=timings)
    result = run("types", "set", "pdf", "--lease", lease)
    assert result.exit_code == Exit.USAGE
    assert f"error[{code}]" in result.stderr
    assert "lease of pdf=" in result.stderr
    assert scene.database.read(scene.store.workers.settings()) == []


def test_a_lease_that_fits_the_workers_of_the_type_is_accepted(run: Run, scene: Scene) -> None:
    scene.worker("pdf", timings='{"shutdown_ms": 500, "reaper_interval_ms": 500}')
    scene.worker("mail.send", id="other")
    assert run("types", "set", "pdf", "--lease", "1s").exit_code == 0
    assert setting(scene, "pdf").lease_ms == 1_000


@pytest.mark.parametrize(
    "words", [("pause", "pfd"), ("resume", "pfd"), ("set", "pfd", "--lease", "1m")]
)
def test_an_unknown_type_is_answered_with_the_nearest(
    run: Run, scene: Scene, words: tuple[str, ...]
) -> None:
    scene.start("pdf")
    result = run("types", *words)
    assert result.exit_code == Exit.NOT_FOUND
    assert "did you mean pdf?" in result.stderr


def test_a_dry_run_changes_nothing(run: Run, scene: Scene) -> None:
    scene.start("pdf")
    result = run("types", "pause", "pdf", "--dry-run")
    assert "would pause pdf" in result.stderr
    assert listed(run)["pdf"]["paused"] is False
    assert scene.deeds() == []


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
@pytest.mark.parametrize(
    ("words", "field", "names"),
    [
        (("types", "pause", "pdf"), "type", ["pdf"]),
        (("types", "resume", "--all"), "type", ["*"]),
        (("types", "set", "pdf", "--concurrency", "2"), "type", ["pdf"]),
        (("types", "reset", "pdf"), "type", ["pdf"]),
        (("workers", "drain", "w-1", "w-2"), "id", ["w-1", "w-2"]),
    ],
)
def test_what_was_changed_is_listed_in_the_format_that_was_asked_for(
    run: Run, scene: Scene, words: tuple[str, ...], field: str, names: list[str], dry: Sequence[str]
) -> None:
    scene.start("pdf")
    scene.worker("pdf", id="w-1")
    scene.worker("pdf", id="w-2")
    assert json.loads(run(*words, *dry, "-o", "json").stdout) == [{field: each} for each in names]
    assert run(*words, *dry, "-o", "id").stdout.split() == names
    assert run(*words, *dry).stdout == ""


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("pause",), "name job types, or use --all"),
        (("pause", "pdf", "--all"), "name job types, or use --all"),
        (("set", "pdf"), "nothing to set"),
        (("set", "pdf", "--lease", "soon"), "'soon' is not a duration"),
        (("set", "pdf", "--concurrency", "0"), "'0' is neither a positive number"),
        (("set", "pdf", "--concurrency", "two"), "'two' is neither a positive number"),
        (("set", "pdf", "--concurrency", "9" * 5_000), "is neither a positive number"),
        (("set", "pdf", "--timeout", "0s"), "timeout_ms=0 is not between 1 and"),
        (("set", "pdf", "--timeout", "0s", "--dry-run"), "timeout_ms=0 is not between 1 and"),
    ],
)
def test_wrong_input_is_refused(
    run: Run, scene: Scene, words: tuple[str, ...], complaint: str
) -> None:
    scene.start("pdf")
    result = run("types", *words)
    assert result.exit_code == Exit.USAGE
    assert complaint in result.stderr


CHANGED = """
from dataclasses import dataclass
from holdfast import Holdfast, Job

app = Holdfast()

@dataclass
class Mail:
    address: str

@app.job("mail.send", version=2)
async def send(job: Job[Mail]) -> None: ...
"""
UPGRADE = """
@app.upgrade(send, from_=1)
def renamed(old: dict[str, str]) -> Mail:
    return Mail(old["to"])
"""


def test_what_waits_is_read_with_new_code_before_it_is_deployed(
    run: Run, scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A module is imported once, and the application in it keeps its database.
    changed, upgraded = (f"{name}_{scene.store.dialect}" for name in ("changed", "upgraded"))
    (tmp_path / f"{changed}.py").write_text(CHANGED)
    (tmp_path / f"{upgraded}.py").write_text(CHANGED + UPGRADE)
    monkeypatch.syspath_prepend(tmp_path)
    scene.ended("complete")
    old = scene.start()
    scene.start(input='{"address":"ben"}', version=2)
    scene.start("pdf")
    refused = run("types", "check", f"{changed}:app", "-o", "json")
    assert refused.exit_code == Exit.CHECK_NOT_MET
    (row,) = json.loads(refused.stdout)
    assert (row["type"], row["waiting"], row["unreadable"]) == ("mail.send", 2, 1)
    assert (row["versions"], row["example"]) == ("1, 2", old)
    assert "nothing upgrades version 1 to 2" in row["error"]
    assert "no handler for pdf" in refused.stderr
    assert run("types", "check", f"{upgraded}:app").exit_code == Exit.OK
    assert scene.deeds() == []


FUNCTION = """
from holdfast import Holdfast, Job

app = Holdfast()

async def reserve(number: int) -> int:
    return number

async def release(number: int) -> None: ...

@app.job("order")
async def order(job: Job[int]) -> None:
    await job.step("STEP", reserve, 1, undo=release)
    await job.wait_for("SIGNAL")
"""


def test_steps_and_waits_that_new_code_does_not_ask_for_are_a_warning(
    run: Run, scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    names = {"old": ("reserve", "paid"), "step": ("hold", "paid"), "signal": ("reserve", "payment")}
    modules = {each: f"{each}_{scene.store.dialect}" for each in names}
    for each, (step, signal) in names.items():
        text = FUNCTION.replace("STEP", step).replace("SIGNAL", signal)
        (tmp_path / f"{modules[each]}.py").write_text(text)
    app = import_module(modules["old"]).app
    with app.transaction() as tx:
        chain = app.start(tx, "order", 1)
    Kit(app, os.environ["HOLDFAST_URL"]).run_until_idle()
    checked = {each: run("types", "check", f"{modules[each]}:app", "-o", "json") for each in names}
    assert {each.exit_code for each in checked.values()} == {Exit.OK}
    assert "does not ask for" not in checked["old"].stderr
    assert "order does not ask for reserve before something new" in checked["step"].stderr
    assert f"such as {chain.id}" in checked["step"].stderr
    assert "order does not ask for wait:paid before something new" in checked["signal"].stderr
    assert json.loads(checked["signal"].stdout)[0]["unasked"] == {"wait:paid": 1}
    app.close()
