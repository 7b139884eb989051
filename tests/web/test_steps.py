"""Durable functions over HTTP and on the pages: their steps, signals, why they wait, and running them anew."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest

from holdfast.admin.access import Role
from holdfast.commands.signals import make_signal
from holdfast.core.steps import NewStep
from tests.cli.scene import Scene
from tests.support.durable import DurableScene
from tests.web.conftest import Api

SAME_SITE = {"Sec-Fetch-Site": "same-origin"}
WAITING = re.compile(r"Waiting for signal approved 7 until \w+day \d\d:\d\d UTC")


@pytest.fixture
def durable(scene: Scene) -> DurableScene:
    """A database to be filled with durable functions."""
    return DurableScene(scene)


async def test_a_job_shows_its_steps_and_what_it_waits_for(api: Api, durable: DurableScene) -> None:
    id = durable.waiting()
    found = (await api.call(None, "GET", f"/api/v1/jobs/{id}")).json()
    assert WAITING.fullmatch(found["why"])
    assert [each["step"] for each in found["steps"]] == [
        "charge",
        "mail[ana]",
        "mail[bob]",
        "wait:approved[7]",
    ]
    assert found["steps"][0]["output"] == {"paid": 40, "token": "•••"}
    assert found["steps_cut"] is False
    listed = (await api.call(None, "GET", f"/api/v1/jobs/{id}/steps?limit=2")).json()["items"]
    assert listed == found["steps"][2:]
    page = html.unescape((await api.call(None, "GET", f"/jobs/{id}")).text)
    assert WAITING.search(page)
    for shown in ("mail[ana]", '{"paid":40,"token":"•••"}', "Send signal", "Run again from"):
        assert shown in page
    assert page.count("<svg") > 4


async def test_chains_that_a_function_called_do_not_count_as_what_blocks_it(
    api: Api, durable: DurableScene
) -> None:
    job = durable.begin()
    chains = durable.call(job, 1, 1)
    durable.park(job)
    found = (await api.call(None, "GET", f"/api/v1/jobs/{job.id}")).json()
    assert [(each["chain_id"], each["called"]) for each in found["blockers"]] == [
        (each, True) for each in chains
    ]
    page = (await api.call(None, "GET", f"/jobs/{job.id}")).text
    assert "Called chains" in page
    assert "Blocked by" not in page
    blocked = durable.scene.start("mail.send", blockers=(chains[1],))
    found = (await api.call(None, "GET", f"/api/v1/jobs/{blocked}")).json()
    assert [each["called"] for each in found["blockers"]] == [False]
    page = (await api.call(None, "GET", f"/jobs/{blocked}")).text
    assert "Blocked by" in page
    assert "Called chains" not in page


async def test_steps_that_the_code_no_longer_asks_for_are_marked(
    api: Api, durable: DurableScene
) -> None:
    id = durable.outgrown()
    found = (await api.call(None, "GET", f"/api/v1/jobs/{id}")).json()
    marked = [(each["step"], each["unused"]) for each in found["steps"]]
    assert marked == [("charge", False), ("mail[ana]", True)]
    assert (await api.call(None, "GET", f"/jobs/{id}")).text.count("done, not used") == 1


async def test_results_are_withheld_from_those_who_may_not_see_payloads(
    api: Api, durable: DurableScene
) -> None:
    id = durable.waiting()
    durable.database.run(durable.store.signals.append([make_signal("paid", None, {"pin": 1})]))
    found = (await api.call(Role.VIEWER, "GET", f"/api/v1/jobs/{id}/steps")).json()["items"]
    assert {each["output"] for each in found} == {None}
    refused = await api.call(Role.OPERATOR, "GET", f"/api/v1/jobs/{id}/steps?raw=true")
    assert refused.status_code == 403
    signals = (await api.call(Role.OPERATOR, "GET", "/api/v1/signals")).json()["items"]
    assert [(each["data"], each["data_withheld"]) for each in signals] == [(None, True)]
    page = (await api.call(Role.VIEWER, "GET", f"/jobs/{id}")).text
    for hidden in ("paid&#34;", "Send signal", "Run again from"):
        assert hidden not in page


async def test_a_signal_is_sent_once_for_an_id_and_listed_with_the_waits(
    api: Api, durable: DurableScene
) -> None:
    id = durable.waiting()
    body = {"name": "approved", "key": 7, "data": {"by": "ana"}, "id": "w-1", "reason": "called"}
    first = await api.call(None, "POST", "/api/v1/signals", json=body)
    again = await api.call(None, "POST", "/api/v1/signals", json=body)
    assert (first.status_code, first.json()["sent"]) == (201, True)
    assert (again.status_code, again.json()["sent"]) == (200, False)
    found = (await api.call(None, "GET", "/api/v1/signals")).json()
    (signal,) = found["items"]
    assert (signal["name"], signal["key"], signal["data"]) == ("approved", "7", {"by": "ana"})
    (wait,) = found["waits"]
    assert (wait["job_id"], wait["signal"], wait["signal_key"]) == (id, "approved", "7")
    assert wait["since"].endswith("Z")
    assert durable.scene.deeds() == [("signal.send", "signal approved 7", "called")]


@pytest.mark.parametrize(
    "body",
    [
        {"name": "not a name"},
        {"name": "paid", "keep": "soon"},
        {"name": "paid", "key": ""},
        {"name": "paid", "more": 1},
        {},
    ],
)
async def test_what_cannot_be_sent_is_refused(
    api: Api, durable: DurableScene, body: dict[str, Any]
) -> None:
    answer = await api.call(None, "POST", "/api/v1/signals", json=body)
    assert answer.status_code == 400, answer.text
    assert durable.scene.deeds() == []


async def test_viewers_send_no_signals_and_operators_run_nothing_again(
    api: Api, durable: DurableScene
) -> None:
    id = durable.waiting()
    body = {"name": "approved", "key": "7"}
    assert (await api.call(Role.VIEWER, "POST", "/api/v1/signals", json=body)).status_code == 403
    assert (await api.call(Role.OPERATOR, "POST", "/api/v1/signals", json=body)).status_code == 201
    path, wanted = f"/api/v1/chains/{id}/rerun", {"from": "charge"}
    assert (await api.call(Role.OPERATOR, "POST", path, json=wanted)).status_code == 403
    assert (await api.call(Role.DEVELOPER, "POST", path, json=wanted)).status_code == 201


async def test_a_function_runs_again_from_a_step(api: Api, durable: DurableScene) -> None:
    id = durable.waiting()
    body = {"from": "wait:approved[7]", "reason": "again"}
    answer = await api.call(None, "POST", f"/api/v1/chains/{id}/rerun", json=body)
    assert answer.status_code == 201, answer.text
    new = answer.json()["id"]
    steps = (await api.call(None, "GET", f"/api/v1/jobs/{new}/steps")).json()["items"]
    assert [each["step"] for each in steps] == ["charge", "mail[ana]", "mail[bob]"]
    assert durable.scene.deeds() == [("chain.rerun", f"chain {new}", "again")]
    missing = await api.call(None, "POST", f"/api/v1/chains/{id}/rerun", json={"from": "mial"})
    assert missing.json()["help"] == "did you mean mail?"


async def test_data_of_a_signal_that_is_nested_too_deep_is_refused_in_words(api: Api) -> None:
    form = {"move": "signal", "name": "approved", "data": "[" * 5_000}
    refused = await api.call(None, "POST", "/signals", data=form, headers=SAME_SITE)
    assert refused.status_code == 400
    assert "the data is nested too deep" in refused.text


async def test_the_page_sends_a_signal_and_runs_a_function_again(
    api: Api, durable: DurableScene
) -> None:
    id = durable.waiting()
    form = {"move": "signal", "name": "approved", "key": "7", "back": f"/jobs/{id}"}
    good = form | {"data": '{"by": "ana"}', "reason": "called"}
    sent = await api.call(None, "POST", "/signals", data=good, headers=SAME_SITE)
    assert sent.status_code == 303, sent.text
    flash = (await api.call(None, "GET", sent.headers["location"])).text
    assert "Signal approved sent" in flash
    bad = await api.call(None, "POST", "/signals", data=form | {"data": "{"}, headers=SAME_SITE)
    assert "the data is not JSON" in bad.text
    (signal,) = durable.database.read(durable.store.signals.list(10))
    assert (signal.key, signal.data) == ("7", '{"by":"ana"}')
    again = {"move": "rerun", "step": "mail[bob]", "back": f"/jobs/{id}"}
    done = await api.call(None, "POST", f"/chains/{id}", data=again, headers=SAME_SITE)
    assert done.status_code == 303, done.text
    assert done.headers["location"].startswith("/chains/")
    actions = [each[0] for each in durable.scene.deeds()]
    assert actions == ["signal.send", "chain.rerun"]


async def test_a_job_that_has_ended_takes_no_signals(api: Api, durable: DurableScene) -> None:
    id = durable.waiting()
    await api.call(None, "POST", f"/api/v1/jobs/{id}/cancel")
    page = (await api.call(None, "GET", f"/jobs/{id}")).text
    assert "not ended" in page
    assert "Send signal" not in page


async def test_a_question_is_asked_where_no_script_does(api: Api, durable: DurableScene) -> None:
    id = durable.waiting()
    page = (await api.call(None, "GET", f"/jobs/{id}")).text
    assert "Send approved 7?" in page
    form = {"move": "signal", "ask:signal": "Send approved 7?", "name": "approved", "key": "7"}
    asked = await api.call(None, "POST", "/signals", data=form, headers=SAME_SITE)
    assert "Send approved 7?" in asked.text
    assert durable.scene.deeds() == []


async def test_a_page_of_many_steps_shows_the_last(api: Api, durable: DurableScene) -> None:
    job = durable.begin()
    for number in range(1, 4):
        durable.record(job, "mail", nth=number, output="1")
    rows = [
        {"name": "row", "key": "", "nth": n, "position": n + 3, "kind": "step", "state": "done"}
        for n in range(1, 201)
    ]
    durable.database.run(
        durable.store.steps.record([NewStep(job.id, job.token, **each) for each in rows])  # type: ignore[arg-type]
    )
    found = (await api.call(None, "GET", f"/api/v1/jobs/{job.id}")).json()
    assert (len(found["steps"]), found["steps_cut"]) == (200, True)
    assert found["steps"][0]["step"] == "row"
    assert found["steps"][-1]["step"] == "row#200"
    assert "the last 200" in (await api.call(None, "GET", f"/jobs/{job.id}")).text


async def test_monitors_see_what_functions_wait_for(api: Api, durable: DurableScene) -> None:
    durable.waiting()
    job = durable.begin()
    durable.call(job, 1, 2)
    durable.park(job)
    durable.record(durable.begin(), "rows", "cursor", state="open", output="1")
    metrics = (await api.call(None, "GET", "/metrics")).text
    for kind, number in (("wait", 1), ("run", 1), ("sleep", 0)):
        assert f'holdfast_function_waits{{kind="{kind}"}} {number}.0' in metrics
