"""A function that runs again from a step does what comes from there on, and not what came before."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from holdfast import Holdfast, Job
from holdfast.admin.access import LOCAL, Caller, Gateway
from holdfast.admin.service import Admin
from holdfast.core.errors import ChainNotFound, InvalidOption
from holdfast.storage.id_generator import new_id
from holdfast_testing.kit import Kit

ME = Caller(LOCAL)


async def test_only_what_comes_from_the_step_on_is_done_again(url: str) -> None:
    done: Counter[str] = Counter()
    app = Holdfast(url)

    async def note(name: str) -> int:
        done[name] += 1
        return done[name]

    @app.job("render")
    async def render(job: Job[int]) -> int:
        return await note("render")

    @app.job("order")
    async def order(job: Job[dict[str, Any]]) -> list[Any]:
        first = await job.step("charge", note, "charge")
        page = await job.run(render, 1)
        answer = await job.wait_for("approved", key=job.input["id"])
        last = await job.step("ship", note, "ship")
        return [first, page, answer, last]

    kit = Kit(app, url)
    with app.transaction() as tx:
        chain = app.start(tx, order, {"id": 7})
        app.signal(tx, "approved", key=7, data="yes")
    await kit.run_until_idle_async()
    assert app.chains.get(chain.id).output == [1, 1, "yes", 1]
    admin = Admin(Gateway(app))
    again = await admin.chains.rerun(ME, str(chain.id), "ship")
    await kit.run_until_idle_async()
    assert app.chains.get(again.id).output == [1, 1, "yes", 2]
    assert done == {"charge": 1, "render": 1, "ship": 2}
    called = await admin.chains.rerun(ME, str(again.id), "run:render")
    await kit.run_until_idle_async()
    assert done == {"charge": 1, "render": 2, "ship": 2}
    (wait,) = [each for each in app.jobs.steps(called.id) if each.kind == "wait"]
    assert wait.state == "open"
    with pytest.raises(InvalidOption, match="has no step 'shp'") as refused:
        await admin.chains.rerun(ME, str(chain.id), "shp")
    assert refused.value.help == "did you mean ship?"
    with pytest.raises(ChainNotFound):
        await admin.chains.rerun(ME, new_id(), "ship")
    await app.aclose()
