"""The service: reads and commands of every noun, each call checked by the gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.admin.access import AuditLog, Gateway, NounAdmin, TokenAdmin
from holdfast.admin.chains import ChainAdmin
from holdfast.admin.cycles import CycleAdmin
from holdfast.admin.jobs import DeadLetterAdmin, JobAdmin
from holdfast.admin.limits import LimitAdmin
from holdfast.admin.steps import SignalAdmin
from holdfast.admin.type_statistics import TypeBoards
from holdfast.admin.types import SubscriptionAdmin, TypeAdmin
from holdfast.admin.workers import WorkerAdmin

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.settings import Settings

N = TypeVar("N", bound=NounAdmin)


class Admin:
    """Reads and commands by noun; every call names its caller."""

    def __init__(self, gateway: Gateway) -> None:
        self.jobs = JobAdmin(gateway)
        self.chains = ChainAdmin(gateway)
        self.dead_letters = DeadLetterAdmin(gateway)
        self.types = TypeAdmin(gateway)
        self.type_boards = TypeBoards(gateway)
        self.limits = LimitAdmin(gateway)
        self.signals = SignalAdmin(gateway)
        self.workers = WorkerAdmin(gateway)
        self.cycles = CycleAdmin(gateway)
        self.subscriptions = SubscriptionAdmin(gateway)
        self.audit = AuditLog(gateway)
        self.tokens = TokenAdmin(gateway)
        self._gateway = gateway
        self._others: dict[type[NounAdmin], Any] = {}

    def of(self, noun: type[N]) -> N:
        """Return the reads and commands of an extension's noun."""
        if noun not in self._others:
            self._others[noun] = noun(self._gateway)
        found: N = self._others[noun]
        return found

    async def close(self) -> None:
        """End what the nouns of extensions have begun."""
        for each in self._others.values():
            await each.close()


class Service(Admin):
    """The same for a process that serves: with the overview, which needs its settings, and the first outbox API."""

    def __init__(self, app: Holdfast, settings: Settings) -> None:
        # Here, because the command line does without it and starts faster so.
        from holdfast.admin.overview import LegacyStats, Overviews

        gateway = Gateway(app)
        super().__init__(gateway)
        self.app = app
        self.settings = settings
        self.overview = Overviews(gateway, settings)
        self.outbox = LegacyStats(gateway, settings)

    async def close(self) -> None:
        """End what extensions have begun, and a running tick."""
        await super().close()
        await self.outbox.close()
