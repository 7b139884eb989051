"""Chains are listed, shown as trees, awaited, cancelled and deleted, on both stores."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.admin import chains as chain_admin
from holdfast.cli.exit_codes import Exit
from holdfast.storage.id_generator import new_id
from tests.cli.conftest import Run
from tests.cli.scene import Scene


def chain_of_two(scene: Scene) -> tuple[str, str]:
    job = scene.running("order.charge")
    return job.id, scene.continued(job, "order.ship")


def test_a_list_shows_a_chain_once_with_its_last_state(run: Run, scene: Scene) -> None:
    id, _ = chain_of_two(scene)
    (row,) = json.loads(run("chains", "list", "-o", "json").stdout)
    assert (row["id"], row["type"], row["state"], row["jobs"]) == (id, "order.charge", "pending", 2)
    assert run("chains", "list", "state:completed").stdout == ""


def test_show_draws_jobs_in_order_and_what_they_wait_for(run: Run, scene: Scene) -> None:
    first, second = chain_of_two(scene)
    waiting = scene.start("order.bill", blockers=(first,))
    tree = run("chains", "show", waiting).stdout.splitlines()
    assert tree[0] == f"{waiting}  order.bill  blocked"
    assert tree[1] == "└─ 1  order.bill  blocked"
    assert tree[2] == f"   └─ waits for {first}  order.charge  pending"
    assert tree[3] == "      ├─ 1  order.charge  completed"
    assert tree[4] == f"      └─ 2  order.ship  pending  {second}"


def test_show_draws_the_last_jobs_of_a_long_chain(
    run: Run, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain_admin, "MAX_JOBS", 1)
    first, second = chain_of_two(scene)
    assert run("chains", "show", first).stdout.splitlines()[1:] == [
        f"├─ 1 earlier job: holdfast jobs list chain:{first}",
        f"└─ 2  order.ship  pending  {second}",
    ]
    shown = json.loads(run("chains", "show", first, "-o", "json").stdout)
    assert (shown["earlier_jobs"], [each["id"] for each in shown["jobs"]]) == (1, [second])


def test_a_list_names_those_who_wait_for_a_chain(run: Run, scene: Scene) -> None:
    first = scene.start()
    waiting = scene.start("order.bill", blockers=(first,))
    scene.start("order.bill")
    assert run("chains", "list", f"blocker:{first}", "-o", "id").stdout.split() == [waiting]
    assert run("jobs", "list", f"blocker:{first}", "-o", "id").stdout.split() == [waiting]
    assert run("chains", "list", f"blocker:{waiting}", "-o", "id").stdout == ""


def test_show_stops_at_the_depth_it_was_given(run: Run, scene: Scene) -> None:
    first = scene.start()
    waiting = scene.start(blockers=(first,))
    result = run("chains", "show", waiting, "--depth", "0", "-o", "json")
    (job,) = json.loads(result.stdout)["jobs"]
    assert job["waits_for"] == [
        {
            "chain_id": first,
            "called": False,
            "open": True,
            "on_failure": "fail",
            "state": "pending",
            "chain": None,
        }
    ]


def test_the_id_of_no_chain_is_not_found(run: Run, scene: Scene) -> None:
    for verb in ("show", "wait", "cancel", "delete"):
        result = run("chains", verb, new_id())
        assert result.exit_code == Exit.NOT_FOUND
        assert "error[HF060]" in result.stderr


def test_waiting_returns_the_output_of_a_chain_that_ends_meanwhile(run: Run, scene: Scene) -> None:
    job = scene.running()
    with ThreadPoolExecutor(1) as beside:
        ending = beside.submit(scene.finish, job, "complete", output='{"url":"/1.pdf"}')
        result = run("chains", "wait", job.id, "--timeout", "30s")
        ending.result()
    assert (result.exit_code, json.loads(result.stdout)) == (0, {"url": "/1.pdf"})


def test_a_later_job_is_named_with_its_chain(run: Run, scene: Scene) -> None:
    chain = scene.start()
    later = new_id()
    scene.start(id=later, chain_id=chain, chain_index=1)
    for verb in ("wait", "show"):
        result = run("chains", verb, later)
        assert result.exit_code == Exit.NOT_FOUND
        assert f"job 2 of chain {chain}" in result.stderr


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("dead", "redrive", "type:nothing.*"), "nothing matched: there is no job to re"),
        (("jobs", "retry", "type:nothing.*", "--dry-run"), "nothing matched"),
        (("chains", "cancel", "type:nothing.*"), "nothing matched: there is no chain to cancel"),
    ],
)
def test_a_filter_that_matches_nothing_says_so(
    run: Run, scene: Scene, command: tuple[str, ...], words: str
) -> None:
    result = run(*command, "--yes")
    assert result.exit_code == 0
    assert words in result.stderr


def test_waiting_in_vain_says_how_it_ended(run: Run, scene: Scene) -> None:
    failed = run("chains", "wait", scene.failed())
    assert failed.exit_code == Exit.FAILED
    assert "ValueError: boom" in failed.stderr
    cancelled = run("chains", "wait", scene.ended("cancel"))
    assert (cancelled.exit_code, cancelled.stdout) == (Exit.FAILED, "")
    late = run("chains", "wait", scene.start(), "--timeout", "1ms")
    assert late.exit_code == Exit.TIMED_OUT
    assert "error[HF065]" in late.stderr


def test_cancelling_a_chain_ends_whichever_job_is_live(run: Run, scene: Scene) -> None:
    id, second = chain_of_two(scene)
    result = run("chains", "cancel", id, "--reason", "withdrawn", "-o", "id")
    assert (result.exit_code, result.stdout) == (0, f"{id}\n")
    assert scene.state(second) == "cancelled"
    assert scene.deeds() == [("chain.cancel", f"chain {id}", "withdrawn")]
    assert run("chains", "cancel", id).exit_code == Exit.REFUSED


def test_deleting_removes_everything_of_a_chain(run: Run, scene: Scene) -> None:
    id, _ = chain_of_two(scene)
    assert run("chains", "delete", id, "--dry-run").exit_code == 0
    assert run("chains", "delete", id).exit_code == 0
    assert run("jobs", "list").stdout == ""
    assert scene.deeds() == [("chain.delete", f"chain {id}", None)]


def test_deleting_what_others_wait_for_is_refused_with_the_list(run: Run, scene: Scene) -> None:
    awaited = scene.start()
    waiting = scene.start(blockers=(awaited,))
    result = run("chains", "delete", awaited)
    assert result.exit_code == Exit.REFUSED
    assert waiting in result.stderr
    assert run("chains", "delete", waiting, "--cascade").exit_code == 0
    assert run("jobs", "list").stdout == ""


def test_deleting_by_filter_leaves_what_others_wait_for(run: Run, scene: Scene) -> None:
    awaited, free = scene.start("a"), scene.start("a")
    scene.start("b", blockers=(awaited,))
    result = run("chains", "delete", "type:a", "--yes", "-o", "id")
    assert (result.exit_code, result.stdout) == (Exit.PARTLY, f"{free}\n")
    assert f"chain {awaited}" in result.stderr
