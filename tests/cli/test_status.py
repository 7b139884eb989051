"""The state of the queue, for people and for monitors, on both stores."""

import json
import re
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from holdfast.cli.exit_codes import Exit
from tests.cli.conftest import Run
from tests.cli.processes import Command
from tests.cli.scene import Scene


def test_the_figures_are_those_of_the_queue(run: Run, scene: Scene) -> None:
    scene.failed()
    scene.ended("complete")
    running = scene.running("pdf")
    scene.start("pdf", blockers=(running.id,))
    scene.start("mail.send")
    scene.worker("mail.send")
    found = json.loads(run("status", "-o", "json").stdout)
    expected = {
        "live": 3,
        "due": 1,
        "running": 1,
        "blocked": 1,
        "stuck": 0,
        "completed": 1,
        "failed": 1,
        "workers": 1,
        "slots": 4,
        "unhandled": [],
        "paused_types": [],
        "paused_keys": [],
    }
    assert {name: found[name] for name in expected} == expected
    assert {each["type"] for each in found["types"]} == {"mail.send", "pdf"}


def test_a_paused_type_is_named(run: Run, scene: Scene) -> None:
    scene.start("pdf")
    scene.worker("pdf")
    run("types", "pause", "pdf")
    lines = run("status").stdout.splitlines()
    assert lines[0].endswith("; pdf is paused")
    assert any(each.startswith("  paused    pdf by ") for each in lines)
    assert json.loads(run("status", "-o", "json").stdout)["paused_types"] == ["pdf"]


def test_people_read_one_sentence_first(run: Run, scene: Scene) -> None:
    scene.start("pdf")
    result = run("status")
    assert result.stdout.startswith("No live workers; 1 job is due\n  due       1   oldest waiting")
    scene.worker("mail.send")
    assert run("status").stdout.startswith("No live worker handles pdf, and jobs are due\n")


@pytest.mark.parametrize("condition", ["due>0", "oldest>=0s", "workers<1", "dead=0", "unhandled>0"])
def test_a_condition_that_holds_is_told_by_the_exit_code(
    run: Run, scene: Scene, condition: str
) -> None:
    scene.start()
    result = run("status", "--fail-if", "failed>5", "--fail-if", condition)
    assert result.exit_code == Exit.CHECK_NOT_MET
    assert result.stdout != ""
    assert result.stderr.startswith("error[HF094]: ")


def test_a_condition_counts_as_far_as_it_needs(
    run: Run, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.commands.health.COUNTED", 2)
    for _ in range(5):
        scene.start()
    assert re.search(r"^  due +2\+ ", run("status").stdout, re.MULTILINE)
    assert run("status", "--fail-if", "due>4").exit_code == Exit.CHECK_NOT_MET


def test_conditions_that_do_not_hold_change_nothing(run: Run, scene: Scene) -> None:
    scene.start()
    words = [
        word for each in ("oldest>5m", "failed>0", "due>20000") for word in ("--fail-if", each)
    ]
    result = run("status", *words)
    assert (result.exit_code, result.stderr) == (0, "")


@pytest.mark.parametrize(
    ("condition", "complaint"),
    [
        ("oldes>5m", "did you mean oldest?"),
        ("oldest>soon", "'soon' is not a duration"),
        ("due>many", "'many' is not a whole number"),
        pytest.param("due>" + "9" * 5_000, "is not a whole number", id="a number without end"),
        ("due", "'due' is not a condition"),
        ("", "'' is not a condition"),
    ],
)
def test_a_condition_that_cannot_be_read_is_refused_before_anything_is_asked(
    run: Run, condition: str, complaint: str
) -> None:
    result = run("status", "--fail-if", condition, "--url", "postgresql://127.0.0.1:1/shop")
    assert result.exit_code == Exit.USAGE
    assert complaint in result.stderr


def test_watching_goes_on_line_by_line_until_it_is_interrupted(scene: Scene) -> None:
    with Command("status", "--watch", "--interval", "0.1", "-o", "ndjson") as command:
        first = json.loads(command.line())
        scene.start()
        while json.loads(command.line())["due"] != 1:
            pass
        assert command.interrupt() == Exit.INTERRUPTED
    assert first["due"] == 0


def test_it_fits_a_pipe_of_120_columns(run: Run, scene: Scene) -> None:
    scene.start(f"billing.{'reminder' * 20}")
    scene.failed(type="mail.send")
    lines = run("status").stdout.splitlines()
    assert max(map(len, lines)) <= 120
    assert any(each.endswith("1") and each.startswith("mail.send ") for each in lines)
    with Command("status", "--watch", "--interval", "0.1") as command:
        line = command.line().rstrip("\n")
        command.interrupt()
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ  due 1  running 0  failed 1  workers 0  \S.*", line
    )
    assert len(line) <= 120


def test_tail_writes_a_line_for_every_change(scene: Scene) -> None:
    scene.start("old")
    with Command("jobs", "tail", "type:pdf", "-o", "ndjson") as command:
        job = scene.running("pdf")
        seen = [json.loads(command.line())]
        scene.finish(job, "complete")
        while seen[-1]["state"] != "completed":
            seen.append(json.loads(command.line()))
        assert {each["id"] for each in seen} == {job.id}
        assert command.interrupt() == Exit.INTERRUPTED


def test_tail_begins_with_what_has_happened_before(scene: Scene) -> None:
    ids = [scene.start() for _ in range(3)]
    with Command("jobs", "tail", "--lines", "2") as command:
        assert ids[1] in command.line()
        assert ids[2] in command.line()
        command.interrupt()


def test_a_database_may_be_named_by_a_service(
    run: Run, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = conninfo_to_dict(postgres_url)
    lines = "\n".join(f"{name}={value}" for name, value in own.items())
    (tmp_path / "services").write_text(f"[shop]\n{lines}\n")
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
    assert run("status", "--url", "postgresql://?service=shop").exit_code == 0


@pytest.mark.parametrize("seconds", ["nan", "inf", "-inf", "1e300", "0.01"])
def test_an_interval_that_cannot_be_waited_for_is_refused(
    seconds: str, run: Run, scene: Scene
) -> None:
    refused = run("status", "--watch", "--interval", seconds)
    assert refused.exit_code == Exit.USAGE
    assert "invalid value for '--interval'" in refused.stderr
