"""Durable functions as workers leave them, made by the store's own operations."""

from __future__ import annotations

from typing import Any

from holdfast.commands.blockers import attach_blockers
from holdfast.core.records import ClaimedJob, NewBlocker
from holdfast.core.steps import UNUSED, NewStep
from tests.cli.scene import Scene

TYPE = "order"
HOUR_MS = 3_600_000


class DurableScene:
    """Functions of one type that have run and are parked."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.database = scene.database
        self.store = scene.store

    def begin(self, type: str = TYPE, **fields: Any) -> ClaimedJob:
        """Start a function and claim it."""
        self.scene.start(type, **fields)
        (claimed,) = self.scene.claim(type)
        return claimed

    def record(self, job: ClaimedJob, name: str, kind: str = "step", **fields: Any) -> NewStep:
        """Record a step, the next one of its job."""
        place = len(self.database.read(self.store.steps.of_jobs([job.id]))) + 1
        now = self.database.read(self.store.schema.clock())
        known: dict[str, Any] = {"key": "", "nth": 1, "position": place, "state": "done"}
        known |= {"started_at": now - 40_000, "marks": place == 1}
        step = NewStep(job.id, job.token, name, kind=kind, **known | fields)  # type: ignore[arg-type]
        assert self.database.run(self.store.steps.record([step])), name
        return step

    def call(self, job: ClaimedJob, ended: int, running: int) -> list[str]:
        """Record a call of other chains, some of which have ended."""
        chains = [self.scene.ended("complete", "render") for _ in range(ended)]
        chains += [self.scene.start("render") for _ in range(running)]
        listed = ",".join(f'"{each}"' for each in chains)
        step = self.record(job, "run:render", "run", state="open", output=f"[{listed}]")
        edges = [
            NewBlocker(job.id, step.position * 65_536 + place, chain, "run", step.position)
            for place, chain in enumerate(chains)
        ]
        self.database.run(attach_blockers(self.store, edges))
        return chains

    def park(self, job: ClaimedJob, after_ms: int | None = None) -> str:
        """End the attempt of a function that waits; return its id."""
        now = self.database.read(self.store.schema.clock())
        until = None if after_ms is None else now + after_ms * 1000
        self.scene.finish(job, "park", until=until)
        return job.id

    def waiting(self, for_ms: int | None = 3 * 24 * HOUR_MS, **fields: Any) -> str:
        """Make an order that was charged and mailed, and waits to be approved; return its id."""
        job = self.begin(**fields)
        self.record(job, "charge", output='{"paid":40,"token":"t-1"}', undo=True)
        for to in ("ana", "bob"):
            self.record(job, "mail", key=to, nth=0, output="null")
        wait = {"state": "open", "signal": "approved", "signal_key": "7", "key": "7", "nth": 1}
        self.record(job, "wait:approved", "wait", **wait, lasts_ms=for_ms)
        return self.park(job, for_ms)

    def outgrown(self) -> str:
        """Make an order whose code changed: it ended without asking for the mail that was sent; return its id."""
        job = self.begin()
        self.record(job, "charge", output="40")
        self.record(job, "mail", key="ana", nth=0, output="null")
        self.record(job, UNUSED.name, "cursor", nth=UNUSED.nth, output='["mail[ana]"]')
        self.scene.finish(job, "complete")
        return job.id

    def retrying(self) -> str:
        """Make an order whose second try to charge failed; return its id."""
        job = self.begin()
        for number, error in enumerate(("OSError: slow", "OSError: card"), 1):
            values = {"key": "#1", "nth": number, "error": error, "lasts_ms": HOUR_MS}
            state = "open" if number == 2 else "done"
            self.record(job, "charge.retry", "sleep", state=state, **values)
        return self.park(job, HOUR_MS)
