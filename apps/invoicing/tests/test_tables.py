"""Tables, migrations and the data of a first look."""

from collections import Counter
from pathlib import Path

from alembic import command
from alembic.config import Config
from apps.invoicing.tests.conftest import TODAY, run_command
from sqlalchemy import func, select
from sqlalchemy.orm import selectinload

from holdfast_testing.kit import Kit
from invoicing.database import Session, migrate_tables
from invoicing.invoices import add_up
from invoicing.models import Customer, Invoice, InvoiceLine, TaxSnapshot, Tenant
from invoicing.seed import BUSINESSES, seed


def test_the_migrations_make_the_tables_that_the_models_describe(empty_url: str) -> None:
    migrate_tables(empty_url)
    config = Config(attributes={"url": empty_url})
    config.set_main_option("script_location", "invoicing:migrations")
    command.check(config)


def test_the_migrations_can_be_undone_and_made_again(empty_url: str) -> None:
    config = Config(attributes={"url": empty_url})
    config.set_main_option("script_location", "invoicing:migrations")
    command.upgrade(config, "head")
    command.downgrade(config, "base")
    command.upgrade(config, "head")
    command.check(config)


async def test_the_seed_is_written_once(seeded: Kit) -> None:
    async with Session.begin() as session:
        assert await seed(session, TODAY) == 0
        assert await session.scalar(select(func.count()).select_from(Tenant)) == len(BUSINESSES)


async def test_every_tenant_numbers_its_own_invoices_without_gaps(seeded: Kit) -> None:
    async with Session() as session:
        for tenant in await session.scalars(select(Tenant)):
            mine = select(Invoice.number).where(Invoice.tenant_id == tenant.id)
            numbers = [number.split("-")[1] for number in await session.scalars(mine)]
            assert sorted(numbers) == [f"{each:05}" for each in range(1, len(numbers) + 1)]


async def test_an_invoice_belongs_to_a_customer_of_its_tenant(seeded: Kit) -> None:
    async with Session() as session:
        wanted = select(Invoice.tenant_id, Customer.tenant_id).join(Invoice.customer)
        for issuer, owner in (await session.execute(wanted)).tuples():
            assert issuer == owner


async def test_seeded_expenses_are_in_the_tax_snapshots(seeded: Kit) -> None:
    await seeded.run_until_idle_async()
    async with Session() as session:
        counts: Counter[str] = Counter()
        for snapshot in await session.scalars(select(TaxSnapshot)):
            counts[str(snapshot.tenant_id)] += snapshot.expenses
    assert list(counts.values()) == [len(each.costs) for each in BUSINESSES]


async def test_tax_is_rounded_once_per_rate(seeded: Kit) -> None:
    lines = [
        InvoiceLine(quantity=1, unit_price=1_05, tax_rate=1900),
        InvoiceLine(quantity=1, unit_price=1_05, tax_rate=1900),
        InvoiceLine(quantity=3, unit_price=9_99, tax_rate=700),
    ]
    totals = add_up(lines)
    assert (totals.net, totals.taxes, totals.gross) == (32_07, {700: 2_10, 1900: 40}, 34_57)
    async with Session() as session:
        invoice = await session.scalar(select(Invoice).options(selectinload(Invoice.lines)))
        assert invoice is not None
        assert add_up(invoice.lines).gross > add_up(invoice.lines).net > 0


async def test_the_command_migrates_seeds_and_can_be_repeated(empty_url: str, place: Path) -> None:
    for _ in range(2):
        code, out, err = await run_command(place, empty_url, "invoicing", "seed", "--invoices", "2")
        assert code == 0, err
        tokens = [line.split("\t")[0] for line in out.splitlines()]
        assert tokens == [each.token for each in BUSINESSES]
    assert "0 of 3 businesses are new" in err
