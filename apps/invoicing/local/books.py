"""Whether everything happened once: the application's tables, the mailbox and the file store, compared."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path
from uuid import UUID

from apps.harness.books import Fault, Kind
from apps.invoicing.local.mail_server import read_mailbox
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session, joinedload, selectinload

from holdfast import Holdfast, HoldfastError
from holdfast_files import open_files
from invoicing.invoices import add_up
from invoicing.models import (
    DeliveryStatus,
    Document,
    EmailDelivery,
    Expense,
    File,
    Invoice,
    InvoiceStatus,
    Revenue,
    TaxSnapshot,
)
from invoicing.taxes import quarter_of


@dataclass(frozen=True, slots=True)
class Place:
    """Where the application keeps what it makes."""

    files: Path
    mail: Path


@dataclass(frozen=True, slots=True)
class Made:
    """What was asked of the API, and which chains a killed worker may have repeated."""

    invoices: Collection[UUID]
    expenses: Collection[UUID]
    interrupted: Collection[UUID] = ()


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the invoices are, by the application's tables."""

    ready: int
    sent: int
    failed: int


def read_progress(engine: Engine, invoices: Collection[UUID]) -> Progress:
    """Count the PDFs and the e-mails of some invoices."""
    with Session(engine) as session:
        documents = session.execute(select(Document.invoice_id, Document.file_id)).all()
        deliveries = session.execute(select(EmailDelivery.invoice_id, EmailDelivery.status)).all()
    mine = set(invoices)
    states = Counter(status for invoice, status in deliveries if invoice in mine)
    ready = sum(file is not None for invoice, file in documents if invoice in mine)
    return Progress(ready, states[DeliveryStatus.SENT], states[DeliveryStatus.FAILED])


class Books:
    """Compares; `faults` is what was found, `summary` says it in one line."""

    def __init__(self, engine: Engine, jobs: Holdfast, place: Place, made: Made) -> None:
        """Read everything."""
        self._made = made
        self._store = open_files(str(place.files))
        self._objects = [each.key for each in self._store.list()]
        self._messages: dict[str, list[EmailMessage]] = defaultdict(list)
        for message in read_mailbox(place.mail):
            self._messages[str(message["Message-ID"])].append(message)
        with Session(engine) as session:
            with_file = select(Document).options(joinedload(Document.file))
            self._documents = {each.invoice_id: each for each in session.scalars(with_file)}
            self._files = list(session.scalars(select(File)))
            self._deliveries = list(session.scalars(select(EmailDelivery)))
            self._expenses = list(session.scalars(select(Expense)))
            self._snapshots = list(session.scalars(select(TaxSnapshot)))
            with_lines = select(Invoice).options(selectinload(Invoice.lines))
            self._invoices = list(session.scalars(with_lines))
            self._revenue = list(session.scalars(select(Revenue)))
        self._left = jobs.jobs.list("state:pending,running,blocked").items
        self._dead = jobs.jobs.list("state:failed").items
        self.faults: list[Fault] = [
            *self._check_documents(),
            *self._check_objects(),
            *self._check_deliveries(),
            *self._check_messages(),
            *self._check_snapshots(),
            *self._check_revenue(),
            *self._check_jobs(),
        ]

    @property
    def summary(self) -> str:
        """What is there, and what is not."""
        kinds = Counter(each.kind for each in self.faults)
        accepted = sum(len(each) for each in self._messages.values())
        again = accepted - len(self._messages)
        repeated = f" ({again} accepted twice, same Message-ID, around the kill)" if again else ""
        return (
            f"{len(self._made.invoices)} invoices · {len(self._objects)} PDFs · "
            f"{len(self._messages)} e-mails{repeated} · {len(self._expenses)} expenses in "
            f"{len(self._snapshots)} snapshots · {kinds['missing']} missing · "
            f"{kinds['doubled']} doubled · {kinds['wrong']} wrong"
        )

    def _check_documents(self) -> Iterator[Fault]:
        for id in self._made.invoices:
            document = self._documents.get(id)
            if document is None or document.file is None:
                yield Fault("missing", f"invoice {id} has no PDF")

    def _check_objects(self) -> Iterator[Fault]:
        used = Counter(each.file_id for each in self._documents.values())
        for file in self._files:
            if used[file.id] != 1:
                yield Fault("doubled", f"file {file.key} belongs to {used[file.id]} documents")
            try:
                self._store.verify(file.key, sha256=file.sha256)
            except HoldfastError as error:
                yield Fault("missing" if file.key not in self._objects else "wrong", str(error))
        for key in set(self._objects) - {each.key for each in self._files}:
            yield Fault("doubled", f"object {key} belongs to no document")

    def _check_deliveries(self) -> Iterator[Fault]:
        sent = Counter(
            each.invoice_id
            for each in self._deliveries
            if each.purpose == "invoice" and each.status is DeliveryStatus.SENT
        )
        for id in self._made.invoices:
            if sent[id] != 1:
                kind: Kind = "missing" if sent[id] == 0 else "doubled"
                yield Fault(kind, f"invoice {id} was sent {sent[id]} times by its table")

    def _check_messages(self) -> Iterator[Fault]:
        known = {f"<{each.id}@": each for each in self._deliveries}
        seen: Counter[UUID] = Counter()
        for message_id, copies in self._messages.items():
            delivery = known.get(message_id.partition("@")[0] + "@")
            if delivery is None:
                yield Fault("doubled", f"message {message_id} belongs to no delivery")
                continue
            seen[delivery.id] += 1
            yield from self._check_copies(delivery, message_id, copies)
        for delivery in self._deliveries:
            if delivery.status is DeliveryStatus.SENT and not seen[delivery.id]:
                yield Fault("missing", f"no e-mail of delivery {delivery.id} arrived")

    def _check_copies(
        self, delivery: EmailDelivery, message_id: str, copies: list[EmailMessage]
    ) -> Iterator[Fault]:
        """A second copy is right only where a worker was killed between the sending and the recording."""
        allowed = 2 if delivery.chain_id in self._made.interrupted else 1
        if len(copies) > allowed:
            yield Fault("doubled", f"message {message_id} was accepted {len(copies)} times")
        file = self._documents[delivery.invoice_id].file
        for each in copies:
            if file is None or _attached(each) != [file.sha256]:
                yield Fault("wrong", f"message {message_id} does not carry the invoice's PDF")

    def _check_snapshots(self) -> Iterator[Fault]:
        sums: dict[tuple[UUID, str], tuple[int, int, int]] = {}
        for each in self._expenses:
            own = (each.tenant_id, quarter_of(each.spent_on))
            count, net, tax = sums.get(own, (0, 0, 0))
            sums[own] = (count + 1, net + each.net, tax + each.tax)
        shown = {
            (each.tenant_id, each.quarter): (each.expenses, each.net, each.tax)
            for each in self._snapshots
        }
        for own in sums.keys() | shown.keys():
            if sums.get(own) != shown.get(own):
                kind: Kind = "wrong" if own in shown else "missing"
                yield Fault(kind, f"snapshot {own[1]} has {shown.get(own)}, not {sums.get(own)}")
        for id in set(self._made.expenses) - {each.id for each in self._expenses}:
            yield Fault("missing", f"there is no expense {id}")

    def _check_revenue(self) -> Iterator[Fault]:
        sums: Counter[tuple[UUID, str, str]] = Counter()
        for each in self._invoices:
            gross, month = add_up(each.lines).gross, f"{each.issued_on:%Y-%m}"
            sums[each.tenant_id, month, "issued"] += gross
            sums[each.tenant_id, month, "paid"] += gross if each.status is InvoiceStatus.PAID else 0
        for row in self._revenue:
            sums[row.tenant_id, row.month, "issued"] -= row.issued
            sums[row.tenant_id, row.month, "paid"] -= row.paid
        for (tenant, month, word), cents in sums.items():
            if cents:
                kind: Kind = "missing" if cents > 0 else "doubled"
                yield Fault(kind, f"revenue {month} of {tenant}: {abs(cents)} cents {word}")

    def _check_jobs(self) -> Iterator[Fault]:
        for each in self._dead:
            yield Fault("missing", f"{each.type} {each.id} is a dead letter: {each.error}")
        for each in self._left:
            yield Fault("missing", f"{each.type} {each.id} is still {each.state}")


def _attached(message: EmailMessage) -> list[str]:
    """Return the checksum of each attachment."""
    parts = (each.get_payload(decode=True) for each in message.iter_attachments())
    return [hashlib.sha256(each).hexdigest() for each in parts if isinstance(each, bytes)]
