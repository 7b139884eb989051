"""Schedules over HTTP and on their pages: reading for viewers, changes for others, all of it audited."""

from __future__ import annotations

from urllib.parse import quote

from holdfast.admin.access import Role
from holdfast.app import Holdfast
from holdfast_schedules import add_schedules
from tests.web.conftest import Api

ALL = "/api/v1/schedules"
NAME = "report: ana/7"
ONE = f"{ALL}/{quote(NAME, safe='')}"
FORM = {"Sec-Fetch-Site": "same-origin"}
BODY = {"name": NAME, "type": "echo", "input": {"id": 7, "password": "hunter2"}, "every": "1h"}


async def test_developers_set_and_viewers_read_without_inputs(api: Api, app: Holdfast) -> None:
    assert (await api.call(Role.OPERATOR, "POST", ALL, json=BODY)).status_code == 403
    made = await api.call(Role.DEVELOPER, "POST", ALL, json=BODY | {"reason": "ordered"})
    assert (made.status_code, made.json()["state"]) == (200, "scheduled")
    assert made.json()["input"]["id"] == 7
    assert made.json()["input"]["password"] != "hunter2"
    seen = await api.call(Role.VIEWER, "GET", ONE)
    assert (seen.json()["input"], seen.json()["payloads_withheld"]) == (None, True)
    listed = await api.call(Role.VIEWER, "GET", f"{ALL}?prefix=report&state=active&limit=1")
    assert [each["name"] for each in listed.json()["items"]] == [NAME]
    assert listed.json()["next"] == NAME
    missing = await api.call(Role.VIEWER, "GET", f"{ALL}/nobody")
    assert (missing.status_code, missing.json()["code"]) == (404, "HF220")


async def test_what_cannot_work_is_refused_with_its_code(api: Api, app: Holdfast) -> None:
    for change, code in (
        ({"cron": "0 9 * * *"}, "HF081"),
        ({"type": "ehco"}, "HF020"),
        ({"name": "x" * 300}, "HF221"),
        ({"every": None, "cron": "0 9 * * *", "timezone": "Mars"}, "HF081"),
        ({"overlap": "wait"}, "HF073"),
    ):
        refused = await api.call(Role.DEVELOPER, "POST", ALL, json=BODY | change)
        assert refused.json()["code"] == code, change
        assert 400 <= refused.status_code < 500
    assert (await api.call(Role.VIEWER, "GET", ALL)).json()["items"] == []


async def test_operators_pause_resume_and_run_and_developers_delete(
    api: Api, app: Holdfast
) -> None:
    await api.call(Role.DEVELOPER, "POST", ALL, json=BODY)
    paused = await api.call(Role.OPERATOR, "POST", f"{ONE}/pause", json={"reason": "holiday"})
    assert paused.json() == {"name": NAME, "paused": True}
    assert (await api.call(Role.VIEWER, "GET", ONE)).json()["paused_by"] == "ana-operator"
    assert (await api.call(Role.OPERATOR, "POST", f"{ONE}/resume", json={})).status_code == 200
    ran = await api.call(Role.OPERATOR, "POST", f"{ONE}/run-now", json={})
    assert ran.status_code == 201
    slots = (await api.call(Role.VIEWER, "GET", f"{ONE}/slots")).json()["items"]
    assert [each["job_id"] for each in slots] == [ran.json()["id"]]
    assert (await api.call(Role.OPERATOR, "DELETE", ONE)).status_code == 403
    assert (await api.call(Role.DEVELOPER, "DELETE", ONE)).json()["deleted"] is True
    audit = (await api.call(Role.VIEWER, "GET", "/api/v1/audit")).json()["items"]
    actions = {each["action"] for each in audit if each["target"] == f"schedule {NAME}"}
    assert actions == {
        f"schedule.{verb}" for verb in ("set", "pause", "resume", "run_now", "delete")
    }
    assert not any("password" in str(each) for each in audit)


async def test_the_page_lists_schedules_and_its_form_sets_one(api: Api, app: Holdfast) -> None:
    async with api.client(Role.DEVELOPER) as client:
        assert "No schedules yet" in (await client.get("/schedules")).text
        fields = {"name": NAME, "type": "echo", "input": '{"id": 7, "password": "hunter2"}'}
        wrong = await client.post("/schedule/form", data=fields, headers=FORM)
        assert wrong.status_code == 400
        assert "neither every nor cron" in wrong.text
        saved = await client.post(
            "/schedule/form", data=fields | {"cron": "0 9 * * mon", "timezone": "UTC"}, headers=FORM
        )
        assert saved.status_code == 303
        page = (await client.get(saved.headers["location"])).text
        assert "It was saved" in page
        assert "Next job in" in page
        listed = (await client.get("/schedules?prefix=report&state=active")).text
        assert NAME in listed
        # What is masked in the form stays as it is.
        form = await client.get(f"/schedule/form?name={quote(NAME)}")
        assert "hunter2" not in form.text
        again = {
            "editing": NAME,
            "name": NAME,
            "type": "echo",
            "input": '{"id": 8, "password": "•••"}',
            "every": "2h",
        }
        assert (await client.post("/schedule/form", data=again, headers=FORM)).status_code == 303
        move = {"move": "pause", "name": NAME, "back": "/schedules"}
        assert (await client.post("/schedules", data=move, headers=FORM)).status_code == 303
        assert "Paused by ana-developer" in (await client.get(f"/schedule?name={quote(NAME)}")).text
        gone = {"move": "delete", "name": NAME, "back": "/schedules"}
        found = add_schedules(app).get(NAME)
        assert (found.input, found.schedule) == ({"id": 8, "password": "hunter2"}, "every 2h")
        assert (await client.post("/schedules", data=gone, headers=FORM)).status_code == 303
    assert add_schedules(app).list() == []
