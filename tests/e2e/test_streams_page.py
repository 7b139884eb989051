"""The page of streams with what others may have written into it, on a screen and on a phone."""

from __future__ import annotations

from playwright.sync_api import expect

from holdfast.app import Holdfast
from holdfast.storage.id_generator import new_id
from holdfast_streams import add_streams
from holdfast_streams.inbox.inbox_store import INBOXES
from holdfast_streams.reader_store import LINES, LineToken
from holdfast_streams.relay.relay_store import RELAYS
from tests.e2e.conftest import on_one_store
from tests.e2e.tabs import OpenPage
from tests.e2e.test_pages import SIZES, check

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)> " + "x" * 300


@on_one_store
def test_long_and_hostile_texts_stay_texts_and_within_the_screen(
    app: Holdfast, open_page: OpenPage
) -> None:
    streams, worker, token = add_streams(app), "w-<b>x</b>-" + "y" * 80, new_id()
    streams.consumer("a" * 190 + ".*", "order.*", name="revenue")(lambda events, tx: None)
    streams.register()
    run = app.database.run
    run(LINES.join(worker, ["revenue"], 60_000))
    run(LINES.claim("revenue", worker, token, 16, 60_000))
    run(RELAYS.block(LineToken("revenue", 5, token), "ahead", HOSTILE, 100))
    run(INBOXES.register("paid", "jetstream", f"nats://{'b' * 100} {HOSTILE}", None))
    run(INBOXES.beat("paid", worker, 60_000, HOSTILE, None))
    page = open_page("/streams")
    for viewport in SIZES.values():
        page.set_viewport_size(viewport)
        check(page, "/streams")
        expect(page.get_by_text(HOSTILE).first).to_be_visible()
        card = page.locator(".card:has(> .notice)").bounding_box()
        notice = page.locator(".card > .notice").first.bounding_box()
        icon, sentence = (
            page.locator(f".card > .notice > {each}").first.bounding_box()
            for each in ("svg", "span")
        )
        assert card
        assert notice
        assert icon
        assert sentence
        assert icon["x"] + icon["width"] <= sentence["x"], "the sentence is beside its icon"
        assert card["x"] + 8 <= notice["x"], "the notice touches no edge of its card"
    assert page.locator("main script, main img").count() == 0
