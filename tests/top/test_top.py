"""The live view, driven by keys; what it reads and does, on both stores."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TypeAlias

import pytest
from rich.text import Text
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import DataTable, Input, Static

from holdfast.admin.access import Caller, Gateway, Principal, Role
from holdfast.app import Holdfast
from holdfast.cli.exit_codes import Exit
from holdfast.core.ids import short_id
from holdfast_top.screen import ConfirmDialog, DetailDialog, TopApp, TopSource
from tests.cli.conftest import Run
from tests.cli.scene import Scene
from tests.support.until import until

Shown: TypeAlias = Callable[..., AbstractAsyncContextManager[tuple[TopApp, Pilot[None]]]]
NEVER = 3_600.0
SIZE = (140, 40)
ON_BOTH_STORES = pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
def shown(url: str, scene: Scene) -> Shown:
    """Show the view of the scene; it reads only when told to."""

    @asynccontextmanager
    async def shown(
        filter: str = "", read_only: bool = False, interval: float = NEVER
    ) -> AsyncIterator[tuple[TopApp, Pilot[None]]]:
        app = Holdfast(url)
        caller = Caller(Principal("ana", Role.DEVELOPER), reason="by hand")
        top = TopApp(TopSource(Gateway(app), caller, filter), interval, read_only)
        async with top.run_test(size=SIZE) as pilot:
            await until(lambda: head(top) != "…")
            yield top, pilot
        await app.aclose()

    return shown


def rows(top: TopApp, pane: str) -> list[list[str]]:
    table: DataTable[Text] = top.screen_stack[0].query_one(f"#{pane}-table", DataTable)
    return [[cell.plain for cell in table.get_row_at(place)] for place in range(table.row_count)]


def head(top: TopApp) -> str:
    return str(top.screen_stack[0].query_one("#head", Static).content)


@ON_BOTH_STORES
async def test_every_tab_shows_its_rows(shown: Shown, scene: Scene) -> None:
    dead = scene.failed("Timeout: gone")
    alive = scene.start("pdf")
    scene.worker("pdf")
    async with shown() as (top, pilot):
        assert [row[0] for row in rows(top, "jobs")] == [short_id(alive), short_id(dead)]
        assert "failed 1 · workers 1, 4 slots" in head(top)
        await pilot.press("2")
        await until(lambda: rows(top, "types"))
        assert [row[:2] for row in rows(top, "types")] == [
            ["mail.send", "0"],
            ["pdf", "1"],
            ["all types", "1"],
        ]
        await pilot.press("3")
        await until(lambda: rows(top, "workers"))
        assert rows(top, "workers")[0][:2] == ["w-7", "live"]
        await pilot.press("4")
        await until(lambda: rows(top, "dead"))
        assert rows(top, "dead")[0][-1] == "Timeout: gone"
        before = head(top)
        scene.start("pdf")
        await pilot.press("5")
        await until(lambda: head(top) != before)
        assert (top.pane.id, rows(top, "cycles")) == ("cycles", [])


async def test_a_long_name_leaves_room_for_the_other_columns(shown: Shown, scene: Scene) -> None:
    scene.start("billing." + "reminder" * 20)
    scene.start("mail.send")
    async with shown() as (top, pilot):
        for place, pane in enumerate(("jobs", "types"), start=1):
            await pilot.press(str(place))
            await until(partial(rows, top, pane))
            table: DataTable[Text] = top.screen_stack[0].query_one(f"#{pane}-table", DataTable)
            assert table.virtual_size.width <= SIZE[0]
            assert any("…" in cell for row in rows(top, pane) for cell in row[:2])


async def test_the_head_is_a_sentence_and_the_figures_below_it(shown: Shown, scene: Scene) -> None:
    scene.start("pdf")
    async with shown() as (top, _):
        sentence, figures = head(top).splitlines()
        assert sentence == "No live workers; 1 job is due"
        assert figures.startswith("due 1 · running 0 · ")
        assert top.query_one("#head", Static).size.height == 2


async def test_a_job_to_be_tried_again_is_shown_with_its_last_error(
    shown: Shown, scene: Scene
) -> None:
    scene.ended("retry", delay_ms=60_000, error="OSError: the shop is closed")
    async with shown() as (top, _):
        assert rows(top, "jobs")[0][-1] == "OSError: the shop is closed"


@ON_BOTH_STORES
async def test_a_small_letter_asks_and_a_capital_one_does_not(shown: Shown, scene: Scene) -> None:
    first, second = scene.failed(), scene.failed()
    async with shown("state:failed") as (top, pilot):
        await pilot.press("r")
        await until(lambda: isinstance(top.screen, ConfirmDialog))
        await pilot.press("n")
        await until(lambda: not isinstance(top.screen, ConfirmDialog))
        assert scene.state(second) == "failed"
        await pilot.press("r")
        await until(lambda: isinstance(top.screen, ConfirmDialog))
        await pilot.press("y")
        await until(lambda: [row[0] for row in rows(top, "jobs")] == [short_id(first)])
        assert scene.state(second) == "pending"
        await pilot.press("R")
        await until(lambda: scene.state(first) == "pending")
        await until(lambda: rows(top, "jobs") == [])
    assert scene.deeds() == [
        ("job.retry", f"job {second}", "by hand"),
        ("job.retry", f"job {first}", "by hand"),
    ]


@pytest.mark.parametrize(("key", "dialog"), [("r", ConfirmDialog), ("enter", DetailDialog)])
async def test_a_dialog_is_in_the_middle_of_the_screen(
    key: str, dialog: type[Screen[object]], shown: Shown, scene: Scene
) -> None:
    scene.failed("Timeout: gone")
    async with shown() as (top, pilot):
        await pilot.press(key)
        await until(lambda: isinstance(top.screen, dialog))
        assert top.screen.styles.align == ("center", "middle")


@ON_BOTH_STORES
async def test_types_workers_and_dead_letters_are_acted_on(shown: Shown, scene: Scene) -> None:
    id = scene.failed()
    scene.worker("mail.send")
    async with shown() as (top, pilot):
        await pilot.press("2")
        await until(lambda: rows(top, "types"))
        await pilot.press("P")
        await until(lambda: rows(top, "types")[0][7].startswith("by ana"))
        await pilot.press("U")
        await until(lambda: rows(top, "types")[0][7] == "-")
        await pilot.press("3")
        await until(lambda: rows(top, "workers"))
        await pilot.press("D")
        await until(lambda: rows(top, "workers")[0][1] == "draining")
        await pilot.press("4")
        await until(lambda: rows(top, "dead"))
        await pilot.press("R")
        await until(lambda: rows(top, "dead") == [])
        assert scene.state(id) == "pending"


async def test_letters_mean_nothing_where_they_do_not_belong_or_nothing_may_change(
    shown: Shown, scene: Scene
) -> None:
    id = scene.failed()
    async with shown(read_only=True) as (top, pilot):
        await pilot.press("R", "C", "r")
        await pilot.pause()
        assert not isinstance(top.screen, ConfirmDialog)
    async with shown() as (_, pilot):
        await pilot.press("D", "X", "P")
        await pilot.pause()
    assert scene.state(id) == "failed"
    assert scene.deeds() == []


async def test_a_refused_move_is_told_and_changes_nothing(shown: Shown, scene: Scene) -> None:
    id = scene.start()
    async with shown() as (top, pilot):
        await pilot.press("R")
        await until(lambda: [each.severity for each in top._notifications] == ["error"])
    assert scene.state(id) == "pending"


async def test_a_filter_narrows_the_jobs_and_a_wrong_one_is_refused(
    shown: Shown, scene: Scene
) -> None:
    scene.start("mail.send")
    pdf = scene.start("pdf")
    async with shown() as (top, pilot):
        await pilot.press("slash", *"type:pdf", "enter")
        await until(lambda: [row[0] for row in rows(top, "jobs")] == [short_id(pdf)])
        await pilot.press("slash")
        box = top.query_one("#filter", Input)
        await until(lambda: box.has_focus)
        box.value = "stat:failed"
        await pilot.press("enter")
        await until(lambda: len(top._notifications))
        assert "did you mean state?" in next(iter(top._notifications)).message
        assert top._source.filter == "type:pdf"


async def test_the_cursor_stays_on_its_job_when_others_arrive(shown: Shown, scene: Scene) -> None:
    older, newer = scene.start("a"), scene.start("b")
    async with shown() as (top, pilot):
        await pilot.press("down")
        scene.start("c")
        await top.refresh_rows()
        await pilot.press("C")
        await until(
            lambda: any(
                row[0] == short_id(older) and "cancelled" in row for row in rows(top, "jobs")
            )
        )
    assert (scene.state(older), scene.state(newer)) == ("cancelled", "pending")


async def test_enter_shows_a_job_in_full(shown: Shown, scene: Scene) -> None:
    id = scene.start("resize", input='{"width":640}')
    async with shown() as (top, pilot):
        await pilot.press("enter")
        await until(lambda: isinstance(top.screen, DetailDialog) and top.screen.query(Static))
        text = str(top.screen.query_one(Static).content)
        assert text.startswith("resize · pending\nNo live worker handles resize\n")
        assert id in text
        assert 'input:\n  {\n    "width": 640\n  }' in text
        await pilot.press("escape")
        await until(lambda: not isinstance(top.screen, DetailDialog))


async def test_a_job_shown_in_full_is_kept_current(shown: Shown, scene: Scene) -> None:
    scene.start("resize")
    async with shown(interval=0.05) as (top, pilot):
        await pilot.press("enter")
        await until(lambda: isinstance(top.screen, DetailDialog) and top.screen.query(Static))
        (job,) = scene.claim("resize")
        scene.finish(job, "complete")
        await until(lambda: detail_of(top).startswith("resize · completed\n"))


def detail_of(top: TopApp) -> str:
    return str(top.screen.query_one(Static).content)


async def test_a_failed_job_is_shown_with_its_traceback(shown: Shown, scene: Scene) -> None:
    scene.failed('Boom: no\nTraceback (most recent call last):\n  File "shop.py", line 3')
    async with shown() as (top, pilot):
        await pilot.press("enter")
        await until(lambda: isinstance(top.screen, DetailDialog) and top.screen.query(Static))
        text = str(top.screen.query_one(Static).content)
        assert '  Traceback (most recent call last):\n    File "shop.py", line 3' in text


async def test_a_question_mark_lists_all_keys(shown: Shown, scene: Scene) -> None:
    async with shown() as (top, pilot):
        await pilot.press("question_mark")
        await until(lambda: isinstance(top.screen, DetailDialog) and top.screen.query(Static))
        text = str(top.screen.query_one(Static).content)
        assert "r R      retry; R does not ask (Jobs, Dead letters)" in text


async def test_freezing_is_said(shown: Shown, scene: Scene) -> None:
    async with shown() as (top, pilot):
        await pilot.press("space")
        await until(lambda: head(top).startswith("frozen · "))
        assert top.is_frozen


def test_top_needs_a_terminal(run: Run, scene: Scene) -> None:
    result = run("top")
    assert result.exit_code == Exit.USAGE
    assert "top needs a terminal" in result.stderr
    assert "did you mean state?" in run("top", "--filter", "stat:failed").stderr
