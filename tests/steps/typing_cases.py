"""What mypy and pyright know of durable calls; `make check` is the test."""

from __future__ import annotations

from datetime import date
from typing import Any, assert_type

from holdfast import Holdfast, Job, Retry, SyncJob
from holdfast.steps.current import StepInfo, current_step


async def add(left: int, right: int) -> int:
    return left + right


async def insert(tx: Any, name: str) -> date:
    return date.min


async def remove(tx: Any, found: date) -> None: ...


async def refund(paid: int) -> None: ...


async def refund_text(paid: str) -> None: ...


def add_sync(left: int, right: int) -> int:
    return left + right


def refund_sync(paid: int) -> None: ...


async def results_have_the_type_of_the_function(app: Holdfast, job: Job[None]) -> None:
    @app.job("render")
    async def render(job: Job[int]) -> str:
        return str(job.input)

    assert_type(await job.step("add", add, 1, 2), int)
    assert_type(await job.step("add", add, 1, 2, key="a", retry=Retry(), timeout="1s"), int)
    assert_type(await job.step("add", add, 1, 2, undo=refund), int)
    assert_type(await job.step("insert", insert, "x", atomic=True), date)
    assert_type(await job.step("insert", insert, "x", atomic=True, undo=remove), date)
    assert_type(await job.wait_for("go", key=7, returns=date), date)
    assert_type(await job.wait_for("go"), Any)
    assert_type(await job.run(render, 5), str)
    assert_type(await job.run_many(render, [5]), list[str])
    assert_type(await job.run("render", 5), Any)
    assert_type(await job.sleep("1d"), None)
    cursor = await job.cursor("rows", 0)
    assert_type(cursor.value, int)
    await cursor.set(5)
    assert_type(current_step(), StepInfo)


async def mistakes_are_seen(app: Holdfast, job: Job[None]) -> None:
    @app.job("render")
    async def render(job: Job[int]) -> str:
        return str(job.input)

    await job.step("add", add, 1)  # type: ignore[arg-type]
    await job.step("add", add, 1, "2")  # type: ignore[arg-type,call-arg]
    await job.step("add", add, 1, 2, undo=refund_text)  # type: ignore[call-arg,misc]
    await job.step("add", add, 1, 2, colour="red")  # type: ignore[call-overload]
    await job.step("insert", insert, 5, atomic=True)  # type: ignore[call-overload]
    await job.step("insert", insert, "x")  # type: ignore[arg-type]
    await job.run(render, "5")  # type: ignore[arg-type]
    await job.run_many(render, ["5"])  # type: ignore[arg-type]
    _late: str = await job.wait_for("go", returns=date)  # type: ignore[arg-type]
    _text: str = await job.step("add", add, 1, 2)  # type: ignore[arg-type,call-arg]
    cursor = await job.cursor("rows", 0)
    await cursor.set("5")  # type: ignore[arg-type]


def sync_handlers_get_what_others_await(app: Holdfast, job: SyncJob[None]) -> None:
    @app.job("render")
    def render(job: SyncJob[int]) -> str:
        return str(job.input)

    assert_type(job.step("add", add_sync, 1, 2), int)
    assert_type(job.step("add", add_sync, 1, 2, undo=refund_sync), int)
    assert_type(job.wait_for("go", returns=date), date)
    assert_type(job.run(render, 5), str)
    assert_type(job.run_many(render, [5]), list[str])
    assert_type(job.sleep("1d"), None)
    cursor = job.cursor("rows", 0)
    assert_type(cursor.value, int)
    cursor.set(5)
    job.step("add", add_sync, 1, "2")  # type: ignore[arg-type,call-arg,unused-coroutine]
    job.run(render, "5")  # type: ignore[arg-type]
