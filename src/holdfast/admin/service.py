"""The service: every noun's desk, put together once for a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.admin.audit import AuditDesk
from holdfast.admin.authorize import READ_TIMEOUT_MS, Desk
from holdfast.admin.chains import ChainDesk
from holdfast.admin.cycles import CycleDesk
from holdfast.admin.dead_letters import DeadDesk
from holdfast.admin.jobs import JobDesk
from holdfast.admin.legacy_stats import OutboxDesk, Ticks
from holdfast.admin.overview import DoctorDesk, OverviewDesk
from holdfast.admin.subscriptions import SubscriptionDesk
from holdfast.admin.tokens import TokenDesk
from holdfast.admin.types import TypeDesk
from holdfast.admin.workers import WorkerDesk

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.settings import Settings


class Service:
    """What can be asked and done, by noun; every call says who asks."""

    def __init__(
        self,
        app: Holdfast,
        settings: Settings,
        ticks: Ticks,
        read_timeout_ms: int = READ_TIMEOUT_MS,
    ) -> None:
        desk = Desk(app, read_timeout_ms)
        self.app = app
        self.settings = settings
        self.jobs = JobDesk(desk)
        self.chains = ChainDesk(desk)
        self.dead_letters = DeadDesk(desk)
        self.types = TypeDesk(desk)
        self.workers = WorkerDesk(desk)
        self.cycles = CycleDesk(desk)
        self.subscriptions = SubscriptionDesk(desk)
        self.audit = AuditDesk(desk)
        self.overview = OverviewDesk(desk, settings)
        self.outbox = OutboxDesk(desk, settings, ticks)
        self.tokens = TokenDesk(desk)
        self.doctor = DoctorDesk(desk, settings)
