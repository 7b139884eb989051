"""The data and actions of `holdfast top`, through the same authorised services as the API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.admin.service import Admin
from holdfast.cli.output import clean, first_line
from holdfast.commands.health import Health, read_health, summarize
from holdfast.core.duration import spoken

if TYPE_CHECKING:
    from holdfast.admin.access import Caller, Gateway

ROWS = 200


class Row(NamedTuple):
    """One row of a table; `key` identifies it, `state` decides its colour."""

    key: str
    cells: tuple[str, ...]
    state: str = ""


class TopSource:
    """Everything `top` shows and does."""

    def __init__(self, gateway: Gateway, caller: Caller, filter: str = "") -> None:
        self.filter = filter
        self._gateway = gateway
        self._caller = caller
        self._admin = Admin(gateway)

    async def health(self) -> Health:
        """Read the queue's status."""
        return await self._gateway.read(self._caller, "overview.read", read_health)

    async def jobs(self) -> list[Row]:
        """Read the newest jobs that match the filter."""
        page = await self._admin.jobs.page(self._caller, self.filter, ROWS, None)
        return [
            _row(
                each["id"],
                (each["id"], each["type"], each["state"], each["attempt"], each["created_at"][:19]),
                first_line(each["error"]),
                state=each["state"],
            )
            for each in page.items
        ]

    async def types(self) -> list[Row]:
        """Read job types."""
        facts = [each.as_record() for each in await self._admin.types.list(self._caller)]
        names = ("type", "live", "oldest_due", "completed", "failed", "workers", "paused")
        return [
            _row(
                each["type"],
                [each[name] for name in names],
                each["settings"],
                state="paused" if each["paused"] else "",
            )
            for each in facts
        ]

    async def workers(self) -> list[Row]:
        """Read workers."""
        return [
            _row(
                each.worker.id,
                (
                    each.worker.id,
                    each.standing,
                    f"{each.worker.host}:{each.worker.pid}",
                    each.worker.slots,
                    each.held,
                    f"{spoken(each.now - each.worker.seen_at)} ago",
                ),
                each.worker.counters.get("processed", 0),
                state=each.standing,
            )
            for each in await self._admin.workers.list(self._caller)
        ]

    async def dead(self) -> list[Row]:
        """Read dead letters, grouped by type and error."""
        groups = await self._admin.dead_letters.groups(self._caller, ROWS)
        return [
            _row(
                each["filter"],
                (each["count"], each["type"], each["newest_at"][:19]),
                first_line(each["error"]),
                state="failed",
            )
            for each in groups.items
        ]

    async def cycles(self) -> list[Row]:
        """Read cycles."""
        return [
            _cycle(each.as_json()) for each in await self._admin.cycles.list(self._caller, runs=1)
        ]

    async def detail(self, id: str) -> str:
        """Return everything about a job, as text."""
        found = await self._admin.jobs.get(self._caller, id)
        facts = [f"{name:<17} {clean(value)}" for name, value in found.job.items() if value]
        tries = [f"attempt {each['attempt']}: {each['error']}" for each in found.attempts]
        return "\n".join([found.why, "", *facts, *([""] if tries else []), *tries])

    def action(self, name: str) -> Callable[[str], Awaitable[Any]]:
        """Return the function of an action; it takes the key of a row."""
        caller = self._caller
        actions: dict[str, Callable[[str], Awaitable[Any]]] = {
            "job.retry": lambda id: self._admin.jobs.retry(caller, [id]),
            "job.cancel": lambda id: self._admin.jobs.cancel(caller, [id]),
            "job.run_now": lambda id: self._admin.jobs.run_now(caller, [id]),
            "type.pause": lambda type: self._admin.types.pause(caller, type),
            "type.resume": lambda type: self._admin.types.resume(caller, type),
            "worker.drain": lambda id: self._admin.workers.drain(caller, id),
            "dead.redrive": lambda text: self._admin.dead_letters.redrive(caller, filter=text),
            "dead.drop": lambda text: self._admin.dead_letters.drop(caller, filter=text),
            "cycle.run_now": lambda name: self._admin.cycles.run_now(caller, name),
            "cycle.pause": lambda name: self._admin.cycles.pause(caller, name),
            "cycle.resume": lambda name: self._admin.cycles.resume(caller, name),
        }
        return actions[name]


def head_line(health: Health) -> str:
    """Return the queue's status in one line."""
    words = " · ".join(f"{name} {value}" for name, value in health.words().items())
    return f"{summarize(health)} · {words}, {health.slots} slots"


def _cycle(cycle: dict[str, Any]) -> Row:
    last = cycle["runs"][0] if cycle["runs"] else {}
    upcoming = cycle["next"][0][:19] if cycle["next"] else "-"
    cells = (cycle["name"], cycle["words"], "paused" if cycle["paused"] else upcoming)
    outcome = str(last.get("outcome") or "-")
    return _row(cycle["name"], (*cells, outcome), first_line(last.get("error")), state=outcome)


def _row(key: str, cells: Sequence[object], last: object, state: str = "") -> Row:
    return Row(key, tuple(clean(each) for each in (*cells, last)), state)
