"""The results of a sealed function's steps are shown where its output is, and sealed anew for another chain."""

from __future__ import annotations

import json

import pytest

from holdfast import Holdfast, Job, Seal
from holdfast.admin.access import LOCAL, Caller, Gateway
from holdfast.admin.service import Admin
from holdfast.core.errors import SealKeyMissing
from holdfast.core.sealing import is_sealed
from holdfast_testing.kit import Kit
from tests.sealed.conftest import NEW

SECRET = "Frida Kahlo"
ME = Caller(LOCAL)


def declare(app: Holdfast) -> Holdfast:
    """Register a sealed function that waits."""

    async def admit(name: str) -> str:
        return f"a bed for {name}"

    @app.job("admit", sealed=True)
    async def handler(job: Job[str]) -> str:
        bed = await job.step("admit", admit, job.input)
        await job.wait_for("discharged", key="7")
        return bed

    return app


@pytest.fixture
def kit(url: str) -> Kit:
    """An application with the key."""
    kit = Kit(declare(Holdfast(url, seal=Seal({"new": NEW}))), url)
    with kit.app.transaction() as tx:
        kit.app.start(tx, "admit", SECRET)
    kit.run_until_idle()
    return kit


async def test_a_result_is_shown_sealed_without_the_key(kit: Kit, url: str) -> None:
    (job,) = kit.app.jobs.list()
    stranger = Holdfast(url, open_types=True)
    admin = Admin(Gateway(stranger))
    step, wait = await admin.jobs.steps(ME, str(job.id))
    assert (step["step"], step["sealed"]) == ("admit", True)
    assert step["output"] == {"sealed": {"key": "new"}}
    assert (wait["signal"], wait["signal_key"]) == ("discharged", "7")
    found = await admin.jobs.get(ME, str(job.id))
    assert SECRET not in repr(found)
    unread, _ = await stranger.aio.jobs.steps(job.id)
    with pytest.raises(SealKeyMissing):
        _ = unread.output
    with pytest.raises(SealKeyMissing):
        await admin.chains.rerun(ME, str(job.chain_id), "wait:discharged")
    await stranger.aclose()
    await kit.app.aclose()


async def test_with_the_key_it_is_shown_and_copied_sealed(kit: Kit) -> None:
    (job,) = kit.app.jobs.list()
    step, wait = kit.app.jobs.steps(job.id)
    assert (step.step, step.kind, step.state, step.output) == (
        "admit",
        "step",
        "done",
        f"a bed for {SECRET}",
    )
    assert (wait.state, wait.signal, wait.output) == ("open", "discharged", None)
    assert await kit.app.aio.jobs.steps(job.id) == [step, wait]
    admin, store = Admin(Gateway(kit.app)), kit.app.database.store
    shown = await admin.jobs.steps(ME, str(job.id))
    assert (shown[0]["output"], shown[0]["sealed"]) == (f"a bed for {SECRET}", False)
    chain = await admin.chains.rerun(ME, str(job.chain_id), "wait:discharged")
    (copied,) = await kit.app.database.run_async(store.steps.of_jobs([str(chain.id)]))
    assert is_sealed(copied.output or "")
    assert SECRET not in json.dumps([copied.output])
    (again,) = await kit.app.aio.jobs.steps(chain.id)
    assert again.output == f"a bed for {SECRET}"
    await kit.app.aclose()
