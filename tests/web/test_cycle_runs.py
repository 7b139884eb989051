"""Runs of cycles with their counters, in the API and on the page of a cycle."""

from typing import Any

import pytest

from holdfast.admin.access import Role
from holdfast.app import Holdfast
from holdfast.core.cycle import NewCycle, NewRun
from holdfast.settings import read_settings
from holdfast.storage.id_generator import new_id
from holdfast_dashboard.cycles import counter_names, draw_runs, title_of
from tests.web.conftest import Api

RUNS = "/api/v1/cycles/runs"
NOW = 1_769_860_860_000_000


@pytest.fixture
def app(app: Holdfast) -> Holdfast:
    """An application with a cycle that counts."""

    @app.cycle("ingest", every="1h")
    async def ingest(run: Any) -> None:
        run.count("tenders_new", 3)
        run.count("processed", 5)

    return app


async def ran(app: Holdfast) -> None:
    """Let the cycle run once."""
    for is_due in (False, True):
        if is_due:
            async with app.transaction() as tx:
                await app.cycles.run_now(tx, "ingest")
        tick = app.assembly(read_settings({})).tick()
        await tick.run()
        await tick.close()


async def test_the_api_lists_runs_with_their_counters(api: Api) -> None:
    await ran(api.app)
    answer = await api.call(Role.VIEWER, "GET", RUNS, params={"name": "ingest"})
    (run,) = answer.json()["items"]
    assert (run["name"], run["outcome"]) == ("ingest", "completed")
    assert (run["counters"]["tenders_new"], run["counters"]["processed"]) == (3, 5)
    everything = (await api.call(Role.VIEWER, "GET", RUNS)).json()["items"]
    assert {each["name"] for each in everything} == {"ingest", "tick"}
    one = await api.call(Role.VIEWER, "GET", RUNS, params={"limit": 1})
    assert len(one.json()["items"]) == 1


async def test_a_cycle_can_be_asked_to_run_before_the_first_tick(api: Api) -> None:
    answer = await api.call(Role.OPERATOR, "POST", "/api/v1/cycles/ingest/run-now")
    assert answer.status_code == 202
    tick = api.app.assembly(read_settings({})).tick()
    await tick.run()
    await tick.close()
    found = await api.call(Role.VIEWER, "GET", RUNS, params={"name": "ingest"})
    assert [each["outcome"] for each in found.json()["items"]] == ["completed"]


async def test_the_runs_of_a_cycle_that_does_not_exist_are_not_found(api: Api) -> None:
    await ran(api.app)
    answer = await api.call(Role.VIEWER, "GET", RUNS, params={"name": "ingst"})
    assert (answer.status_code, answer.json()["code"]) == (404, "HF082")
    assert "ingest" in answer.text
    page = await api.call(Role.VIEWER, "GET", "/cycles/ingst")
    assert page.status_code == 404


async def test_the_page_of_a_cycle_shows_its_runs_and_counters(api: Api) -> None:
    await ran(api.app)
    page = await api.call(Role.VIEWER, "GET", "/cycles/ingest")
    assert page.status_code == 200
    assert '<th class="number">tenders_new</th>' in page.text
    assert "processed 5, tenders_new 3" in page.text
    assert "Run now" not in page.text
    assert "Run now" in (await api.call(Role.OPERATOR, "GET", "/cycles/ingest")).text


async def test_a_shard_has_a_page_though_its_name_has_a_slash(api: Api) -> None:
    store = api.app.database.store
    cycle = NewCycle("reports:0/4", "every 1h", "UTC", True, "last")
    await api.app.database.run_async(store.cycles.register([cycle]))
    page = await api.call(Role.VIEWER, "GET", "/cycles")
    assert 'href="/cycles/reports%3A0/4"' in page.text
    page = await api.call(Role.VIEWER, "GET", "/cycles/reports%3A0/4")
    assert page.status_code == 200
    assert "Not run yet" in page.text


async def test_a_cycle_with_many_counters_lists_them_in_one_column(api: Api) -> None:
    store, run = api.app.database.store, NewRun(new_id(), "ingest", "w-1", None)
    await ran(api.app)
    counters = ", ".join(f'"kind_{place}": {place + 1}' for place in range(20))
    await api.app.database.run_async(store.runs.begin(run))
    finish = store.runs.finish(run.id, "completed", f"{{{counters}}}", None)
    await api.app.database.run_async(finish)
    page = await api.call(Role.VIEWER, "GET", "/cycles/ingest")
    assert "<th>Counters</th>" in page.text
    assert "kind_0 1, kind_1 2" in page.text


def run_at(start: int, end: int | None, outcome: str = "completed", **more: Any) -> dict[str, Any]:
    """A run as the service shows it, by seconds of a minute."""
    return {
        "started_at": f"2026-01-31T12:00:{start:02}.000000Z",
        "seen_at": f"2026-01-31T12:00:{start + 2:02}.000000Z",
        "finished_at": None if end is None else f"2026-01-31T12:00:{end:02}.000000Z",
        "duration_ms": None if end is None else (end - start) * 1000,
        "outcome": outcome,
        "counters": {},
        "worker": "w-1",
        **more,
    }


def test_runs_are_drawn_by_start_and_duration() -> None:
    runs = [run_at(30, 45, "failed"), run_at(0, 15)]
    drawn = draw_runs(runs, NOW)
    assert '<rect class="completed" x="0" y="4" width="150" height="18">' in drawn.picture
    assert '<rect class="failed" x="300" y="4" width="150" height="18">' in drawn.picture
    assert drawn.outcomes == {"failed": 1, "completed": 1}
    assert "Runs over time: 1 failed, 1 completed" in drawn.picture
    assert (drawn.first, drawn.middle) == ("01-31 12:00 UTC", "01-31 12:00:30 UTC")


def test_runs_at_the_same_time_are_drawn_below_each_other() -> None:
    drawn = draw_runs([run_at(5, 20), run_at(0, 15), run_at(0, 10)], NOW)
    assert [f'y="{y}"' in drawn.picture for y in (4, 30, 56)] == [True, True, True]
    again = draw_runs([run_at(0, 40) for _ in range(20)], NOW)
    assert 'viewBox="0 0 600 156"' in again.picture


def test_a_run_that_goes_on_reaches_until_now_and_a_crashed_one_until_its_last_sign() -> None:
    drawn = draw_runs([run_at(30, None, "running"), run_at(0, None, "crashed")], NOW)
    assert '<rect class="running" x="300" y="4" width="300" height="18">' in drawn.picture
    assert '<rect class="failed" x="0" y="4" width="20" height="18">' in drawn.picture


def test_a_short_run_can_be_seen_even_at_the_end() -> None:
    drawn = draw_runs([run_at(59, 59), run_at(0, 0)], NOW - 1_000_000)
    assert drawn.picture.count('width="3"') == 2
    assert 'x="597"' in drawn.picture


def test_what_a_run_says_of_itself_is_escaped() -> None:
    run = run_at(0, 15, counters={"<b>": 2, "sent": 1_500, "none": 0}, worker="<i>")
    assert title_of(run) == "2026-01-31 12:00:00 UTC · completed in 15 s · <b> 2, sent 1,500 · <i>"
    assert "&lt;b&gt; 2" in draw_runs([run], NOW).picture
    assert counter_names([run, run_at(0, 1, counters={"late": 1})]) == ["<b>", "sent", "late"]
