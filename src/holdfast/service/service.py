"""The service: every noun's desk, put together once for a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.service.audit import AuditDesk
from holdfast.service.chains import ChainDesk
from holdfast.service.cycles import CycleDesk
from holdfast.service.dead import DeadDesk
from holdfast.service.desk import READ_TIMEOUT_MS, Desk
from holdfast.service.doctor import DoctorDesk
from holdfast.service.jobs import JobDesk
from holdfast.service.outbox import OutboxDesk, Ticks
from holdfast.service.overview import OverviewDesk
from holdfast.service.subscriptions import SubscriptionDesk
from holdfast.service.tokens import TokenDesk
from holdfast.service.types import TypeDesk
from holdfast.service.workers import WorkerDesk

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
