"""What the API takes and returns, in camelCase. Money is whole cents, tax rates are basis points."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Self
from uuid import UUID

from fastapi import HTTPException
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from holdfast import Shard
from invoicing.invoices import add_up
from invoicing.models import DeliveryStatus, DocumentStatus, DunningStatus, Invoice, InvoiceStatus

Cents = Annotated[int, Field(ge=0, le=1_000_000_00)]
Words = Annotated[str, Field(min_length=1, max_length=200)]


def _possible_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise HTTPException(404, "no such invoice") from None


InvoiceId = Annotated[UUID, BeforeValidator(_possible_id)]
"""In a path: what cannot be an id is an invoice that does not exist, so that 422 is left for what failed."""


class Schema(BaseModel):
    """Reads models by attribute and JSON by camelCase; unknown fields are an error."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, from_attributes=True, extra="forbid"
    )


class NewLine(Schema):
    """A line of a new invoice."""

    description: Words
    quantity: Annotated[int, Field(ge=1, le=100_000)]
    unit_price: Cents
    tax_rate: Annotated[int, Field(ge=0, le=10_000)]


class NewInvoice(Schema):
    """An invoice to be issued today."""

    customer_id: UUID
    due_on: date | None = None
    lines: Annotated[list[NewLine], Field(min_length=1, max_length=200)]


class NewExpense(Schema):
    """An expense and the tax in it."""

    description: Words
    spent_on: date
    net: Cents
    tax: Cents


class CustomerView(Schema):
    """A customer."""

    id: UUID
    name: str
    email: str


class DeliveryView(Schema):
    """An e-mail about an invoice."""

    id: UUID
    purpose: str
    recipient: str
    status: DeliveryStatus
    error: str | None
    sent_at: datetime | None
    chain_id: UUID | None


class DocumentView(Schema):
    """The PDF of an invoice."""

    status: DocumentStatus
    error: str | None
    chain_id: UUID | None


class LineView(Schema):
    """A line of an invoice."""

    description: str
    quantity: int
    unit_price: int
    tax_rate: int
    net: int


class InvoiceView(Schema):
    """An invoice with what became of it."""

    id: UUID
    number: str
    customer: CustomerView
    issued_on: date
    due_on: date
    status: InvoiceStatus
    currency: str
    net: int
    tax: int
    gross: int
    lines: list[LineView]
    document: DocumentView
    deliveries: list[DeliveryView]


def show_invoice(invoice: Invoice) -> InvoiceView:
    """Return an invoice as the API shows it."""
    totals = add_up(invoice.lines)
    return InvoiceView(
        id=invoice.id,
        number=invoice.number,
        customer=CustomerView.model_validate(invoice.customer),
        issued_on=invoice.issued_on,
        due_on=invoice.due_on,
        status=invoice.status,
        currency=invoice.tenant.currency,
        net=totals.net,
        tax=totals.tax,
        gross=totals.gross,
        lines=[LineView.model_validate(each) for each in invoice.lines],
        document=DocumentView.model_validate(invoice.document),
        deliveries=[DeliveryView.model_validate(each) for each in invoice.deliveries],
    )


class DunningView(Schema):
    """How far the dunning of an invoice is."""

    status: DunningStatus
    level: int
    chain_id: UUID


class RevenueView(Schema):
    """What was issued in a month, and how much of it was paid, in cents."""

    month: str
    issued: int
    paid: int


class ExpenseView(NewExpense):
    """An expense as it was written."""

    id: UUID


class SnapshotView(Schema):
    """What was spent in a quarter."""

    quarter: str
    expenses: int
    net: int
    tax: int


class ShardView(Schema):
    """A part of the tenants."""

    index: Annotated[int, Field(ge=0)] = 0
    count: Annotated[int, Field(ge=1)] = 1

    @model_validator(mode="after")
    def check(self) -> Self:
        """Refuse a part that does not exist."""
        if self.index >= self.count:
            raise ValueError(f"there is no shard {self.index} of {self.count}")
        return self


class RunRequest(Schema):
    """What a cycle asks for: the day, how many items at most, and which part of the tenants."""

    on: date
    max_items: Annotated[int, Field(ge=1)] = 200
    shard: ShardView = ShardView()

    @property
    def part(self) -> Shard:
        """The part of the tenants."""
        return Shard(self.shard.index, self.shard.count)


class ReminderReport(Schema):
    """What a run of reminders did."""

    reminded: int


class BillingReport(Schema):
    """What a run of the billing did."""

    tenants: int
    invoices: int
