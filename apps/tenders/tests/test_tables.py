"""Tables, their migrations and the partitions of `tenders`."""

from datetime import UTC, datetime
from pathlib import Path

from alembic import command
from alembic.config import Config
from apps.tenders.tests.conftest import run_command
from apps.tenders.tests.pushing import add_deliveries, add_tender, deliveries
from sqlalchemy import delete, select, text

from holdfast_testing.kit import Kit
from tenders.database import Session, migrate_tables
from tenders.models import Delivery, Tender
from tenders.partitions import create_months

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


def configuration(url: str) -> Config:
    """Return Alembic's configuration for the application's migrations."""
    config = Config(attributes={"url": url})
    config.set_main_option("script_location", "tenders:migrations")
    return config


def test_the_migrations_make_the_tables_that_the_models_describe(empty_url: str) -> None:
    migrate_tables(empty_url)
    command.check(configuration(empty_url))


def test_the_migrations_can_be_undone_and_made_again(empty_url: str) -> None:
    config = configuration(empty_url)
    command.upgrade(config, "head")
    command.downgrade(config, "base")
    command.upgrade(config, "head")
    command.check(config)


async def test_a_time_comes_back_as_it_was_written(kit: Kit) -> None:
    moment = NOON.replace(microsecond=123_456)
    async with Session.begin() as session:
        await create_months(session, [moment])
        session.add(Tender(code="1-1-LE26", title="Papel", published_at=moment, sources="api"))
    async with Session() as session:
        tender = (await session.scalars(select(Tender))).one()
    assert tender.published_at == moment
    assert tender.closes_at is None


async def test_each_month_of_tenders_is_a_partition_on_postgresql(kit: Kit, url: str) -> None:
    moments = [NOON, NOON.replace(day=30), NOON.replace(year=2025, month=12)]
    for _ in range(2):
        async with Session.begin() as session:
            await create_months(session, moments)
    if url.startswith("sqlite"):
        return
    async with Session() as session:
        months = text("select relid::text from pg_partition_tree('tenders') where level = 1")
        assert sorted(await session.scalars(months)) == ["tenders_2025_12", "tenders_2026_11"]


async def test_the_command_migrates_and_can_be_repeated(empty_url: str, tmp_path: Path) -> None:
    for _ in range(2):
        code, _, err = await run_command(tmp_path, empty_url, "tenders", "migrate")
        assert code == 0, err


async def test_the_id_of_a_delivery_that_moved_away_is_not_given_again(kit: Kit) -> None:
    tender = await add_tender()
    await add_deliveries(tender, 2)
    known = {each.id for each in await deliveries()}
    async with Session.begin() as session:
        await session.execute(delete(Delivery))
    await add_deliveries(tender, 2)
    assert not known & {each.id for each in await deliveries()}
