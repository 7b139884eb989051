"""What pages say in detail: one time zone, folded length, links, progress, and only actions that can apply."""

import re
from html import unescape

import msgspec
import pytest

from holdfast.admin.access import Role
from holdfast.core.cycle import NewCycle, NewRun, slot_at
from holdfast.core.lifecycle import JOB_COMMANDS, STATES, State
from holdfast.storage.id_generator import new_id
from holdfast.storage.store.retention import KeepRule
from tests.cli.scene import Scene
from tests.web.conftest import Api
from tests.web.test_offered_moves import in_state, offered

LINE = "x" * 60


async def page_of(api: Api, path: str, role: Role = Role.DEVELOPER) -> str:
    """A page's text."""
    answer = await api.call(role, "GET", path, headers={"Accept": "text/html"})
    assert answer.status_code == 200, answer.text
    return unescape(answer.text)


def run_cycle(scene: Scene, name: str, schedule: str, runs: int) -> None:
    """Leave the runs of a cycle, one each second."""
    store, now = scene.store, scene.database.read(scene.store.schema.clock())
    scene.database.run(store.cycles.register([NewCycle(name, schedule, "UTC", True, "last")]))
    for place in range(runs):
        run = NewRun(new_id(), name, "w-1", slot_at(now + place * 1_000_000).name)
        scene.database.run(store.runs.begin(run))
        scene.database.run(store.runs.finish(run.id, "completed", "{}", None))


@pytest.mark.parametrize("path", ["/", "/jobs", "/cycles", "/audit", "/system", "/tail", "/chains"])
async def test_every_page_says_that_its_times_are_in_utc(api: Api, path: str) -> None:
    page = await page_of(api, path)
    assert "Times in UTC" in page
    assert "data-local" not in page


async def test_a_short_cycle_is_told_to_the_second_and_a_long_one_to_the_minute(
    api: Api, scene: Scene
) -> None:
    cycles = [
        NewCycle(name, f"every {every}", "UTC", True, "last")
        for name, every in (("pulse", "5s"), ("hourly", "1h"))
    ]
    scene.database.run(scene.store.cycles.register(cycles))
    for path in ("/cycles", "/cycles/{}"):
        for name, times in (
            ("pulse", r"\d\d:\d\d:\d[05](, (\d\d-\d\d )?\d\d:\d\d:\d[05])+ UTC"),
            ("hourly", r"\d\d:\d\d(, (\d\d-\d\d )?\d\d:\d\d)+ UTC"),
        ):
            page = await page_of(api, path.format(name))
            found = re.search(
                rf'name="name" value="{name}".*?<dt>Next</dt>.*?</dd>', page, re.DOTALL
            )
            assert found is not None
            assert re.search(rf"\d\d-\d\d {times}</span>", found[0]), found[0]


async def test_runs_name_their_slot_as_other_times_are_written(api: Api, scene: Scene) -> None:
    run_cycle(scene, "pulse", "every 5s", 1)
    for path in ("/cycles", "/cycles/pulse"):
        page = await page_of(api, path)
        assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC</td>", page)


async def test_many_runs_of_a_cycle_are_folded_beyond_the_latest(api: Api, scene: Scene) -> None:
    run_cycle(scene, "pulse", "every 5s", 30)
    page = await page_of(api, "/cycles/pulse")
    shown, _, folded = page.partition("<details")
    assert shown.count('<tr data-key="') == 20
    assert "10 older runs</summary>" in folded
    assert folded.count('<tr data-key="') == 10
    cycles = await page_of(api, "/cycles")
    assert cycles.index("<details") < cycles.index('<tr data-key="')


@pytest.mark.parametrize(("lines", "is_folded"), [(3, False), (100, True)])
async def test_a_long_payload_is_folded_and_a_short_one_is_not(
    api: Api, scene: Scene, lines: int, is_folded: bool
) -> None:
    payload = msgspec.json.encode([LINE] * lines).decode()
    id = scene.start("big", input=payload)
    page = await page_of(api, f"/jobs/{id}")
    assert (f"Show all {lines + 2} lines</summary>" in page) is is_folded
    done = scene.ended("complete", "large", output=payload)
    for path in (f"/jobs/{done}", f"/chains/{done}"):
        assert (f"Show all {lines + 2} lines</summary>" in await page_of(api, path)) is is_folded


async def test_a_payload_that_is_one_long_word_is_folded_too(api: Api, scene: Scene) -> None:
    id = scene.start("big", input=msgspec.json.encode("x" * 5_000).decode())
    assert "Show all of it</summary>" in await page_of(api, f"/jobs/{id}")


async def test_checks_that_passed_and_settings_at_their_default_are_folded(
    api: Api, scene: Scene
) -> None:
    scene.failed()
    page = await page_of(api, "/system")
    first, _, rest = page.partition("checks passed</summary>")
    assert "dead_letters" in first
    assert ">ok</span>" not in first
    assert ">ok</span>" in rest
    settings = rest.partition("Effective configuration")[2]
    assert settings.index("at their default</summary>") < settings.index("HOLDFAST_SLOTS")


async def test_names_of_types_and_cycles_are_links(api: Api, scene: Scene) -> None:
    type, event, handler = "mail.send", "order.placed", "mail"
    id = scene.failed(type=type)
    scene.worker(type)
    scene.subscribe(event, handler)
    scene.database.run(
        scene.store.cycles.register([NewCycle("a/b c", "every 1h", "UTC", True, "last")])
    )
    for noun, name in (("types", type), ("cycles", "a/b c")):
        form = {"name": name, "move": "pause"}
        await api.call(Role.OPERATOR, "POST", f"/{noun}", data=form)
    to_type = f'href="/types/{type}"'
    for path in (
        "/",
        "/jobs",
        "/dead",
        "/types",
        "/workers",
        f"/jobs/{id}",
        f"/chains/{id}",
        "/chains",
        "/audit",
    ):
        assert to_type in await page_of(api, path), path
    for path in ("/", "/cycles", "/audit"):
        assert 'href="/cycles/a/b%20c"' in await page_of(api, path), path
    assert f'href="/types/{event}/{handler}"' in await page_of(api, "/system")


@pytest.mark.parametrize("state", STATES)
async def test_a_list_of_one_state_offers_what_that_state_allows(
    api: Api, scene: Scene, state: State
) -> None:
    in_state(scene, state)
    allowed = {name for name, command in JOB_COMMANDS.items() if command.allows(state)}
    assert offered(await page_of(api, f"/jobs?filter=state:{state}")) == allowed
    assert offered(await page_of(api, "/jobs")) == set(JOB_COMMANDS)


async def test_a_paused_type_offers_to_resume_and_not_to_pause(api: Api, scene: Scene) -> None:
    scene.start()
    for is_paused, move in ((False, "pause"), (True, "resume")):
        scene.database.run(scene.store.workers.set_type("mail.send", paused=is_paused, by="ana"))
        for path in ("/types", "/types/mail.send"):
            assert offered(await page_of(api, path)) == {move}, path


async def test_the_page_of_a_type_says_how_long_an_attempt_may_run(api: Api, scene: Scene) -> None:
    scene.start()
    assert "three leases: 3 minutes with the default" in await page_of(api, "/types/mail.send")


async def test_a_chain_tells_how_far_it_has_come_with_those_it_waits_for(
    api: Api, scene: Scene
) -> None:
    parts = tuple(scene.ended("complete", "part") for _ in range(2))
    (running,) = [scene.running("part")]
    whole = scene.start("whole", blockers=(*parts, running.id))
    page = await page_of(api, f"/chains/{whole}")
    assert "2 of 4 jobs done, 1 blocked, 1 running" in page
    assert '<progress id="progress" max="4" value="2">' in page
    done = await page_of(api, f"/chains/{parts[0]}")
    assert "1 of 1 job done" in done


async def test_chains_are_listed_with_their_state_and_length(api: Api, scene: Scene) -> None:
    job = scene.running("first")
    scene.continued(job, "second")
    page = await page_of(api, "/chains")
    assert f'href="/chains/{job.chain_id}"' in page
    assert 'data-label="Jobs">2<' in page
    assert job.chain_id not in await page_of(api, "/chains?filter=state:failed")
    refused = await api.call(Role.VIEWER, "GET", "/chains?filter=odd:1")
    assert (refused.status_code, "odd" in refused.text) == (400, True)


@pytest.mark.parametrize("ids", [1, 2])
async def test_a_page_refuses_what_no_chosen_job_allows_as_http_and_the_command_line_do(
    api: Api, scene: Scene, ids: int
) -> None:
    done = [scene.ended("complete") for _ in range(ids)]
    form = {"move": "retry", "id": done}
    by_program = await api.call(Role.OPERATOR, "POST", "/api/v1/jobs/retry", json={"ids": done})
    by_page = await api.call(
        Role.OPERATOR, "POST", "/jobs/move", data=form, headers={"Accept": "text/html"}
    )
    assert (by_program.status_code, by_program.json()["code"]) == (409, "HF067")
    assert by_page.status_code == 409
    assert "HF067" in by_page.text


async def test_a_script_is_told_why_a_batch_moved_nothing(api: Api, scene: Scene) -> None:
    done = [scene.ended("complete") for _ in range(2)]
    headers = {"Accept": "application/json"}
    form = {"move": "retry", "id": done}
    answer = await api.call(Role.OPERATOR, "POST", "/jobs/move", data=form, headers=headers)
    assert (answer.json()["moved"], answer.json()["left"]) == (0, 2)
    assert answer.json()["refusal"]["code"] == "HF067"
    form = {"move": "retry", "everything": "yes", "filter": "state:completed"}
    answer = await api.call(Role.OPERATOR, "POST", "/jobs/move", data=form, headers=headers)
    assert answer.json()["refusal"]["code"] == "HF067"


async def test_a_type_says_how_long_its_jobs_are_kept(api: Api, scene: Scene) -> None:
    scene.start()
    rules = [KeepRule("mail.send", "completed", 0), KeepRule("mail.send", "failed", 86_400_000)]
    scene.database.run(scene.store.keeps.set(["mail.send"], rules))
    kept = {"completed": "0s", "failed": "1d"}
    (listed,) = (await api.call(Role.VIEWER, "GET", "/api/v1/types")).json()["items"]
    figures = await api.call(Role.VIEWER, "GET", "/api/v1/types/mail.send/statistics")
    assert (listed["kept"], figures.json()["kept"]) == (kept, kept)
    page = (await api.call(Role.VIEWER, "GET", "/types/mail.send")).text
    assert "<dt>Kept</dt><dd>completed 0s, failed 1d</dd>" in page
