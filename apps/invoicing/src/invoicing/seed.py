"""Data that looks real: three small businesses with customers, invoices, expenses and classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from random import Random

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from invoicing.invoices import add_up, issue_invoice
from invoicing.jobs import jobs
from invoicing.models import (
    Course,
    Customer,
    Enrolment,
    Expense,
    Invoice,
    InvoiceLine,
    InvoiceStatus,
    Tenant,
)
from invoicing.revenue import book_paid
from invoicing.taxes import ExpenseCreated
from invoicing.tenants import hash_token


@dataclass(frozen=True, slots=True)
class Business:
    """What a tenant is made from; its token is good for a first look and nothing else."""

    name: str
    token: str
    address: str
    tax_id: str
    iban: str
    currency: str
    color: str
    letters: str
    tax_rate: int
    offers: tuple[tuple[str, int], ...]
    costs: tuple[str, ...]
    classes: tuple[tuple[str, int], ...] = ()


BUSINESSES = (
    Business(
        name="Nordlicht Studio",
        token="nordlicht-demo",
        address="Kastanienallee 42\n10435 Berlin\nGermany",
        tax_id="DE 298 447 102",
        iban="DE02 1203 0000 0000 2020 51",
        currency="EUR",
        color="#0f766e",
        letters="N",
        tax_rate=1900,
        offers=(
            ("Brand workshop, half a day", 68_000),
            ("Logo design, three drafts", 145_000),
            ("Typesetting, per page", 2_450),
            ("Web fonts, yearly licence", 9_900),
            ("Print supervision, per hour", 9_500),
        ),
        costs=("Paper samples", "Font licences", "Train to Hamburg", "Studio rent"),
    ),
    Business(
        name="Harbour & Pike Joinery",
        token="harbour-demo",
        address="7 Quayside Yard\nBristol BS1 6XN\nUnited Kingdom",
        tax_id="GB 417 9021 66",
        iban="GB33 BUKB 2020 1555 5555 55",
        currency="GBP",
        color="#9a3412",
        letters="HP",
        tax_rate=2000,
        offers=(
            ("Oak shelving, fitted", 84_000),
            ("Sash window repair", 31_500),
            ("Joiner, per hour", 4_800),
            ("Skirting board, per metre", 1_250),
            ("Delivery within Bristol", 3_500),
        ),
        costs=("Oak, kiln dried", "Saw blades", "Van service", "Workshop electricity"),
    ),
    Business(
        name="Escuela Mar Azul",
        token="marazul-demo",
        address="Carrer de la Pau 18\n46002 València\nSpain",
        tax_id="ES B9821 4470",
        iban="ES91 2100 0418 4502 0005 1332",
        currency="EUR",
        color="#1d4ed8",
        letters="MA",
        tax_rate=2100,
        offers=(
            ("Private lesson, 60 minutes", 4_200),
            ("Exam preparation, ten lessons", 36_000),
            ("Course book", 2_890),
            ("Placement test", 2_500),
        ),
        costs=("Course books", "Classroom rent", "Whiteboard markers", "Coffee"),
        classes=(
            ("Spanish A1, Mondays 18:00", 8_900),
            ("Spanish B2, Wednesdays 19:30", 9_900),
            ("Guitar for beginners, Saturdays", 7_500),
        ),
    ),
)

FIRST = ("Ana", "Ben", "Carla", "Dmitri", "Elif", "Frida", "Goran", "Hanna", "Ines", "Jonas")
LAST = ("Moreno", "Whitfield", "Okafor", "Lindqvist", "Yılmaz", "Baumann", "Costa", "Novák")
STREETS = ("High Street", "Lindenweg", "Calle Mayor", "Rue du Port", "Mill Lane", "Hafenstraße")
TOWNS = ("1012 Amsterdam", "4051 Basel", "8001 Zürich", "28013 Madrid", "50667 Köln", "Bath BA1")


async def seed(session: AsyncSession, today: date, invoices: int = 8, customers: int = 6) -> int:
    """Write the businesses with everything they have; return how many were new."""
    random = Random(20261116)  # the same names and amounts each time
    new = 0
    for business in BUSINESSES:
        digest = hash_token(business.token)
        if await session.scalar(select(Tenant.id).where(Tenant.token_sha256 == digest)):
            continue
        await _write_business(session, business, today, random, invoices, customers)
        new += 1
    return new


async def _write_business(
    session: AsyncSession,
    business: Business,
    today: date,
    random: Random,
    invoices: int,
    customers: int,
) -> None:
    tenant = Tenant(
        name=business.name,
        address=business.address,
        tax_id=business.tax_id,
        iban=business.iban,
        currency=business.currency,
        color=business.color,
        logo_svg=draw_logo(business.letters, business.color),
        token_sha256=hash_token(business.token),
    )
    session.add(tenant)
    await session.flush()
    people = [_customer(tenant, random) for _ in range(customers)]
    session.add_all(people)
    for number in range(invoices):
        invoice = await _write_invoice(session, tenant, business, people, today, random)
        if number % 3 == 0:
            invoice.status = InvoiceStatus.PAID
            await book_paid(session, tenant.id, invoice.issued_on, add_up(invoice.lines).gross)
    await _write_expenses(session, tenant, business, today, random)
    session.add_all(_classes(tenant, business, people, today))


def _customer(tenant: Tenant, random: Random) -> Customer:
    first, last = random.choice(FIRST), random.choice(LAST)
    return Customer(
        tenant_id=tenant.id,
        name=f"{first} {last}",
        email=f"{first}.{last}@customers.example".lower().replace("ı", "i").replace("á", "a"),
        address=f"{random.choice(STREETS)} {random.randint(1, 180)}\n{random.choice(TOWNS)}",
    )


async def _write_invoice(
    session: AsyncSession,
    tenant: Tenant,
    business: Business,
    people: Sequence[Customer],
    today: date,
    random: Random,
) -> Invoice:
    lines = [
        InvoiceLine(
            description=description,
            quantity=random.choice((1, 1, 2, 4, 12)),
            unit_price=price,
            tax_rate=business.tax_rate,
        )
        for description, price in random.sample(business.offers, random.randint(1, 4))
    ]
    issued_on = today - timedelta(days=random.randint(0, 45))
    return await issue_invoice(session, tenant, random.choice(people), lines, issued_on)


async def _write_expenses(
    session: AsyncSession, tenant: Tenant, business: Business, today: date, random: Random
) -> None:
    for description in business.costs:
        net = random.randint(1_500, 90_000)
        expense = Expense(
            tenant_id=tenant.id,
            description=description,
            spent_on=today - timedelta(days=random.randint(0, 120)),
            net=net,
            tax=net * business.tax_rate // 10_000,
        )
        session.add(expense)
        await session.flush()
        await jobs.publish(session, "expense.created", ExpenseCreated(expense.id))


def _classes(
    tenant: Tenant, business: Business, people: Sequence[Customer], today: date
) -> list[Course]:
    return [
        Course(
            tenant_id=tenant.id,
            title=title,
            monthly_price=price,
            tax_rate=business.tax_rate,
            starts_on=today.replace(day=1) - timedelta(days=60),
            enrolments=[Enrolment(customer=person) for person in people[position::2]],
        )
        for position, (title, price) in enumerate(business.classes)
    ]


def draw_logo(letters: str, color: str) -> str:
    """Draw a logo without letters' fonts: rings whose number and place come from the letters."""
    rings = "".join(
        f'<circle cx="{30 + 22 * place}" cy="30" r="{24 - 5 * place}" fill="none" '
        f'stroke="{color}" stroke-width="{7 - place}" opacity="{1 - 0.25 * place}"/>'
        for place in range(len(letters) + 1)
    )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 60">'
        f'{rings}<rect x="2" y="54" width="96" height="4" rx="2" fill="{color}"/></svg>'
    )
