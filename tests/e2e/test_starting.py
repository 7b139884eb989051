"""Jobs started from a form made from their input, and run again with an edited one."""

import msgspec
import pytest
from playwright.sync_api import Page, expect

from tests.cli.scene import Scene
from tests.e2e.conftest import on_one_store
from tests.e2e.tabs import OpenPage

INPUT = '{"order":7,"to":"ana@example.org","api_key":"sk_live_12345678","currency":"CHF"}'


def input_of(scene: Scene, page: Page) -> dict[str, object]:
    """The input of the job that a page shows."""
    id = page.url.partition("/jobs/")[2][:36]
    (job,) = scene.database.read(scene.store.jobs.get([id]))
    found: dict[str, object] = msgspec.json.decode(job.input)
    return found


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no scripts"])
def test_a_job_is_started_from_a_form_made_from_its_input(
    scene: Scene, open_page: OpenPage, scripts: bool
) -> None:
    scene.worker("order.charge")
    page = open_page("/jobs", java_script_enabled=scripts, later=422)
    page.get_by_role("link", name="Start a job").click()
    page.get_by_label("Type").fill("order.charge")
    page.get_by_role("button", name="Next").click()
    page.get_by_label("order required").fill("many")
    page.get_by_label("to required").fill("ana@example.org")
    page.get_by_label("api_key").fill("k")
    page.get_by_label("express").select_option("true")
    page.get_by_label("Delay").fill("1h")
    page.get_by_role("textbox", name="Reason").fill("by hand")
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("alert")).to_contain_text("'many' is not a whole number")
    expect(page.get_by_label("order required")).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_label("to required")).to_have_value("ana@example.org")
    page.get_by_label("order required").fill("7")
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("status")).to_contain_text("order.charge started")
    expect(page.locator(".sentence")).to_contain_text("Scheduled to start")
    assert input_of(scene, page) == {
        "order": 7,
        "to": "ana@example.org",
        "api_key": "k",
        "express": True,
    }
    ((action, _, reason),) = scene.deeds()
    assert (action, reason) == ("chain.start", "by hand")


@on_one_store
def test_a_job_is_run_again_with_edited_input_and_secrets_are_kept(
    scene: Scene, open_page: OpenPage
) -> None:
    id = scene.start("order.charge", input=INPUT)
    page = open_page(f"/jobs/{id}")
    page.get_by_role("link", name="Run again").click()
    expect(page.get_by_label("api_key")).to_have_value("•••")
    expect(page.get_by_label("currency")).to_have_value("CHF")
    page.get_by_label("to required").fill("bob@example.org")
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("status")).to_contain_text("order.charge started")
    assert input_of(scene, page) == msgspec.json.decode(INPUT) | {"to": "bob@example.org"}
    assert id not in page.url


@on_one_store
def test_an_input_that_the_process_does_not_know_is_edited_as_json(
    scene: Scene, open_page: OpenPage
) -> None:
    id = scene.start("mail.send", input=INPUT)
    page = open_page(f"/start?like={id}", later=422)
    editor = page.get_by_label("Input as JSON")
    text = editor.input_value()
    assert "sk_live" not in text
    editor.fill(text[:-1])
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("alert")).to_contain_text("the input is not JSON")
    expect(editor).to_have_value(text[:-1])
    editor.fill(text.replace("ana@", "bob@"))
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("status")).to_contain_text("mail.send started")
    assert input_of(scene, page) == msgspec.json.decode(INPUT) | {"to": "bob@example.org"}


@on_one_store
def test_an_option_that_makes_no_sense_is_explained_beside_what_was_typed(
    scene: Scene, open_page: OpenPage
) -> None:
    page = open_page("/start?type=order.charge&as=json", later=400)
    page.get_by_label("Input as JSON").fill(INPUT)
    for option, wrong, says in (
        ("Priority", "²", "is not a whole number"),
        ("Priority", "12", "is not a whole number from 0"),
        ("Delay", "soon", "is not a duration"),
    ):
        page.get_by_label(option).fill(wrong)
        page.get_by_role("button", name="Start").click()
        expect(page.get_by_role("alert")).to_contain_text(says)
        expect(page.get_by_label(option)).to_have_value(wrong)
        page.get_by_label(option).fill("")
    expect(page.get_by_label("Input as JSON")).to_have_value(INPUT)


def test_a_start_with_a_taken_key_says_so(scene: Scene, open_page: OpenPage) -> None:
    page = open_page("/start?type=order.charge", later=422)
    for said in ("order.charge started", "Not started: an open chain already has this key"):
        page.goto("/start?type=order.charge&as=json")
        page.get_by_label("Input as JSON").fill(INPUT)
        page.get_by_label("Key").fill("charge:7")
        page.get_by_role("button", name="Start").click()
        expect(page.get_by_role("status")).to_contain_text(said)
