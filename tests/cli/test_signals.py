"""`holdfast signal`, `jobs steps` and `chains rerun`: seeing durable functions, waking them, and running them anew."""

from __future__ import annotations

import json

import pytest

from holdfast.cli.exit_codes import Exit
from tests.cli.conftest import Run
from tests.cli.scene import Scene
from tests.support.durable import TYPE, DurableScene


@pytest.fixture
def durable(scene: Scene) -> DurableScene:
    """A database to be filled with durable functions."""
    return DurableScene(scene)


def test_a_signal_is_sent_with_its_data_and_audited(run: Run, durable: DurableScene) -> None:
    id = durable.waiting()
    words = ("approved", "7", "--data", '{"by": "ana"}', "--reason", "they called", "-o", "json")
    result = run("signal", *words)
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert (told["name"], told["key"], told["sent"]) == ("approved", "7", True)
    (kept,) = durable.database.read(durable.store.signals.list(10))
    assert (kept.id, kept.name, kept.key, kept.data) == (
        told["id"],
        "approved",
        "7",
        '{"by":"ana"}',
    )
    assert durable.scene.deeds() == [("signal.send", "signal approved 7", "they called")]
    (wait,) = [
        each for each in durable.database.read(durable.store.steps.of_jobs([id])) if each.signal
    ]
    assert wait.signal_id == kept.id


def test_an_id_that_was_used_before_sends_nothing(run: Run, durable: DurableScene) -> None:
    assert "sent paid" in run("signal", "paid", "--id", "w-1").stderr
    again = run("signal", "paid", "--id", "w-1")
    assert again.exit_code == 0
    assert "not sent: paid was sent with this id before" in again.stderr
    assert len(durable.scene.deeds()) == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("not a name",), "is not a valid name of a step or signal"),
        (("paid", "--data", "{"), "the data is not JSON"),
        (("paid", "--keep", "soon"), "'soon' is not a duration"),
        (("paid", "--broadcst"), "did you mean --broadcast?"),
        ((), "missing argument 'NAME'"),
    ],
)
def test_what_cannot_be_sent_is_refused(
    run: Run, scene: Scene, words: tuple[str, ...], told: str
) -> None:
    result = run("signal", *words)
    assert result.exit_code == Exit.USAGE
    assert told in result.stderr
    assert scene.deeds() == []


def test_steps_are_listed_with_their_results_redacted(run: Run, durable: DurableScene) -> None:
    id = durable.waiting()
    charge, ana, bob, wait = json.loads(run("jobs", "steps", id, "-o", "json").stdout)
    assert (charge["step"], charge["state"], charge["tries"]) == ("charge", "done", 1)
    assert charge["output"] == {"paid": 40, "token": "•••"}
    assert charge["took_ms"] >= 0
    assert [ana["step"], bob["step"]] == ["mail[ana]", "mail[bob]"]
    assert (wait["kind"], wait["state"], wait["signal"], wait["signal_key"]) == (
        "wait",
        "open",
        "approved",
        "7",
    )
    raw = json.loads(run("jobs", "steps", id, "--raw", "-o", "json").stdout)
    assert raw[0]["output"]["token"] == "t-1"
    shown = run("jobs", "show", id)
    assert "mail[ana]" in shown.stdout
    assert json.loads(run("jobs", "show", id, "-o", "json").stdout)["steps"][0] == charge
    assert run("jobs", "steps", id, "--limit", "1", "-o", "id").stdout == "wait:approved[7]\n"


def test_the_tries_of_a_step_belong_to_it(run: Run, durable: DurableScene) -> None:
    id = durable.retrying()
    (row,) = json.loads(run("jobs", "steps", id, "-o", "json").stdout)
    assert (row["step"], row["kind"], row["state"], row["tries"]) == ("charge", "step", "open", 2)
    assert row["error"] == "OSError: card"


def test_steps_that_the_code_no_longer_asks_for_are_marked(run: Run, durable: DurableScene) -> None:
    id = durable.outgrown()
    charge, mail = json.loads(run("jobs", "steps", id, "-o", "json").stdout)
    assert (charge["unused"], mail["unused"]) == (False, True)
    assert run("jobs", "steps", id).stdout.count("done, not used") == 1


def test_a_job_without_steps_says_so(run: Run, scene: Scene) -> None:
    result = run("jobs", "steps", scene.start())
    assert result.exit_code == 0
    assert "no steps" in result.stderr
    assert run("jobs", "steps", "0193a6f0-7c00-7000-8000-000000000000").exit_code == Exit.NOT_FOUND


def test_a_chain_is_run_again_from_a_step_with_what_came_before(
    run: Run, durable: DurableScene
) -> None:
    id = durable.waiting(input='{"order":7}')
    words = ("chains", "rerun", id, "--from", "mail[bob]", "--reason", "bob moved")
    result = run(*words, "-o", "id")
    assert result.exit_code == 0, result.output
    new = result.stdout.strip()
    (job,) = durable.database.read(durable.store.jobs.get([new]))
    assert (job.type, job.input, job.state) == (TYPE, '{"order":7}', "pending")
    copied = durable.database.read(durable.store.steps.of_jobs([new]))
    before = durable.database.read(durable.store.steps.of_jobs([id]))
    assert [each.id for each in copied] == [each.id for each in before[:2]]
    assert [each.output for each in copied] == [each.output for each in before[:2]]
    (claimed,) = durable.scene.claim(TYPE)
    assert (claimed.id, bool(claimed.steps)) == (new, True)
    assert durable.scene.deeds() == [("chain.rerun", f"chain {new}", "bob moved")]


def test_what_was_undone_is_not_copied(run: Run, durable: DurableScene) -> None:
    job = durable.begin()
    durable.record(job, "reserve", output="1", undo=True)
    durable.record(job, "charge", output="2")
    durable.record(job, "pack", state="failed", error="OSError: full")
    durable.record(job, "failure", "failure", state="failed", error="OSError: full")
    durable.record(job, "undo:reserve", "undo")
    durable.scene.finish(job, "fail", error="OSError: full")
    new = run("chains", "rerun", job.id, "--from", "pack", "-o", "id").stdout.strip()
    copied = durable.database.read(durable.store.steps.of_jobs([new]))
    assert [str(each.id) for each in copied] == ["charge"]


def test_a_step_that_does_not_exist_is_named_with_the_nearest(
    run: Run, durable: DurableScene
) -> None:
    id = durable.waiting()
    result = run("chains", "rerun", id, "--from", "chrage")
    assert result.exit_code == Exit.USAGE
    assert f"chain {id} has no step 'chrage'" in result.stderr
    assert "did you mean charge?" in result.stderr
    plain = durable.scene.start("plain")
    refused = run("chains", "rerun", plain, "--from", "charge")
    assert "only a durable function that has run has steps" in refused.stderr
    assert durable.scene.deeds() == []


def test_a_step_that_is_being_retried_can_be_started_from(run: Run, durable: DurableScene) -> None:
    job = durable.begin()
    durable.record(job, "reserve", output="1")
    values = {"key": "#1", "state": "open", "error": "OSError: card", "lasts_ms": 60_000}
    durable.record(job, "charge.retry", "sleep", **values)
    durable.park(job, 60_000)
    new = run("chains", "rerun", job.id, "--from", "charge", "-o", "id").stdout.strip()
    copied = durable.database.read(durable.store.steps.of_jobs([new]))
    assert [str(each.id) for each in copied] == ["reserve"]


def test_a_dry_run_starts_nothing(run: Run, durable: DurableScene) -> None:
    id = durable.waiting()
    result = run("chains", "rerun", id, "--from", "mail", "--dry-run")
    assert "would start order with 1 record from before mail" in result.stderr
    assert len(durable.database.read(durable.store.chains.get([id]))) == 1
    assert run("jobs", "list", "-o", "id").stdout.split() == [id]
    unknown = ("chains", "rerun", "0193a6f0-7c00-7000-8000-000000000000", "--from", "mail")
    for more in ((), ("--dry-run",)):
        refused = run(*unknown, *more)
        assert refused.exit_code == Exit.NOT_FOUND
        assert "HF060" in refused.stderr


def test_functions_are_found_by_what_they_wait_for_and_by_a_step(
    run: Run, durable: DurableScene
) -> None:
    id = durable.waiting()
    durable.scene.start("plain")
    assert run("jobs", "list", "waiting:approved", "-o", "id").stdout.split() == [id]
    assert run("jobs", "list", "step:charge", "-o", "id").stdout.split() == [id]
    assert "waiting:approved" in run("jobs", "list", "--help").stdout
