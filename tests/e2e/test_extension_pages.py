"""Pages and cards that extensions add, with what others may have written into them: on each screen, light and dark."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import ViewportSize

from holdfast import Rate
from holdfast.app import Holdfast
from holdfast_groups import add_groups
from holdfast_output.output_store import NewBatch, append
from holdfast_schedules import add_schedules
from holdfast_schedules.schedule_store import DecidedSlot, ScheduleStore
from tests.cli.scene import Scene
from tests.e2e.conftest import on_one_store
from tests.e2e.tabs import OpenPage
from tests.e2e.test_axe import axe as axe
from tests.e2e.test_axe import findings
from tests.e2e.test_hostile import CALL, check_unbroken
from tests.e2e.test_pages import SCHEMES, SIZES, check
from tests.support.durable import DurableScene
from tests.support.limited_scene import LimitedScene, flow

SCREENS: tuple[ViewportSize, ...] = (*SIZES.values(), {"width": 375, "height": 800})
MARKUP = f"<script>{CALL}</script><img src=x onerror={CALL}> \"'> \u202e"
HOSTILE = MARKUP + "x" * 300
LONG, AFTER = "a" * 120, "b" * 120
"""A name of a type has no markup in it, but may be long."""


@pytest.fixture
def paths(app: Holdfast, scene: Scene) -> dict[str, str]:
    """What is looked at, by its name."""
    made = Extended(app, scene)
    return {
        "groups": "/groups",
        "group": f"/jobs/{made.group()}",
        "schedules": "/schedules",
        "schedule": f"/schedule?name={made.schedule()}",
        "new schedule": "/schedule/form",
        "steps": f"/jobs/{made.steps()}",
        "output": f"/jobs/{made.output()}",
        "cost": f"/jobs/{made.cost()}",
        "chain": f"/chains/{made.chain()}",
        "chains": "/chains",
    }


class Extended:
    """Leaves hostile texts wherever extensions keep some."""

    def __init__(self, app: Holdfast, scene: Scene) -> None:
        self._app = app
        self._scene = scene

    def group(self) -> str:
        """A group of which one job has failed."""
        for each in (LONG, AFTER):
            self._app.declare(each)
        with self._app.transaction() as tx:
            made = add_groups(self._app).start(tx, LONG, ["1", "2"], on_complete=AFTER)
        self._fail(LONG)
        return str(made.id)

    def schedule(self) -> str:
        """A schedule that could not start a job."""
        name = MARKUP.rstrip(" \u202e") + "n" * 100  # what cannot be printed is refused
        with self._app.transaction() as tx:
            add_schedules(self._app).set(tx, name, LONG, {"to": HOSTILE}, every="1h")
        schedules, past = ScheduleStore(), 1_700_000_000_000_000
        slot = DecidedSlot(name, past, "refused", False, None, HOSTILE)
        assert self._scene.database.run(schedules.decide([slot]))
        return quote(name)

    def steps(self) -> str:
        """A function whose steps, errors and signals have odd names, and which called others."""
        durable = DurableScene(self._scene)
        job = durable.begin(LONG)
        durable.record(job, MARKUP, output=json.dumps(HOSTILE))
        durable.record(job, "n" * 150, state="failed", error=HOSTILE)
        durable.call(job, 1, 2)
        signal = {"signal": MARKUP, "signal_key": HOSTILE[:150], "key": HOSTILE[:150]}
        durable.record(job, f"wait:{MARKUP}", "wait", state="open", **signal)
        return durable.park(job)

    def output(self) -> str:
        """A job that says hostile texts and no line ends."""
        self._scene.start(LONG)
        (job,) = self._scene.claim(LONG)
        said = [HOSTILE, {HOSTILE: [HOSTILE]}]
        batch = NewBatch(job.chain_id, job.id, job.token, 1, 2, 1, None, json.dumps(said))
        assert self._scene.database.run(append([batch]))
        return job.id

    def cost(self) -> str:
        """A job that waits until a key with an odd name has room."""
        limited = LimitedScene(self._scene)
        costly = flow("c" * 100, rates=[Rate(90_000, "1m", by="model", cost="tokens")])
        limited.declare(costly)
        for cost in (78_000, 20_000):
            (id,) = limited.start(costly, HOSTILE[:150], cost=cost)
            limited.claim(costly)
        return id

    def chain(self) -> str:
        """A chain that goes on behind a failed one and one that runs."""
        self._scene.start(LONG)
        (first,) = self._scene.claim(LONG)
        next = self._scene.continued(first, AFTER)
        waits = tuple(self._scene.start(each) for each in ("w" * 150, LONG))
        self._scene.start("e" * 150, blockers=(first.chain_id, *waits))
        assert next
        return first.chain_id

    def _fail(self, type: str) -> None:
        job, *_ = self._scene.claim(type)
        self._scene.finish(job, "fail", error=HOSTILE, fingerprint="f")


@on_one_store
def test_hostile_texts_stay_texts_and_within_every_screen_in_light_and_dark(
    axe: Any, paths: dict[str, str], open_page: OpenPage
) -> None:
    page = open_page("/")
    for name, path in paths.items():
        page.goto(path)
        for screen in SCREENS:
            page.set_viewport_size(screen)
            check(page, name)
            check_unbroken(page)
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            assert findings(axe, page, scheme) == [], (name, scheme)


@on_one_store
def test_a_list_shows_its_actions_beside_a_long_name(
    paths: dict[str, str], open_page: OpenPage
) -> None:
    page = open_page("/")
    for name, button in (("groups", "Cancel"), ("schedules", "Pause")):
        page.goto(paths[name])
        for screen in SCREENS:
            page.set_viewport_size(screen)
            box = page.get_by_role("button", name=button, exact=True).first.bounding_box()
            assert box is not None
            assert box["x"] + box["width"] <= screen["width"], f"{name} hides {button}"
