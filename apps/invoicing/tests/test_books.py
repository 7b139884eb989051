"""The books find what is missing, doubled or wrong, each in the place where it happened."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from uuid import UUID

import pytest
from apps.harness.books import open_books
from apps.invoicing.local.books import Books, Made, Place
from apps.invoicing.local.mail_server import MailServer
from apps.invoicing.tests.conftest import an_invoice
from apps.invoicing.tests.test_emails import ask
from sqlalchemy import delete, update

from holdfast_testing.kit import Kit
from invoicing import pdf
from invoicing.database import Session
from invoicing.models import EmailDelivery, TaxSnapshot
from invoicing.worker import jobs

Check = Callable[..., set[tuple[str, str]]]


@pytest.fixture
async def sent(seeded: Kit, place: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[UUID]:
    """An invoice that was rendered and mailed to the mail server of `make invoicing`."""
    server = MailServer(place / "mail")
    monkeypatch.setenv("INVOICING_MAIL", server.start())
    invoice = await an_invoice()
    await ask(invoice.id)
    await seeded.run_until_idle_async()
    yield invoice.id
    server.close()


@pytest.fixture
def check(url: str, place: Path, sent: UUID) -> Check:
    """Compares everything; says of each fault what kind it is and how it begins."""

    def check(**changes: object) -> set[tuple[str, str]]:
        engine = open_books(url)
        made = Made(**{"invoices": [sent], "expenses": []} | changes)  # type: ignore[arg-type]
        books = Books(engine, jobs, Place(place / "files", place / "mail"), made)
        engine.dispose()
        for kind in ("missing", "doubled", "wrong"):
            count = sum(each.kind == kind for each in books.faults)
            assert f"{count} {kind}" in books.summary
        return {(each.kind, each.text.split()[0]) for each in books.faults}

    return check


def the_message(place: Path) -> Path:
    """Return the only message in the mailbox."""
    (message,) = (place / "mail").glob("*.eml")
    return message


def the_object(place: Path) -> Path:
    """Return the only PDF in the store."""
    (found,) = (place / "files").rglob("*.pdf")
    return found


def test_nothing_is_found_where_nothing_is_wrong(check: Check) -> None:
    assert check() == set()


def test_an_invoice_that_was_never_sent_is_missing_twice(check: Check) -> None:
    other = UUID(int=1)
    assert check(invoices=[other]) == {("missing", "invoice")}


def test_an_e_mail_that_did_not_arrive_is_missing(check: Check, place: Path) -> None:
    the_message(place).unlink()
    assert check() == {("missing", "no")}


def test_an_e_mail_that_arrived_twice_is_doubled_unless_its_worker_was_killed(
    check: Check, place: Path, kit: Kit
) -> None:
    message = the_message(place)
    message.with_name("99999.eml").write_bytes(message.read_bytes())
    assert check() == {("doubled", "message")}
    (chain,) = {each.chain_id for each in kit.started("invoice.email.requested")}
    assert check(interrupted={chain}) == set()
    message.with_name("99998.eml").write_bytes(message.read_bytes())
    assert check(interrupted={chain}) == {("doubled", "message")}


def test_an_e_mail_under_another_message_id_is_doubled(check: Check, place: Path) -> None:
    message = the_message(place)
    other = message.read_bytes().replace(b"Message-ID: <", b"Message-ID: <other-")
    message.with_name("99999.eml").write_bytes(other)
    assert check() == {("doubled", "message")}


def test_an_e_mail_with_another_attachment_is_wrong(check: Check, place: Path) -> None:
    message = the_message(place)
    message.write_bytes(message.read_bytes().replace(b"JVBERi0", b"JVBERi1"))
    assert check() == {("wrong", "message")}


def test_a_pdf_that_is_gone_is_missing(check: Check, place: Path) -> None:
    the_object(place).unlink()
    assert {kind for kind, _ in check()} == {"missing"}


def test_a_pdf_that_was_changed_is_wrong(check: Check, place: Path) -> None:
    found = the_object(place)
    found.write_bytes(found.read_bytes()[:-1] + b"!")
    assert {kind for kind, _ in check()} == {"wrong"}


def test_a_pdf_that_was_stored_twice_is_doubled(check: Check) -> None:
    pdf.file_store().put_once("elsewhere/again.pdf", b"%PDF-", "application/pdf")
    assert check() == {("doubled", "object")}


async def test_a_delivery_that_was_not_recorded_is_missing(check: Check) -> None:
    async with Session.begin() as session:
        await session.execute(delete(EmailDelivery))
    assert check() == {("missing", "invoice"), ("doubled", "message")}


async def test_a_snapshot_that_counts_an_expense_twice_is_wrong(check: Check) -> None:
    async with Session.begin() as session:
        await session.execute(update(TaxSnapshot).values(net=TaxSnapshot.net + 1))
    assert check() == {("wrong", "snapshot")}


async def test_an_expense_without_a_snapshot_is_missing(check: Check) -> None:
    async with Session.begin() as session:
        await session.execute(delete(TaxSnapshot))
    assert check() == {("missing", "snapshot")}


async def test_an_expense_that_the_table_does_not_know_is_missing(check: Check) -> None:
    assert check(expenses=[UUID(int=1)]) == {("missing", "there")}


async def test_jobs_that_are_left_or_dead_are_missing(check: Check, kit: Kit) -> None:
    async with Session.begin() as session:
        await jobs.publish(session, "expense.created", {"expense_id": UUID(int=1)})
    assert check() == {("missing", "expense.created/update_tax_snapshot")}
    await kit.run_until_idle_async()
    assert check() == {("missing", "expense.created/update_tax_snapshot")}
