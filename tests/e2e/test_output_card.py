"""What a job emits appears on its page as it comes, over a stream that may break and be full."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Locator, Page, expect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast import Holdfast, Job, Retry
from holdfast.admin.access import Principal, Role, new_secret, new_token
from holdfast.settings import read_settings
from holdfast.web.app import create
from holdfast_context import add_context, only
from tests.e2e.conftest import on_one_store
from tests.e2e.tabs import OpenPage, Tabs, opening
from tests.e2e.test_axe import axe as axe
from tests.e2e.test_axe import findings
from tests.e2e.test_pages import check, looks
from tests.output.scene import OutputScene
from tests.support.serving import serve
from tests.support.until import PATIENCE_S


class CutStreams:
    """A served application whose streams of output are noted, and can be cut as a proxy would."""

    def __init__(self, inner: ASGIApp) -> None:
        self._inner = inner
        self._cut = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.asked: list[tuple[str, str | None]] = []
        """The query of each stream, and the last event that its reader had."""
        self.open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not scope["path"].endswith("/output/stream"):
            await self._inner(scope, receive, send)
            return
        self._loop = asyncio.get_running_loop()
        last = dict(scope["headers"]).get(b"last-event-id")
        self.asked.append((scope["query_string"].decode(), last.decode() if last else None))
        self.open += 1
        sent: list[Message] = []

        async def noting(message: Message) -> None:
            sent.append(message)
            await send(message)

        inner = asyncio.create_task(self._run(scope, receive, noting))
        cut = asyncio.create_task(self._cut.wait())
        try:
            await asyncio.wait((inner, cut), return_when=asyncio.FIRST_COMPLETED)
            if not inner.done():
                self._cut.clear()
                inner.cancel()
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            cut.cancel()
            self.open -= 1

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._inner(scope, receive, send)

    def cut(self) -> None:
        """End the stream that is open, without its last event."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._cut.set)


class Talk:
    """A job that emits what it is given, until it is told to end."""

    def __init__(self, scene: OutputScene) -> None:
        self._scene = scene
        self._words: list[Any] = []
        self._given = threading.Condition()
        self._id = ""

        @scene.job("chat", retry=Retry(base="1ms"))
        def chat(job: Job[None]) -> None:
            while True:
                with self._given:
                    assert self._given.wait_for(lambda: self._words, PATIENCE_S)
                    word = self._words.pop(0)
                if word is None:
                    return
                if word is ValueError:
                    raise ValueError("the model is gone")
                job.emit(word)

    def start(self, *words: Any, context: dict[str, str] | None = None) -> str:
        """Start it and have it emit; return the path of its page."""
        self.say(*words)
        with self._scene.app.transaction() as tx:
            chain = self._scene.app.start(tx, "chat", None, context=context)
        return f"/jobs/{chain.id}"

    def say(self, *words: Any) -> None:
        """Have it emit; None ends it, ValueError fails it."""
        with self._given:
            self._words += words
            self._given.notify_all()


class Site(NamedTuple):
    """A dashboard over a worker that runs a talk."""

    scene: OutputScene
    talk: Talk
    streams: CutStreams
    open: OpenPage


@pytest.fixture
def scene(url: str) -> Iterator[OutputScene]:
    """An application whose handlers emit."""
    scene = OutputScene(url)
    add_context(scene.app, capture=dict)
    scene.app.migrate()
    yield scene
    scene.close()


OpenSite = Callable[..., AbstractContextManager[Site]]


@pytest.fixture
def on_site(scene: OutputScene, tabs: Tabs) -> OpenSite:
    """Serve a dashboard beside a worker."""

    @contextmanager
    def on_site(**settings: str) -> Iterator[Site]:
        behind = Holdfast(scene.url, open_types=True)
        add_context(behind, capture=dict)
        streams = CutStreams(create(behind, settings=read_settings(settings)))
        talk = Talk(scene)
        with serve(streams) as address, opening(tabs, address) as open, scene.working():
            try:
                yield Site(scene, talk, streams, open)
            finally:
                talk.say(None)
        behind.close()

    return on_site


def emitted(page: Page) -> Locator:
    """The card with what was emitted."""
    return page.locator("#cards section").filter(has_text="Emitted")


def hold_refreshes(page: Page) -> None:
    """Open a dialog: the page isn't refreshed while there is one."""
    page.get_by_role("button", name="Cancel job").click()
    expect(page.locator("#live [data-word]")).to_have_text("Paused: dialog open")


def test_what_a_job_emits_appears_without_a_refresh_until_the_chain_ends(on_site: OpenSite) -> None:
    with on_site() as site:
        page = site.open(site.talk.start("to "))
        text = emitted(page).locator("pre")
        expect(text).to_have_text("to ")
        hold_refreshes(page)
        site.talk.say("<b>be</b>")
        expect(text).to_have_text("to <b>be</b>")
        site.talk.say({"n": 9007199254740993}, "or\u202e")
        expect(text).to_have_text('to <b>be</b>\n{"n":9007199254740993}\nor\\u202e')
        expect(emitted(page)).to_contain_text("4 items")
        assert site.streams.asked == [("after=1", None)]
        page.get_by_role("button", name="Go back").click()
        site.talk.say(None)
        expect(page.locator(".page-head .chip")).to_have_text("completed")
        expect(text).to_have_text('to <b>be</b>\n{"n":9007199254740993}\nor\\u202e')
        expect(page.locator("[data-output]")).to_have_count(0)
        assert site.streams.open == 0


@on_one_store
def test_a_stream_that_breaks_goes_on_after_its_last_event(on_site: OpenSite) -> None:
    with on_site() as site:
        page = site.open(site.talk.start("a"))
        text = emitted(page).locator("pre")
        expect(text).to_have_text("a")
        hold_refreshes(page)
        site.talk.say("b")
        expect(text).to_have_text("ab")
        site.streams.cut()
        site.talk.say("c", "d")
        expect(text).to_have_text("abcd")
        assert site.streams.asked == [("after=1", None), ("after=1", "2")]
        site.talk.say(None)


@on_one_store
def test_a_retry_begins_anew_on_the_page(on_site: OpenSite) -> None:
    with on_site() as site:
        page = site.open(site.talk.start("half of "))
        expect(emitted(page).locator("pre")).to_have_text("half of ")
        hold_refreshes(page)
        site.talk.say(ValueError)
        site.talk.say("all")
        expect(emitted(page).locator("pre")).to_have_text("all")
        expect(emitted(page)).to_contain_text("epoch 2 · 1 item")
        site.talk.say(None)


@on_one_store
def test_a_page_without_a_stream_of_its_own_is_refreshed(on_site: OpenSite) -> None:
    with on_site(HOLDFAST_STREAMS_PER_PRINCIPAL="1") as site:
        page = site.open(site.talk.start("a"), later=429)
        text = emitted(page).locator("pre")
        expect(text).to_have_text("a")
        site.talk.say("b")
        expect(text).to_have_text("ab")
        site.talk.say(None)
        expect(page.locator(".page-head .chip")).to_have_text("completed")


@on_one_store
def test_a_long_output_keeps_its_end_in_view(on_site: OpenSite) -> None:
    with on_site() as site:
        page = site.open(site.talk.start("begin\n"))
        text = emitted(page).locator("pre")
        expect(text).to_have_text("begin\n")
        hold_refreshes(page)
        site.talk.say(*(f"line {number}\n" for number in range(5_000)))
        expect(emitted(page)).to_contain_text("5\u202f001 items, the last of them")
        shown = text.text_content() or ""
        assert (len(shown), shown.endswith("line 4999\n")) == (20_000, True)
        assert text.evaluate("(it) => it.scrollHeight - it.scrollTop - it.clientHeight < 5")
        text.evaluate("(it) => { it.scrollTop = 0; }")
        site.talk.say("more\n")
        expect(text).to_contain_text("more")
        assert text.evaluate("(it) => it.scrollTop") == 0
        site.talk.say(None)


def test_people_of_a_tenant_follow_their_own_job(on_site: OpenSite) -> None:
    with on_site() as site:
        path = site.talk.start("ours ", context={"tenant": "acme"})
        secret = new_secret()
        holder = Principal("ana", Role.DEVELOPER, only("tenant", "acme"))
        app = site.scene.app
        app.database.run(app.database.store.tokens.create(new_token(holder, secret)))
        page = site.open("/sign-in")
        page.get_by_label("Token").fill(secret)
        page.get_by_role("button", name="Sign in").click()
        page.goto(path)
        text = emitted(page).locator("pre")
        expect(text).to_have_text("ours ")
        hold_refreshes(page)
        site.talk.say("too")
        expect(text).to_have_text("ours too")
        page.get_by_role("button", name="Go back").click()
        site.talk.say(None)
        expect(page.locator(".page-head .chip")).to_have_text("completed")


@on_one_store
def test_the_card_is_sound_and_accessible_in_every_look(axe: Any, on_site: OpenSite) -> None:
    with on_site() as site:
        said = "It depends on what you ask. " * 30
        page = site.open(site.talk.start(said, {"tokens": 210, "model": "x" * 200}))
        expect(emitted(page)).to_contain_text("2 items")
        for scheme, size in looks(page):
            check(page, f"{scheme} {size}")
            assert findings(axe, page, scheme) == [], (scheme, size)
        site.talk.say(None)
