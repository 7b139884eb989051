"""Texts that want to be markup or script stay texts, wherever they are shown or typed."""

from collections.abc import Iterator
from itertools import cycle, islice
from urllib.parse import urlencode

from playwright.sync_api import Page, expect

from holdfast.core.worker_presence import WorkerSign
from tests.cli.scene import Scene
from tests.e2e.conftest import on_one_store
from tests.e2e.tabs import OpenPage

COUNT = 200
CALL = "window.broken=1"
SHAPES = (
    "<script>{call}</script>",
    "</script><script>{call}</script>",
    "<img src=x onerror={call}>",
    "\"><img src=x onerror='{call}'>",
    "'><svg onload={call}>",
    "<svg><script>{call}</script></svg>",
    "<iframe srcdoc='<script>parent.{call}</script>'>",
    "javascript:{call}",
    '" autofocus onfocus={call} x="',
    "' onmouseover='{call}",
    "<details open ontoggle={call}>",
    "<math><mtext></title><img src=x onerror={call}>",
    "<template><script>{call}</script></template>",
    "<style>@import 'javascript:{call}';</style>",
    "<body onload={call}>",
    "{{{{ {call} }}}}",
    "{{% raw %}}{call}{{% endraw %}}",
    "${{{call}}}",
    "`-{call}-`",
    "</title><script>{call}</script>",
    "</textarea><script>{call}</script>",
    "]]><script>{call}</script>",
    "<!--><script>{call}</script>-->",
    "&lt;script&gt;{call}&lt;/script&gt;",
    "%3Cscript%3E{call}%3C/script%3E",
    "\u2028{call}\u2029",
    "\u202e<script>{call}</script>",
    "<scr\u00adipt>{call}</scr\u00adipt>",
    "<a href=javascript:{call}>x</a>",
    "<form action=javascript:{call}><button>x</button></form>",
    "<object data=javascript:{call}>",
    "<base href=//evil.example/>",
    "<meta http-equiv=refresh content='0;url=javascript:{call}'>",
    "<link rel=stylesheet href=//evil.example/x.css>",
    '\\"><script>{call}</script>',
    '" data-confirm data-live id="main',
    '{{"__proto__": {{"x": "{call}"}}}}',
    "<input type=hidden name=id value=1>",
    "</td></tr></table><script>{call}</script>",
    "<SCRIPT SRC=//evil.example/x.js></SCRIPT>",
)
FIELDS = 5


def strings() -> Iterator[str]:
    """As many hostile texts as are wanted, no two alike."""
    for number, shape in enumerate(islice(cycle(SHAPES), COUNT)):
        yield f"{shape.format(call=CALL)} {number}"


def check_unbroken(page: Page) -> None:
    """Nothing of what was shown has run or become a part of the page."""
    assert page.evaluate("window.broken") is None
    assert page.locator("main script, main iframe, main object, main base, main img").count() == 0
    assert page.locator("h1").count() == 1


def test_hostile_texts_in_the_database_are_shown_as_texts(
    scene: Scene, open_page: OpenPage
) -> None:
    texts = list(strings())
    jobs = [_job_of(scene, texts[at : at + FIELDS]) for at in range(0, COUNT, FIELDS)]
    page = open_page("/jobs")
    paths = ("/", "/jobs", "/dead", "/types", "/workers", "/audit", "/tail")
    # By then every shape was in its field; the others differ by their number.
    some = jobs[: len(SHAPES) // FIELDS]
    for path in (*paths, *(f"/jobs/{id}" for id in some), f"/chains/{jobs[0]}?view=tree"):
        page.goto(path)
        check_unbroken(page)
    expect(page.locator("main")).to_contain_text(texts[0])


def _job_of(scene: Scene, texts: list[str]) -> str:
    type, key, input, error, worker = texts
    encoded = input.replace("\\", "\\\\").replace('"', '\\"')
    sign = WorkerSign(worker, worker, worker, 1, "1", 1, "[]", "{}", error)
    scene.database.run(scene.store.workers.sign(sign))
    scene.start(type, key=key, input=f'{{"to":"{encoded}"}}')
    (claimed,) = scene.claim(type)
    scene.finish(claimed, "fail", error=error, fingerprint=key)
    return claimed.id


# Only its words are searched, as on any other page.
@on_one_store
def test_hostile_texts_typed_into_the_filter_are_shown_as_texts(
    scene: Scene, open_page: OpenPage
) -> None:
    scene.start()
    page = open_page("/jobs", later=400)
    texts = list(strings())
    quarter = COUNT // 4
    for place in range(len(SHAPES)):
        filter, after, done, moved = texts[place::quarter]
        fields = {"filter": filter, "after": after, "done": done, "moved": moved}
        answer = page.goto(f"/jobs?{urlencode(fields)}")
        assert answer is not None
        assert answer.status in (200, 400)
        check_unbroken(page)
        assert page.locator("#filter").input_value() == filter.strip()


@on_one_store
def test_hostile_texts_typed_into_the_audit_log_s_fields_are_shown_as_texts(
    scene: Scene, open_page: OpenPage
) -> None:
    page = open_page("/audit")
    texts = list(strings())
    for place in range(0, len(SHAPES), 3):
        actor, action, target = texts[place : place + 3]
        page.goto(f"/audit?{urlencode({'actor': actor, 'action': action, 'target': target})}")
        check_unbroken(page)


@on_one_store
def test_a_hostile_reason_is_kept_and_shown_as_a_text(scene: Scene, open_page: OpenPage) -> None:
    reason = "<script>window.broken=1</script>\"'&lt;"
    page = open_page(f"/jobs/{scene.failed()}")
    page.get_by_role("button", name="Retry").click()
    page.get_by_label("Reason, for the audit log").fill(reason)
    page.get_by_role("dialog").get_by_role("button", name="Retry").click()
    expect(page.get_by_role("status")).to_be_visible()
    page.goto("/audit")
    expect(page.locator("tbody")).to_contain_text(reason)
    check_unbroken(page)


@on_one_store
def test_a_form_leads_back_to_our_own_pages_only(scene: Scene, open_page: OpenPage) -> None:
    id = scene.failed()
    page = open_page(f"/jobs/{id}")
    page.get_by_role("button", name="Retry").click()
    # Only now: while nothing is asked, the live page may draw the form again.
    page.locator("input[name=back]").first.evaluate("(field) => { field.value = '//evil.example' }")
    page.get_by_role("dialog").get_by_role("button", name="Retry").click()
    expect(page.locator("h1")).to_have_text("Overview")
