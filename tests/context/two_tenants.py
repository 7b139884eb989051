"""The jobs of two tenants and of none in one database, with a canary wherever the others' data can be."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec
from starlette.applications import Starlette

from holdfast import Holdfast, Job, Retry
from holdfast.admin.access import Principal, Role, new_secret, new_token
from holdfast.commands.redrives import redrive_dead_letters
from holdfast.settings import read_settings
from holdfast.storage.store.pagination import JobQuery
from holdfast.web.app import create
from holdfast_context import only
from holdfast_output import add_output
from holdfast_schedules import add_schedules
from holdfast_schedules.schedule_store import SCHEDULES, DecidedSlot, SchedulePage, ScheduleRecord
from holdfast_testing.kit import Kit

CANARY = "canary7"
OURS, THEIRS = {"tenant": "acme", "user": "ana"}, {"tenant": f"globex-{CANARY}", CANARY: "x"}
HOST = "http://127.0.0.1"


class TwoTenants:
    """An application with jobs in every state: ours, those of another tenant, and those of none."""

    def __init__(self, url: str) -> None:
        self.app = Holdfast(url, open_types=True)
        add_output(self.app)
        # The types that an application has are no tenant's; the other tenant's are known to workers only.
        workers = Holdfast(url)
        add_output(workers)
        _handle(self.app, "ours")
        _handle(workers, "ours")
        _handle(workers, CANARY)
        kit = Kit(workers, url)
        self.ours = self._fill(kit, "ours", "ours", OURS)
        self.theirs = self._fill(kit, CANARY, CANARY, THEIRS)
        self.nobodys = self._fill(kit, CANARY, f"{CANARY}-none", {})
        self._entangle()
        self._set_schedules()
        kit.close()
        workers.close()
        self._secrets: dict[tuple[Role, str], str] = {}
        self.served: Starlette = create(self.app, settings=read_settings({}))

    def _fill(self, kit: Kit, word: str, secret: str, context: dict[str, str]) -> dict[str, str]:
        """Start a job that ends in each state; return their ids."""
        ids = {}
        with self.app.transaction() as tx:

            def start(name: str, type: str, **options: Any) -> None:
                made = self.app.start(tx, type, secret, context=context, **options)
                ids[name] = str(made.id)

            start("done", f"{word}.done", key=f"{secret}-done")
            start("boom", f"{word}.boom")
            start("again", f"{word}.boom")
            start("function", f"{word}.function")
            start("later", f"{word}.unhandled", key=f"{secret}-later", after="1h")
            start("cancelled", f"{word}.unhandled")
            start("waiting", f"{word}.unhandled", blockers=[ids["later"]])
            parts = [ids["done"], ids["later"]]
            start("group", f"{word}.unhandled", blockers=parts, on_blocker_failure="run")
        with self.app.transaction() as tx:
            self.app.chains.cancel(tx, ids["cancelled"], reason=f"because {secret}")
        kit.run_until_idle()
        return ids

    def _entangle(self) -> None:
        """Let each tenant wait for a chain of the other, and redrive dead letters of both together."""
        with self.app.transaction() as tx:
            crossed = self.app.start(
                tx,
                "ours.unhandled",
                1,
                context=OURS,
                blockers=[self.theirs["later"], self.theirs["done"]],
                on_blocker_failure="run",
            )
            other = self.app.start(
                tx, f"{CANARY}.unhandled", 1, context=THEIRS, blockers=[self.ours["later"]]
            )
        self.ours["crossed"], self.theirs["crossed"] = str(crossed.id), str(other.id)
        dead = [self.theirs["boom"], self.theirs["again"], self.ours["again"]]
        run, store = self.app.database.run, self.app.database.store
        run(redrive_dead_letters(store, dead, rate=0.001))

    def _set_schedules(self) -> None:
        """Set schedules of each tenant and of none; those of others are called as their jobs are."""
        schedules = add_schedules(self.app)
        with self.app.transaction() as tx:
            for name, word, context in (
                ("nightly", "ours", OURS),
                ("tenant:acme:weekly", "ours", OURS),
                (self.theirs["later"], CANARY, THEIRS),
                (self.nobodys["later"], CANARY, {}),
            ):
                schedules.set(tx, name, f"{word}.done", word, every="1h", context=context)

        missed = [
            DecidedSlot(each["later"], 1, "missed", False, None, f"no {CANARY}")
            for each in (self.theirs, self.nobodys)
        ]
        self.app.database.run(SCHEDULES.decide(missed))

    def foreign_schedules(self) -> list[ScheduleRecord]:
        """All schedules that are not ours, as they are."""
        found = self.app.database.read(SCHEDULES.page(SchedulePage(limit=1_000)))
        kept = [each for each in found if '"acme"' not in (each.context or "")]
        return [msgspec.structs.replace(each, now=0) for each in kept]

    @property
    def foreign_ids(self) -> list[str]:
        """The ids that must not be shown."""
        return [*self.theirs.values(), *self.nobodys.values()]

    def foreign_records(self) -> list[Any]:
        """All jobs and schedules that are not ours, as they are."""
        store = self.app.database.store
        found = self.app.database.read(store.jobs.page(JobQuery(limit=1_000)))
        jobs = [each for each in found if '"acme"' not in (each.context or "")]
        return [*jobs, *self.foreign_schedules()]

    def client(self, role: Role, value: str = "acme") -> httpx.AsyncClient:
        """A client of a principal that is confined to a tenant."""
        if (role, value) not in self._secrets:
            self._secrets[role, value] = secret = new_secret()
            token = new_token(
                Principal(f"{value}-{role.word}", role, only("tenant", value)), secret
            )
            self.app.database.run(self.app.database.store.tokens.create(token))
        headers = {"Authorization": f"Bearer {self._secrets[role, value]}"}
        transport = httpx.ASGITransport(self.served, client=("127.0.0.1", 50_000))
        return httpx.AsyncClient(transport=transport, base_url=HOST, headers=headers)


def _handle(app: Holdfast, word: str) -> None:
    @app.job(f"{word}.done")
    async def done(job: Job[Any]) -> Any:
        job.emit(job.input)
        return job.input

    @app.job(f"{word}.boom", retry=Retry(max_attempts=1))
    async def boom(job: Job[Any]) -> None:
        raise ValueError(f"no {job.input}")

    @app.job(f"{word}.function")
    async def function(job: Job[Any]) -> None:
        await job.step(f"{word}-step", _same, job.input)
        await job.wait_for(f"{word}-signal", key=f"{word}-key")


async def _same(value: Any) -> Any:
    return value
