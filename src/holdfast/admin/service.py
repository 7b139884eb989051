"""The service: reads and commands of every noun, assembled once per process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.admin.audit import AuditLog
from holdfast.admin.authorize import READ_TIMEOUT_MS, Gateway
from holdfast.admin.chains import ChainAdmin
from holdfast.admin.cycles import CycleAdmin
from holdfast.admin.dead_letters import DeadLetterAdmin
from holdfast.admin.jobs import JobAdmin
from holdfast.admin.legacy_stats import LegacyStats, Ticks
from holdfast.admin.overview import DoctorAdmin, Overviews
from holdfast.admin.subscriptions import SubscriptionAdmin
from holdfast.admin.tokens import TokenAdmin
from holdfast.admin.types import TypeAdmin
from holdfast.admin.workers import WorkerAdmin

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.settings import Settings


class Service:
    """Reads and commands by noun; every call names its caller."""

    def __init__(
        self,
        app: Holdfast,
        settings: Settings,
        ticks: Ticks,
        read_timeout_ms: int = READ_TIMEOUT_MS,
    ) -> None:
        gateway = Gateway(app, read_timeout_ms)
        self.app = app
        self.settings = settings
        self.jobs = JobAdmin(gateway)
        self.chains = ChainAdmin(gateway)
        self.dead_letters = DeadLetterAdmin(gateway)
        self.types = TypeAdmin(gateway)
        self.workers = WorkerAdmin(gateway)
        self.cycles = CycleAdmin(gateway)
        self.subscriptions = SubscriptionAdmin(gateway)
        self.audit = AuditLog(gateway)
        self.overview = Overviews(gateway, settings)
        self.outbox = LegacyStats(gateway, settings, ticks)
        self.tokens = TokenAdmin(gateway)
        self.doctor = DoctorAdmin(gateway, settings)
