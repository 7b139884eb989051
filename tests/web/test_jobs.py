"""Jobs, dead letters, types and workers over HTTP: pages, versions, reasons and errors."""

import csv
import io

import pytest

from holdfast.admin.access import Role
from holdfast.storage.id_generator import new_id
from tests.cli.scene import Scene
from tests.web.conftest import Api

CANARY = "hf_canarycanarycanarycanary1"


async def test_lists_go_page_by_page(api: Api, scene: Scene) -> None:
    ids = [scene.start() for _ in range(5)]
    path = "/api/v1/jobs?filter=state:pending&limit=3"
    first = (await api.call(Role.VIEWER, "GET", path)).json()
    second = (await api.call(Role.VIEWER, "GET", f"{path}&after={first['next']}")).json()
    assert [each["id"] for each in first["items"] + second["items"]] == ids[::-1]
    assert second["next"] is None


async def test_jobs_that_match_are_counted(api: Api, scene: Scene) -> None:
    for _ in range(3):
        scene.failed("TimeoutError: late")
    scene.start("pdf")
    for filter, count in (("", 4), ("state:failed", 3), ("late", 3), ("type:pdf late", 0)):
        answer = await api.call(Role.VIEWER, "GET", "/api/v1/jobs/count", params={"filter": filter})
        assert answer.json() == {"count": count, "more": False}, filter
    refused = await api.call(Role.VIEWER, "GET", "/api/v1/jobs/count?filter=stat:failed")
    assert refused.status_code == 400


async def test_counting_stops_at_what_one_page_changes(
    api: Api, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.admin.jobs.COUNTED", 2)
    for _ in range(3):
        scene.start()
    answer = await api.call(Role.VIEWER, "GET", "/api/v1/jobs/count")
    assert answer.json() == {"count": 2, "more": True}


@pytest.mark.parametrize("format", ["csv", "json"])
async def test_all_that_a_filter_finds_is_exported(
    api: Api, scene: Scene, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    monkeypatch.setattr("holdfast_dashboard.export.PAGE", 2)
    failed = [scene.failed(f"=cmd: token={CANARY}") for _ in range(5)]
    scene.start("pdf")
    params = {"filter": "state:failed", "format": format}
    answer = await api.call(Role.VIEWER, "GET", "/api/v1/jobs/export", params=params)
    assert answer.headers["content-disposition"] == f'attachment; filename="jobs.{format}"'
    assert CANARY not in answer.text
    found = answer.json() if format == "json" else list(csv.DictReader(io.StringIO(answer.text)))
    assert [each["id"] for each in found] == failed[::-1]
    assert {each["type"] for each in found} == {"mail.send"}
    begins = "'=cmd" if format == "csv" else "=cmd"
    assert all(each["error"].startswith(begins) for each in found)
    refused = await api.call(Role.VIEWER, "GET", "/api/v1/jobs/export?filter=stat:failed")
    assert refused.status_code == 400


@pytest.mark.parametrize("format", ["csv", "json"])
async def test_an_export_whose_first_page_finds_nothing_is_well_formed(
    api: Api, scene: Scene, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    monkeypatch.setattr("holdfast.client.pagination.LOOK", 1)
    failed = [scene.failed() for _ in range(2)]
    scene.failed("OSError: gone")
    params = {"filter": "error:boom", "format": format}
    answer = await api.call(Role.VIEWER, "GET", "/api/v1/jobs/export", params=params)
    found = answer.json() if format == "json" else list(csv.DictReader(io.StringIO(answer.text)))
    assert [each["id"] for each in found] == failed[::-1]


async def test_an_export_ends_where_it_says(
    api: Api, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast_dashboard.export.PAGE", 2)
    monkeypatch.setattr("holdfast_dashboard.export.MAX_ROWS", 3)
    for _ in range(5):
        scene.start()
    answer = await api.call(Role.VIEWER, "GET", "/api/v1/jobs/export?format=json")
    assert len(answer.json()) == 3


async def test_a_type_is_shown_in_figures(api: Api, scene: Scene) -> None:
    scene.failed(type="pdf/mail")
    for _ in range(3):
        scene.ended("complete", "pdf/mail")
    scene.start("pdf/mail")
    path = "/api/v1/types/pdf/mail/statistics?window=6h"
    found = (await api.call(Role.VIEWER, "GET", path)).json()
    assert (found["type"], found["live"], found["failed"], found["window"]) == (
        "pdf/mail",
        1,
        1,
        "6h",
    )
    assert found["error_rate"] == 0.25
    assert set(found["times_us"]["run"]) == {"p50", "p95", "p99"}
    assert (found["sampled"], len(found["slowest"]), len(found["latest"])) == (4, 4, 5)
    page = await api.call(Role.VIEWER, "GET", "/types/pdf/mail")
    assert "25.0%" in page.text
    assert "If the code sets no timeout, an attempt is stopped after three leases" in page.text
    assert "on_failed" not in page.text
    scene.database.run(scene.store.on_failed.declare(["pdf/mail"]))
    page = await api.call(Role.VIEWER, "GET", "/types/pdf/mail")
    assert "<code>on_failed</code> is called" in page.text
    unknown = await api.call(Role.VIEWER, "GET", "/api/v1/types/pfd/statistics")
    assert unknown.status_code == 404


async def test_a_change_over_a_filter_takes_no_plain_words(api: Api, scene: Scene) -> None:
    id = scene.failed()
    body = {"filter": "mail"}
    answer = await api.call(Role.DEVELOPER, "POST", "/api/v1/dead-letters/drop", json=body)
    assert (answer.status_code, scene.state(id)) == (400, "failed")


async def test_a_write_names_the_version_it_was_decided_on(api: Api, scene: Scene) -> None:
    id = scene.start()
    path = f"/api/v1/jobs/{id}"
    read = await api.call(Role.OPERATOR, "GET", path)
    scene.claim()
    stale = {"If-Match": read.headers["ETag"]}
    refused = await api.call(Role.OPERATOR, "POST", f"{path}/cancel", headers=stale)
    assert (refused.status_code, refused.json()["code"]) == (412, "HF076")
    fresh = {"If-Match": (await api.call(Role.OPERATOR, "GET", path)).headers["ETag"]}
    done = await api.call(Role.OPERATOR, "POST", f"{path}/cancel", headers=fresh)
    assert done.json() == {"moved": [id], "left": []}


async def test_a_change_is_audited_with_reason_and_request_id(api: Api, scene: Scene) -> None:
    id = scene.failed()
    answer = await api.call(
        Role.OPERATOR,
        "POST",
        "/api/v1/jobs/retry",
        json={"ids": [id], "reason": "provider is back"},
        headers={"X-Request-Id": "deploy-7"},
    )
    assert answer.headers["X-Request-Id"] == "deploy-7"
    (deed,) = (await api.call(Role.VIEWER, "GET", "/api/v1/audit")).json()["items"]
    assert (deed["actor"], deed["action"], deed["target"]) == (
        "ana-operator",
        "job.retry",
        f"job {id}",
    )
    assert (deed["reason"], deed["request_id"]) == ("provider is back", "deploy-7")
    assert (deed["before"], deed["after"]) == ({"state": "failed"}, {"state": "pending"})


async def test_an_error_is_a_problem_document_with_code_and_fix(api: Api) -> None:
    answer = await api.call(Role.VIEWER, "GET", f"/api/v1/jobs/{new_id()}")
    assert answer.status_code == 404
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem = answer.json()
    assert (problem["code"], problem["status"]) == ("HF061", 404)
    assert problem["request_id"] == answer.headers["X-Request-Id"]
    assert problem["help"]


async def test_payloads_reach_developers_only_and_secrets_only_when_asked_for_raw(
    api: Api, scene: Scene
) -> None:
    scene.failed(f"LoginError: password={CANARY}")
    id = scene.start(input=f'{{"to":"ana","token":"{CANARY}"}}')
    for role in (Role.VIEWER, Role.OPERATOR):
        detail = (await api.call(role, "GET", f"/api/v1/jobs/{id}")).json()
        assert detail["job"]["input"] is None
        raw = await api.call(role, "GET", f"/api/v1/jobs/{id}?raw=true")
        assert raw.status_code == 403
    shown = await api.call(Role.DEVELOPER, "GET", f"/api/v1/jobs/{id}")
    assert shown.json()["job"]["input"]["to"] == "ana"
    raw = await api.call(Role.DEVELOPER, "GET", f"/api/v1/jobs/{id}?raw=true")
    assert raw.json()["job"]["input"]["token"] == CANARY
    for path in ("jobs", "chains", f"chains/{id}", "dead-letters", "overview", "system", "audit"):
        answer = await api.call(Role.DEVELOPER, "GET", f"/api/v1/{path}")
        assert answer.status_code == 200
        assert CANARY not in answer.text
    assert CANARY not in shown.text


async def test_dead_letters_are_redriven_by_their_groups_filter(api: Api, scene: Scene) -> None:
    ids = {scene.failed("TimeoutError: slow") for _ in range(2)}
    (group,) = (await api.call(Role.VIEWER, "GET", "/api/v1/dead-letters")).json()["items"]
    body = {"filter": group["filter"], "rate": 50}
    done = await api.call(Role.OPERATOR, "POST", "/api/v1/dead-letters/redrive", json=body)
    assert set(done.json()["ids"]) == ids
    drop = "/api/v1/dead-letters/drop"
    refused = await api.call(Role.OPERATOR, "POST", drop, json={"ids": list(ids)})
    assert refused.status_code == 403


async def test_a_type_with_a_slash_is_paused_set_and_resumed(api: Api, scene: Scene) -> None:
    scene.start("order.placed/mail")
    path = "/api/v1/types/order.placed/mail"
    paused = await api.call(Role.OPERATOR, "POST", f"{path}/pause")
    assert paused.json()["paused_by"] == "ana-operator"
    change = {"lease_ms": 120_000}
    stale = await api.call(Role.OPERATOR, "PATCH", path, json=change, headers={"If-Match": '"0"'})
    assert stale.status_code == 412
    tag = {"If-Match": paused.headers["ETag"]}
    done = await api.call(Role.OPERATOR, "PATCH", path, json=change, headers=tag)
    assert done.json()["lease_ms"] == 120_000
    assert (await api.call(Role.OPERATOR, "POST", f"{path}/resume")).json()["paused"] is False
    assert (await api.call(Role.OPERATOR, "POST", "/api/v1/types/nope/pause")).status_code == 404


async def test_workers_are_listed_and_drained(api: Api, scene: Scene) -> None:
    scene.worker("mail.send")
    (worker,) = (await api.call(Role.VIEWER, "GET", "/api/v1/workers")).json()["items"]
    assert (worker["id"], worker["standing"]) == ("w-7", "live")
    assert (await api.call(Role.OPERATOR, "POST", "/api/v1/workers/w-7/drain")).status_code == 200
    assert (await api.call(Role.OPERATOR, "POST", "/api/v1/workers/w-8/drain")).status_code == 404


async def test_a_token_is_made_shown_once_and_revoked(api: Api) -> None:
    body = {"name": "grafana", "role": "viewer", "expires": "90d"}
    made = await api.call(Role.DEVELOPER, "POST", "/api/v1/tokens", json=body)
    assert made.status_code == 201
    secret, id = made.json()["secret"], made.json()["token"]["id"]
    bearer = {"Authorization": f"Bearer {secret}"}
    assert (await api.call(None, "GET", "/api/v1/jobs", headers=bearer)).status_code == 200
    assert secret not in (await api.call(Role.DEVELOPER, "GET", "/api/v1/tokens")).text
    await api.call(Role.DEVELOPER, "POST", f"/api/v1/tokens/{id}/revoke")
    assert (await api.call(None, "GET", "/api/v1/jobs", headers=bearer)).status_code == 401


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/api/v1/jobs?filter=stat:failed", None, 400),
        ("GET", f"/api/v1/jobs?filter={'x' * 2_000}", None, 400),
        ("GET", "/api/v1/jobs?filter=age>99999999999999999999d", None, 400),
        ("GET", "/api/v1/jobs?limit=0", None, 400),
        ("GET", "/api/v1/jobs?limit=1001", None, 400),
        ("GET", "/api/v1/jobs?limit=-1", None, 400),
        ("GET", "/api/v1/jobs?limit=%D9%A1", None, 400),
        ("GET", "/api/v1/jobs?after=zzz", None, 400),
        ("GET", "/api/v1/audit?after=zzz", None, 400),
        ("GET", "/api/v1/jobs?nope=1", None, 400),
        ("GET", "/api/v1/jobs/not-an-id", None, 400),
        ("GET", "/api/v1/audit?actor=%00", None, 400),
        ("GET", "/api/v1/overview?window=9y", None, 400),
        ("GET", "/api/v1/nope", None, 404),
        ("POST", "/api/v1/overview", None, 405),
        ("POST", "/api/v1/jobs/retry", b"{", 400),
        ("POST", "/api/v1/jobs/retry", b'{"ids": [1]}', 400),
        ("POST", "/api/v1/jobs/retry", b'{"ids": []}', 400),
        ("POST", "/api/v1/jobs/retry", b'{"ids": [], "idz": 1}', 400),
        ("POST", "/api/v1/jobs/retry", b"\xff\xfe", 400),
        ("POST", "/api/v1/jobs/retry", b"[" * 100_000, 400),
        ("POST", "/api/v1/jobs/retry", b" " * 1_100_000, 413),
        ("POST", "/api/v1/chains", b'{"type": ""}', 400),
        ("POST", "/api/v1/chains", b'{"type": "echo", "after": "soon"}', 400),
        ("POST", "/api/v1/chains", b'{"type": "echo", "expires": "soon"}', 400),
        ("POST", "/api/v1/chains", b'{"type": "echo", "expires": "1m", "after": "2m"}', 400),
        ("POST", "/api/v1/chains", b'{"type": "echo", "priority": 77}', 400),
        ("POST", "/api/v1/chains", b'{"type": "echo", "debounce": "30s"}', 400),
        ("POST", "/api/v1/dead-letters/redrive", b'{"filter": "", "rate": -1}', 400),
        ("POST", "/api/v1/tokens", b'{"name": "x", "role": "root"}', 400),
    ],
)
async def test_what_cannot_be_understood_is_refused_with_a_code(
    api: Api, method: str, path: str, body: bytes | None, status: int
) -> None:
    answer = await api.call(Role.DEVELOPER, method, path, content=body)
    assert answer.status_code == status, answer.text
    assert answer.json()["code"].startswith("HF0")


async def test_a_start_says_when_it_expires(api: Api) -> None:
    body = {"type": "echo", "input": 1, "expires": "1h"}
    made = await api.call(Role.DEVELOPER, "POST", "/api/v1/chains", json=body)
    assert made.status_code == 201, made.text
    job = (await api.call(Role.VIEWER, "GET", f"/api/v1/jobs/{made.json()['id']}")).json()
    assert job["job"]["expires_at"] is not None
    assert "it expires in 59 min" in job["why"]


async def test_a_body_without_length_is_cut_off_at_the_limit(api: Api) -> None:
    async def endless() -> object:
        while True:
            yield b" " * 65_536

    answer = await api.call(Role.OPERATOR, "POST", "/api/v1/jobs/retry", content=endless())
    assert answer.status_code == 413
