"""An application whose jobs handle a secret in every way that could let it out; also imported by its processes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from holdfast import Busy, Continue, Holdfast, Job, Limit, Retry

SECRET = "Wolverine-4711-Quokka"
"""A word that no rule of redaction knows."""

SOON = Retry(base="1s", cap="1s", jitter=0, max_attempts=2)


@dataclass
class Record:
    name: str
    clinic: str = "north"


def fail_in_process(job: Job[Record]) -> None:
    try:
        raise KeyError(job.input.name)
    except KeyError as error:
        raise ValueError(f"no record of {job.input.name}") from error


def make_app(url: str, **options: Any) -> Holdfast:
    """Make the application; what fails goes well once the state says so."""
    app = Holdfast(url, **options)
    state = {"is_well": False}
    app.state = state  # type: ignore[attr-defined]

    @app.job("fails", sealed=True, retry=SOON)
    async def fails(job: Job[Record]) -> str:
        if not state["is_well"]:
            raise ValueError(f"no bed for {job.input.name}")
        return f"a bed for {job.input.name}"

    app.job("process", sealed=True, retry=SOON, executor="process")(fail_in_process)

    @app.job("busy", sealed=True)
    async def busy(job: Job[Record]) -> None:
        raise Busy("1h", f"{job.input.name} has to wait")

    @app.job("limited", sealed=True, limits=[Limit(1, by="clinic")])
    def limited(job: Job[Record]) -> str:
        return job.input.name

    @app.job("atomic", sealed=True, atomic=True)
    def atomic(job: Job[Record]) -> str:
        return job.input.name

    _add_more(app)
    return app


def _add_more(app: Holdfast) -> None:
    @app.job("plan", sealed=True)
    async def plan(job: Job[Record]) -> Continue:
        return Continue("limited", job.input)

    @app.job("late", sealed=True)
    async def late(job: Job[Record]) -> list[Any]:
        return [each.output for each in job.blockers]

    @app.job("batch", sealed=True, batch=10, retry=SOON)
    async def batch(jobs: list[Job[Record]]) -> list[Any]:
        return [ValueError(each.input.name) for each in jobs]

    @app.on("moved", name="mail", sealed=True)
    async def mail(job: Job[Record]) -> str:
        return job.input.name

    @app.on("moved", name="bill", sealed=True, retry=SOON)
    async def bill(job: Job[Record]) -> None:
        raise RuntimeError(job.input.name)


if "CLINIC_URL" in os.environ:
    app = make_app(os.environ["CLINIC_URL"])
