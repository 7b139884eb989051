"""Whether every device got what it wants to hear of: the tables, the push service's log and the sources, compared."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from apps.harness.books import Fault
from apps.tenders.local.push_server import read_log
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from tenders.models import (
    Delivery,
    DeliveryStatus,
    Installation,
    NotificationEvent,
    Preference,
    RegisteredCode,
    Tender,
)
from tenders.sources.found import FoundTender

UNFINISHED = (DeliveryStatus.PENDING, DeliveryStatus.RETRYABLE, DeliveryStatus.SENT)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far tenders and deliveries are, by the application's tables."""

    tenders: int
    states: Counter[str]

    @property
    def open(self) -> int:
        """Deliveries that are not final."""
        return sum(self.states[each.value] for each in UNFINISHED)


def read_progress(engine: Engine, codes: Sequence[str]) -> Progress:
    """Count the tenders with these codes, and their deliveries by state."""
    with Session(engine) as session:
        mine = select(Tender.id).where(Tender.code.in_(codes))
        tenders = len(session.scalars(mine).all())
        deliveries = (
            select(Delivery.status)
            .join(NotificationEvent, NotificationEvent.id == Delivery.event_id)
            .where(NotificationEvent.tender_id.in_(mine))
        )
        return Progress(tenders, Counter(each.value for each in session.scalars(deliveries)))


def is_wanted_by(preference: Preference, tender: FoundTender) -> bool:
    """Return whether a preference asks for a tender; what the application does in SQL, said once more in Python."""
    chosen = (
        (preference.regions, tender.region),
        (preference.categories, tender.category),
        (preference.kinds, tender.kind),
    )
    if not preference.is_enabled or any(
        wanted is not None and code not in wanted for wanted, code in chosen
    ):
        return False
    least, most = preference.amount_min, preference.amount_max
    if tender.amount is None:
        return least is None and most is None
    return (least or 0) <= tender.amount <= (most or tender.amount)


class Books:
    """Compares; `faults` is what was found, `summary` says it in one line."""

    def __init__(self, engine: Engine, log: Path, listed: Sequence[FoundTender]) -> None:
        """Read everything; `listed` is what the sources know together."""
        self._listed = {each.code: each for each in listed}
        with Session(engine) as session:
            self._codes = Counter(session.scalars(select(RegisteredCode.code)))
            self._tenders = {each.id: each for each in session.scalars(select(Tender))}
            self._events = {each.id: each for each in session.scalars(select(NotificationEvent))}
            self._deliveries = list(session.scalars(select(Delivery)))
            self._devices = {each.id: each for each in session.scalars(select(Installation))}
            self._preferences = list(session.scalars(select(Preference)))
        self._pushes: Counter[tuple[str, str]] = Counter(
            (each.token, each.data["code"]) for each in read_log(log)
        )
        self.faults: list[Fault] = [
            *self._check_tenders(),
            *self._check_deliveries(),
            *self._check_pushes(),
        ]

    @property
    def summary(self) -> str:
        """What is there, and what is not."""
        kinds = Counter(each.kind for each in self.faults)
        again = self._pushes.total() - len(self._pushes)
        repeated = f" ({again} sent again, with the reason recorded)" if again else ""
        return (
            f"{len(self._listed)} tenders · {len(self._pushes)} pushes{repeated} · "
            f"{kinds['missing']} missing · {kinds['doubled']} doubled · {kinds['wrong']} wrong"
        )

    def _check_tenders(self) -> Iterator[Fault]:
        rows = Counter(each.code for each in self._tenders.values())
        for code in self._listed:
            if not rows[code] or not self._codes[code]:
                yield Fault("missing", f"tender {code} is not in the tables")
        for code, number in rows.items():
            if number > 1:
                yield Fault("doubled", f"tender {code} has {number} rows")

    def _check_deliveries(self) -> Iterator[Fault]:
        written = self._by_tender()
        for code, tender in self._listed.items():
            wanted = {
                each.installation_id for each in self._preferences if is_wanted_by(each, tender)
            }
            mine = {each.installation_id for each in written[code]}
            if wanted - mine:
                yield Fault("missing", f"{len(wanted - mine)} devices have no delivery of {code}")
            if mine - wanted:
                yield Fault("wrong", f"{len(mine - wanted)} devices did not ask for {code}")
            for each in written[code]:
                if each.status in UNFINISHED:
                    yield Fault("missing", f"delivery {each.id} is still {each.status.value}")

    def _check_pushes(self) -> Iterator[Fault]:
        expected: set[tuple[str, str]] = set()
        for code, deliveries in self._by_tender().items():
            for each in deliveries:
                push = (self._devices[each.installation_id].push_token, code)
                expected.add(push)
                yield from self._check_push(each, push)
        for token, code in self._pushes.keys() - expected:
            yield Fault("wrong", f"a push of {code} to {token} belongs to no delivery")

    def _check_push(self, delivery: Delivery, push: tuple[str, str]) -> Iterator[Fault]:
        number = self._pushes[push]
        if delivery.status is DeliveryStatus.OK and not number:
            yield Fault("missing", f"delivery {delivery.id} is ok, and nothing was pushed")
        if number > 1 and not (delivery.attempt_count >= number and delivery.last_error_code):
            yield Fault(
                "doubled", f"delivery {delivery.id} was pushed {number} times for no reason"
            )

    def _by_tender(self) -> dict[str, list[Delivery]]:
        found: dict[str, list[Delivery]] = defaultdict(list)
        for each in self._deliveries:
            code = self._code_of(self._events[each.event_id].tender_id)
            if code in self._listed:
                found[code].append(each)
        return found

    def _code_of(self, tender: UUID) -> str:
        row = self._tenders.get(tender)
        return "" if row is None else row.code
