"""What makes no sense is refused, and quickly: nobody keeps a processor busy by asking for nonsense."""

import time
from typing import Any
from urllib.parse import quote

import pytest

from holdfast.admin.access import Role
from holdfast.core.errors import ScheduleError
from holdfast.core.schedule import parse_schedule
from tests.cli.scene import Scene
from tests.web.conftest import Api

MAX_S = 0.5
TIMES = 3

FILTERS = [
    "x" * 20_000,
    "state:failed " * 1_500,
    "type:" + "*" * 2_000,
    'error:"' + "(a+)+" * 500,
    "age>" + "9" * 5_000,
    "attempt>=" + "9" * 400,
    "state:" + ",".join(["failed"] * 2_000),
    "\x00",
    ":" * 6_000,
    '"' * 9_999,
]
CURSORS = ["!", "A" * 20_000, "AAAA", "=" * 64, "\u2603", "../" * 1_000]
LIMITS = ["0", "-1", "9" * 5_000, "1e9", "NaN", "0x10", ""]
CRONS = [
    "* " * 5_000,
    "*/0 * * * *",
    ",".join(str(each) for each in range(60)) * 500 + " * * * *",
    "0-59/1" * 2_000,
    "31 2 30 2 *",
    "every " + "9" * 5_000 + "s",
    "\x00",
    "",
]


async def refused(api: Api, method: str, path: str, **more: Any) -> float:
    """Ask several times; return the least processor time that the refusal took."""
    spent = []
    async with api.client(Role.DEVELOPER) as client:
        for _ in range(TIMES):
            before = time.process_time()
            answer = await client.request(method, path, **more)
            spent.append(time.process_time() - before)
            assert 400 <= answer.status_code < 500, f"{path[:80]}: {answer.status_code}"
            assert answer.headers["content-type"] == "application/problem+json"
    return min(spent)


@pytest.mark.parametrize("noun", ["jobs", "chains"])
async def test_absurd_filters_are_refused_quickly(api: Api, scene: Scene, noun: str) -> None:
    scene.start()
    for each in FILTERS:
        assert await refused(api, "GET", f"/api/v1/{noun}?filter={quote(each)}") < MAX_S, each


async def test_bad_cursors_and_limits_are_refused_quickly(api: Api, scene: Scene) -> None:
    scene.start()
    for noun in ("jobs", "chains", "audit"):
        for each in CURSORS:
            path = f"/api/v1/{noun}?after={quote(each)}"
            assert await refused(api, "GET", path) < MAX_S, each
        for each in LIMITS:
            path = f"/api/v1/{noun}?limit={quote(each)}"
            assert await refused(api, "GET", path) < MAX_S, each


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 200_000,
        b'{"ids":' + b"[" * 100_000,
        b"\xff\xfe" * 1_000,
        b'{"ids":["' + b"x" * 1_000_000 + b'"]}',
        b'{"ids":["x"' + b',"x"' * 200_000 + b"]}",
        b"x" * 5_000_000,
    ],
    ids=["brackets", "nested", "not unicode", "long id", "many ids", "too large"],
)
async def test_absurd_bodies_are_refused_quickly(api: Api, body: bytes) -> None:
    spent = await refused(api, "POST", "/api/v1/jobs/retry", content=body)
    assert spent < MAX_S


@pytest.mark.parametrize("schedule", CRONS, ids=lambda each: repr(each[:20]))
def test_absurd_schedules_are_refused_quickly(schedule: str) -> None:
    before = time.process_time()
    with pytest.raises(ScheduleError):
        parse_schedule(schedule, "UTC")
    assert time.process_time() - before < MAX_S


@pytest.mark.parametrize("setting", ["lease_ms", "timeout_ms", "concurrency", "max_attempts"])
async def test_a_type_is_not_set_to_nothing_at_all(api: Api, scene: Scene, setting: str) -> None:
    """A concurrency of zero would stop a type without anybody seeing that it is paused."""
    scene.start()
    body = {"lease_ms": 5_000, setting: 0}
    answer = await api.call(Role.OPERATOR, "PATCH", "/api/v1/types/mail.send", json=body)
    assert answer.status_code == 400
    assert f"{setting}=0" in answer.json()["detail"]
