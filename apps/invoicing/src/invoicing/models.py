"""The tables. Money is whole cents, tax rates are basis points (1900 is 19 %)."""

from __future__ import annotations

from datetime import UTC, date, datetime
from enum import StrEnum
from typing import Any, ClassVar
from uuid import UUID, uuid4

from sqlalchemy import (
    DateTime,
    Dialect,
    Enum,
    ForeignKey,
    MetaData,
    TypeDecorator,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship


class UtcDateTime(TypeDecorator[datetime]):
    """A point in time. SQLite has no time zones, so it keeps UTC without saying so."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return the time as UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Base(DeclarativeBase):
    """The application's tables, with constraint names that Alembic can find again."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(column_0_label)s",
            "uq": "uq_%(table_name)s_%(column_0_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        datetime: UtcDateTime,
        StrEnum: Enum(StrEnum, native_enum=False, length=16),
    }


class InvoiceStatus(StrEnum):
    """Whether an invoice still has to be paid."""

    OPEN = "OPEN"
    PAID = "PAID"


class DocumentStatus(StrEnum):
    """How far a document is; FAILED only when no attempt is left."""

    PENDING = "PENDING"
    READY = "READY"
    FAILED = "FAILED"


class DeliveryStatus(StrEnum):
    """How far an e-mail is; FAILED only when no attempt is left."""

    PENDING = "PENDING"
    SENT = "SENT"
    FAILED = "FAILED"


class DunningStatus(StrEnum):
    """How the dunning of an invoice ended."""

    RUNNING = "RUNNING"
    PAID = "PAID"
    HANDED_OVER = "HANDED_OVER"


def _now() -> datetime:
    return datetime.now(UTC)


class Tenant(Base):
    """A business that writes invoices. Of its API token only the SHA-256 is kept."""

    __tablename__ = "tenants"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    name: Mapped[str]
    address: Mapped[str]
    tax_id: Mapped[str]
    iban: Mapped[str]
    currency: Mapped[str] = mapped_column(default="EUR")
    logo_svg: Mapped[str]
    color: Mapped[str] = mapped_column(default="#1f2937")
    token_sha256: Mapped[str] = mapped_column(unique=True)
    invoices_numbered: Mapped[int] = mapped_column(default=0)


class Customer(Base):
    """Who an invoice is sent to."""

    __tablename__ = "customers"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    tenant_id: Mapped[UUID] = mapped_column(ForeignKey("tenants.id"), index=True)
    name: Mapped[str]
    email: Mapped[str]
    address: Mapped[str]


class Invoice(Base):
    """An invoice as it was issued; it never changes after that, except that it gets paid."""

    __tablename__ = "invoices"
    __table_args__ = (UniqueConstraint("tenant_id", "number"),)

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    tenant_id: Mapped[UUID] = mapped_column(ForeignKey("tenants.id"))
    customer_id: Mapped[UUID] = mapped_column(ForeignKey("customers.id"), index=True)
    number: Mapped[str]
    issued_on: Mapped[date]
    due_on: Mapped[date] = mapped_column(index=True)
    status: Mapped[InvoiceStatus] = mapped_column(default=InvoiceStatus.OPEN)
    created_at: Mapped[datetime] = mapped_column(default=_now)

    tenant: Mapped[Tenant] = relationship(lazy="raise")
    customer: Mapped[Customer] = relationship(lazy="raise")
    lines: Mapped[list[InvoiceLine]] = relationship(
        lazy="raise", order_by="InvoiceLine.position", cascade="all, delete-orphan"
    )
    document: Mapped[Document] = relationship(lazy="raise", back_populates="invoice")
    deliveries: Mapped[list[EmailDelivery]] = relationship(
        lazy="raise", back_populates="invoice", order_by="EmailDelivery.created_at"
    )


class InvoiceLine(Base):
    """One position of an invoice."""

    __tablename__ = "invoice_lines"

    invoice_id: Mapped[UUID] = mapped_column(ForeignKey("invoices.id"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    description: Mapped[str]
    quantity: Mapped[int]
    unit_price: Mapped[int]
    tax_rate: Mapped[int]

    @property
    def net(self) -> int:
        """The line without tax."""
        return self.quantity * self.unit_price


class File(Base):
    """An object in the file store."""

    __tablename__ = "files"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    tenant_id: Mapped[UUID] = mapped_column(ForeignKey("tenants.id"), index=True)
    key: Mapped[str] = mapped_column(unique=True)
    content_type: Mapped[str]
    size: Mapped[int]
    sha256: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(default=_now)


class Document(Base):
    """The PDF of an invoice: requested, then ready with its file, or failed."""

    __tablename__ = "documents"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    tenant_id: Mapped[UUID] = mapped_column(ForeignKey("tenants.id"), index=True)
    invoice_id: Mapped[UUID] = mapped_column(ForeignKey("invoices.id"), unique=True)
    status: Mapped[DocumentStatus] = mapped_column(default=DocumentStatus.PENDING)
    chain_id: Mapped[UUID | None]
    file_id: Mapped[UUID | None] = mapped_column(ForeignKey("files.id"))
    error: Mapped[str | None]

    invoice: Mapped[Invoice] = relationship(lazy="raise", back_populates="document")
    file: Mapped[File | None] = relationship(lazy="raise")


class EmailDelivery(Base):
    """One e-mail about an invoice; its key says what it is for, so that it exists once."""

    __tablename__ = "email_deliveries"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    tenant_id: Mapped[UUID] = mapped_column(ForeignKey("tenants.id"), index=True)
    invoice_id: Mapped[UUID] = mapped_column(ForeignKey("invoices.id"), index=True)
    idempotency_key: Mapped[str] = mapped_column(unique=True)
    purpose: Mapped[str]
    recipient: Mapped[str]
    status: Mapped[DeliveryStatus] = mapped_column(default=DeliveryStatus.PENDING)
    chain_id: Mapped[UUID | None]
    error: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(default=_now)
    sent_at: Mapped[datetime | None]

    invoice: Mapped[Invoice] = relationship(lazy="raise", back_populates="deliveries")


class Reminder(Base):
    """How often a customer was reminded of an invoice, and when last."""

    __tablename__ = "reminders"

    invoice_id: Mapped[UUID] = mapped_column(ForeignKey("invoices.id"), primary_key=True)
    level: Mapped[int]
    reminded_on: Mapped[date]


class Dunning(Base):
    """The dunning of an invoice: how often its customer was reminded, and how it ended."""

    __tablename__ = "dunnings"

    invoice_id: Mapped[UUID] = mapped_column(ForeignKey("invoices.id"), primary_key=True)
    chain_id: Mapped[UUID]
    status: Mapped[DunningStatus] = mapped_column(default=DunningStatus.RUNNING)
    level: Mapped[int] = mapped_column(default=0)
    reminded_at: Mapped[datetime | None]


class Expense(Base):
    """Something a tenant paid for; the tax in it is counted against the tax it owes."""

    __tablename__ = "expenses"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    tenant_id: Mapped[UUID] = mapped_column(ForeignKey("tenants.id"), index=True)
    description: Mapped[str]
    spent_on: Mapped[date]
    net: Mapped[int]
    tax: Mapped[int]


class TaxSnapshot(Base):
    """What a tenant spent in a quarter; one row per tenant and quarter, computed from the expenses."""

    __tablename__ = "tax_snapshots"

    tenant_id: Mapped[UUID] = mapped_column(ForeignKey("tenants.id"), primary_key=True)
    quarter: Mapped[str] = mapped_column(primary_key=True)
    expenses: Mapped[int] = mapped_column(default=0)
    net: Mapped[int] = mapped_column(default=0)
    tax: Mapped[int] = mapped_column(default=0)


class Revenue(Base):
    """What a tenant issued in a month, and how much of it was paid; added up from events."""

    __tablename__ = "revenue"

    tenant_id: Mapped[UUID] = mapped_column(ForeignKey("tenants.id"), primary_key=True)
    month: Mapped[str] = mapped_column(primary_key=True)
    issued: Mapped[int] = mapped_column(default=0)
    paid: Mapped[int] = mapped_column(default=0)


class Course(Base):
    """A class that is taught every month until it ends."""

    __tablename__ = "classes"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    tenant_id: Mapped[UUID] = mapped_column(ForeignKey("tenants.id"), index=True)
    title: Mapped[str]
    monthly_price: Mapped[int]
    tax_rate: Mapped[int]
    starts_on: Mapped[date]
    ends_on: Mapped[date | None]

    enrolments: Mapped[list[Enrolment]] = relationship(lazy="raise", back_populates="course")


class Enrolment(Base):
    """A customer who takes part in a class."""

    __tablename__ = "class_enrolments"

    class_id: Mapped[UUID] = mapped_column(ForeignKey("classes.id"), primary_key=True)
    customer_id: Mapped[UUID] = mapped_column(ForeignKey("customers.id"), primary_key=True)

    course: Mapped[Course] = relationship(lazy="raise", back_populates="enrolments")
    customer: Mapped[Customer] = relationship(lazy="raise")


class BillingRun(Base):
    """A month of classes that was billed; each tenant's month is billed once."""

    __tablename__ = "class_billing_runs"

    tenant_id: Mapped[UUID] = mapped_column(ForeignKey("tenants.id"), primary_key=True)
    month: Mapped[str] = mapped_column(primary_key=True)
    invoices: Mapped[int]
    finished_at: Mapped[datetime] = mapped_column(default=_now)
