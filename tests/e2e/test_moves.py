"""Changes from pages: confirmed, made in bulk with progress, and audited with their reason."""

import pytest
from playwright.sync_api import Page, expect

from tests.cli.scene import Scene
from tests.e2e.conftest import on_one_store
from tests.e2e.tabs import OpenPage

MANY = 230


def confirm(page: Page, button: str, reason: str = "") -> None:
    """Confirm in the dialog."""
    dialog = page.get_by_role("dialog")
    if reason:
        dialog.get_by_label("Reason, for the audit log").fill(reason)
    dialog.get_by_role("button", name=button).click()


def test_selected_jobs_are_retried_and_the_others_are_skipped(
    scene: Scene, open_page: OpenPage
) -> None:
    failed = [scene.failed() for _ in range(3)]
    completed = scene.ended("complete")
    page = open_page("/jobs")
    page.get_by_label("Select all on this page").check()
    page.get_by_role("button", name="Retry").click()
    expect(page.get_by_role("dialog")).to_contain_text("Retry 4 jobs?")
    confirm(page, "Retry", "the provider is back")
    expect(page.get_by_role("status")).to_contain_text("3 jobs re-queued; 1 skipped")
    assert [scene.state(each) for each in failed] == ["pending"] * 3
    assert scene.state(completed) == "completed"
    assert scene.deeds() == [("job.retry", "3 jobs", "the provider is back")]
    page.goto("/audit")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody tr").first).to_contain_text("the provider is back")
    page.get_by_text("3 ids").click()
    expect(page.locator("tbody pre")).to_contain_text(failed[0])


def test_everything_that_matches_a_filter_is_cancelled_page_by_page(
    scene: Scene, open_page: OpenPage
) -> None:
    ids = [scene.start() for _ in range(MANY)]
    other = scene.start("order.charge")
    page = open_page("/jobs?filter=type:mail.send")
    page.get_by_label("Select all on this page").check()
    page.get_by_role("button", name="Select all matching jobs").click()
    expect(page.locator(".bulk")).to_contain_text(f"All {MANY} jobs matching type:mail.send")
    page.get_by_role("button", name="Cancel jobs").click()
    expect(page.get_by_role("dialog")).to_contain_text(
        f"Cancel all {MANY} jobs matching type:mail.send?"
    )
    confirm(page, "Cancel jobs")
    expect(page.locator("main [role=status]")).to_have_text(f"{MANY} jobs cancelled")
    assert {scene.state(each) for each in ids} == {"cancelled"}
    assert scene.state(other) == "pending"
    page.goto("/audit")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody tr")).to_contain_text(f"{MANY} jobs")
    expect(page.locator("tbody tr")).to_contain_text("matching type:mail.send")


@on_one_store
def test_a_job_is_made_due_by_its_own_page(scene: Scene, open_page: OpenPage) -> None:
    now = scene.database.read(scene.store.schema.clock())
    id = scene.start(at=now + 3_600_000_000)
    scene.worker("mail.send")
    page = open_page(f"/jobs/{id}")
    expect(page.locator(".sentence")).to_contain_text("Scheduled to start")
    page.get_by_role("button", name="Run now").click()
    confirm(page, "Run now")
    expect(page.get_by_role("status")).to_contain_text("1 job due now")
    expect(page.locator(".sentence")).to_contain_text("Due for")


def test_dead_letters_of_one_kind_are_redriven_at_a_rate(scene: Scene, open_page: OpenPage) -> None:
    refused = [scene.failed("Declined: no") for _ in range(3)]
    other = scene.failed("Timeout: late")
    page = open_page("/dead")
    row = page.locator("tbody tr", has_text="Declined")
    row.get_by_role("button", name="Redrive").click()
    page.get_by_role("dialog").get_by_label("Rate").fill("1/m")
    confirm(page, "Redrive")
    expect(page.get_by_role("status")).to_contain_text("3 jobs to be re-queued by workers")
    expect(page.locator("main")).to_contain_text("A redrive at 1/m is under way: 3 left.")
    (redrive,) = scene.database.read(scene.store.redrives.under_way())
    assert (redrive.spacing_us, redrive.left) == (60_000_000, 3)
    for id in refused:
        assert scene.database.read(scene.store.redrives.under_way(id)) == [redrive]
    assert scene.database.read(scene.store.redrives.under_way(other)) == []


@on_one_store
def test_a_wrong_rate_is_corrected_in_the_dialog(scene: Scene, open_page: OpenPage) -> None:
    id = scene.failed()
    page = open_page("/dead", later=400)
    page.get_by_role("button", name="Redrive").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Rate").fill("often")
    confirm(page, "Redrive", "the provider is back")
    expect(dialog.get_by_role("alert")).to_contain_text("'often' is not a rate like 50/s")
    expect(dialog.get_by_label("Reason")).to_have_value("the provider is back")
    assert scene.state(id) == "failed"
    dialog.get_by_label("Rate").fill("50/s")
    dialog.get_by_label("Rate").press("Enter")
    expect(page.locator("main [role=status]")).to_contain_text("1 job to be re-queued by workers")
    assert scene.deeds() == [("dead.redrive", f"job {id}", "the provider is back")]


@on_one_store
@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no scripts"])
def test_what_destroys_is_not_confirmed_by_a_green_button(
    scene: Scene, open_page: OpenPage, scripts: bool
) -> None:
    scene.failed()
    page = open_page("/dead", java_script_enabled=scripts)
    for move, colour in (("Redrive", "rgb(15, 107, 99)"), ("Drop", "rgb(179, 38, 30)")):
        page.get_by_role("button", name=move).click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_role("button", name=move)).to_have_css("background-color", colour)
        dialog.locator("text=Go back").click()


@on_one_store
def test_dead_letters_are_dropped(scene: Scene, open_page: OpenPage) -> None:
    scene.failed()
    page = open_page("/dead")
    page.get_by_role("button", name="Drop").click()
    confirm(page, "Drop")
    expect(page.get_by_role("status")).to_contain_text("1 job dropped")
    expect(page.locator("main")).to_contain_text("No dead letters")


@on_one_store
def test_a_type_is_paused_and_says_by_whom(scene: Scene, open_page: OpenPage) -> None:
    id = scene.start()
    page = open_page("/types")
    page.get_by_role("button", name="Pause", exact=True).click()
    confirm(page, "Pause", "disk is full")
    expect(page.locator("tbody")).to_contain_text("paused by local")
    page.goto(f"/jobs/{id}")
    expect(page.locator(".sentence")).to_contain_text("Paused by local")
    page.goto("/types")
    page.get_by_role("button", name="Resume").click()
    confirm(page, "Resume")
    expect(page.get_by_role("button", name="Pause", exact=True)).to_be_visible()


@on_one_store
def test_a_paused_type_is_on_the_overview(scene: Scene, open_page: OpenPage) -> None:
    scene.start()
    scene.worker("mail.send")
    scene.database.run(scene.store.workers.set_type("mail.send", paused=True, by="ana"))
    page = open_page("/")
    expect(page.locator(".sentence")).to_contain_text("mail.send is paused")
    expect(page.locator("#paused")).to_contain_text("Paused: mail.send by ana")
    page.locator("#paused").get_by_role("link", name="mail.send").click()
    expect(page.locator("h1")).to_have_text("mail.send")
    expect(page.get_by_role("button", name="Resume")).to_be_visible()


@on_one_store
def test_a_worker_is_drained(scene: Scene, open_page: OpenPage) -> None:
    scene.worker("mail.send")
    page = open_page("/workers")
    page.get_by_role("button", name="Drain").click()
    confirm(page, "Drain")
    expect(page.locator("tbody")).to_contain_text("draining")


@on_one_store
def test_a_chain_is_cancelled_and_deleted(scene: Scene, open_page: OpenPage) -> None:
    id = scene.start()
    page = open_page(f"/chains/{id}")
    page.get_by_role("button", name="Cancel chain").click()
    confirm(page, "Cancel chain")
    # The old page may show the new state for a moment before the next page is there.
    expect(page.get_by_role("status")).to_contain_text("Chain cancelled")
    expect(page.locator(".page-head .chip")).to_have_text("cancelled")
    # What is seen may be ahead of the scripts that ask.
    page.wait_for_load_state()
    page.get_by_role("button", name="Delete").click()
    confirm(page, "Delete")
    expect(page.get_by_role("status")).to_contain_text("Chain deleted with 1 job")
    expect(page.locator("h1")).to_have_text("Jobs")


def test_a_chain_is_waited_for_on_its_page(scene: Scene, open_page: OpenPage) -> None:
    job = scene.running()
    page = open_page(f"/chains/{job.chain_id}")
    page.get_by_role("button", name="Wait for the result").click()
    expect(page.locator("[data-wait]")).to_contain_text("Waiting for the result")
    scene.finish(job, "complete", output='"done"')
    # The state would follow by itself; only showing the page anew takes the button away.
    expect(page.locator("[data-wait]")).to_have_count(0)
    expect(page.get_by_label("Output")).to_have_text('"done"')


@on_one_store
def test_a_refusal_is_explained_on_a_page(scene: Scene, open_page: OpenPage) -> None:
    awaited = scene.start()
    scene.start(blockers=(awaited,))
    page = open_page(f"/chains/{awaited}", later=409)
    page.get_by_role("button", name="Delete").click()
    confirm(page, "Delete")
    expect(page.get_by_role("alert")).to_contain_text("still wait")


@on_one_store
def test_the_message_about_one_change_is_not_shown_after_the_next(
    scene: Scene, open_page: OpenPage
) -> None:
    id = scene.failed()
    page = open_page("/jobs?done=cancel&moved=10000&left=3&more=yes")
    page.locator(f'input[value="{id}"]').check()
    page.get_by_role("button", name="Retry").click()
    confirm(page, "Retry")
    expect(page.locator("main [role=status]")).to_have_text("1 job re-queued")


@on_one_store
def test_a_change_without_a_response_is_reported_in_the_dialog(
    scene: Scene, open_page: OpenPage
) -> None:
    id = scene.failed()
    page = open_page("/jobs", later=502)
    page.route("**/jobs/move", lambda route: route.fulfill(status=502, body="<h1>Bad Gateway</h1>"))
    page.locator(f'input[value="{id}"]').check()
    page.get_by_role("button", name="Retry").click()
    confirm(page, "Retry")
    expect(page.get_by_role("dialog")).to_contain_text("0 done, then: the server could not be")


@on_one_store
def test_selecting_every_job_says_that_there_is_no_filter(
    scene: Scene, open_page: OpenPage
) -> None:
    scene.start()
    page = open_page("/jobs")
    page.get_by_label("Select all on this page").check()
    page.get_by_role("button", name="Select all jobs in the database").click()
    page.get_by_role("button", name="Cancel jobs").click()
    expect(page.get_by_role("dialog")).to_contain_text("Cancel the only job in the database?")


@on_one_store
def test_without_scripts_the_question_comes_as_a_page(scene: Scene, open_page: OpenPage) -> None:
    refused = [scene.failed("Declined: no") for _ in range(2)]
    other = scene.failed("Timeout: late")
    page = open_page("/dead", java_script_enabled=False)
    drop = page.locator("tbody tr", has_text="Declined").get_by_role("button", name="Drop")
    drop.click()
    asked = page.get_by_role("dialog", name="Drop 2 mail.send jobs?")
    expect(asked).to_contain_text("They are deleted with their chains. This cannot be undone.")
    expect(asked.get_by_label("Rate")).to_have_count(0)
    asked.get_by_role("link", name="Go back").click()
    expect(page.locator("tbody tr")).to_have_count(2)
    assert [scene.state(each) for each in refused] == ["failed", "failed"]
    drop.click()
    confirm(page, "Drop", "nobody wants them")
    expect(page.get_by_role("status")).to_contain_text("2 jobs dropped")
    assert scene.state(other) == "failed"
    assert {each[0] for each in scene.deeds()} == {"dead.drop"}
    assert {each[2] for each in scene.deeds()} == {"nobody wants them"}


@on_one_store
def test_of_selected_jobs_only_what_one_of_them_allows_is_offered(
    scene: Scene, open_page: OpenPage
) -> None:
    done, failed, pending = scene.ended("complete"), scene.failed(), scene.start()
    page = open_page("/jobs")
    bar = page.locator("#bulk .end")
    for id, buttons in (
        (done, []),
        (failed, ["Retry"]),
        (pending, ["Run now", "Retry", "Cancel jobs"]),
    ):
        page.locator(f'input[value="{id}"]').check()
        expect(bar.get_by_role("button")).to_have_text(buttons)


@on_one_store
def test_a_selection_that_meanwhile_allows_nothing_is_refused_with_the_code(
    scene: Scene, open_page: OpenPage
) -> None:
    jobs = [scene.start() for _ in range(2)]
    page = open_page("/jobs")
    page.locator("#live-switch").click()
    page.locator("[data-select-page]").check()
    for job in scene.claim():
        scene.finish(job, "complete")
    page.get_by_role("button", name="Run now").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Run now").click()
    expect(dialog.get_by_role("alert")).to_contain_text("cannot run a job that is completed")
    expect(dialog.get_by_role("alert")).to_contain_text("HF067")
    assert len(jobs) == 2
