"""Workers die with -9 before every step of every handler, on PostgreSQL; everything still happens once."""

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from uuid import UUID

import pytest
from apps.harness.books import open_books
from apps.invoicing.local.books import Books, Made, Place
from apps.invoicing.local.mail_server import MailServer, read_mailbox
from apps.invoicing.tests.conftest import TODAY, an_invoice, environment
from apps.invoicing.tests.test_emails import SEND
from apps.invoicing.tests.test_emails import ask as ask_for_email
from apps.invoicing.tests.test_pdf import RENDER
from apps.invoicing.tests.test_pdf import ask as ask_for_pdf
from sqlalchemy import Engine
from tests.support.dying import DyingProcesses

from holdfast import JobInfo
from holdfast_testing.kit import Kit
from invoicing.billing import InvoiceReady
from invoicing.database import Session
from invoicing.invoices import issue_invoice
from invoicing.models import Customer, Expense, Invoice, InvoiceLine, Tenant
from invoicing.taxes import ExpenseCreated
from invoicing.worker import jobs

pytestmark = pytest.mark.timeout(600)

CLASS_READY = "classes.invoice.ready_to_send/send_class_invoice"
SNAPSHOT = "expense.created/update_tax_snapshot"


@pytest.fixture
def url(migrated_postgres_url: str) -> str:
    """A real PostgreSQL."""
    return migrated_postgres_url


@pytest.fixture
async def workers(
    seeded: Kit, url: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[DyingProcesses]:
    """Workers that die, beside a mail server that stays."""
    server = MailServer(place / "mail")
    smtp = server.start()
    monkeypatch.setenv("INVOICING_MAIL", smtp)
    given = environment(url, INVOICING_FILES=str(place / "files"), INVOICING_MAIL=smtp)
    workers = DyingProcesses("apps.invoicing.tests.dying", url, place / "steps", given)
    yield workers
    workers.close()
    server.close()


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    """The application's tables, read from outside."""
    engine = open_books(url)
    yield engine
    engine.dispose()


async def new_invoice() -> Invoice:
    """Issue one more invoice."""
    known = await an_invoice()
    async with Session.begin() as session:
        tenant = await session.get_one(Tenant, known.tenant_id)
        customer = await session.get_one(Customer, known.customer_id)
        line = InvoiceLine(description="Advice", quantity=1, unit_price=5_000, tax_rate=1_900)
        return await issue_invoice(session, tenant, customer, [line], TODAY)


async def before_the_render(_: Kit) -> UUID:
    """Request an e-mail: its PDF has to be rendered first."""
    invoice = await new_invoice()
    await ask_for_email(invoice.id)
    return invoice.id


async def before_the_email(kit: Kit) -> UUID:
    """Request an e-mail whose PDF is there."""
    invoice = await new_invoice()
    await ask_for_pdf(invoice)
    await kit.run_until_idle_async()
    await ask_for_email(invoice.id)
    return invoice.id


async def before_the_class_invoice(_: Kit) -> UUID:
    """Say that an invoice for classes is ready."""
    invoice = await new_invoice()
    async with Session.begin() as session:
        await jobs.publish(session, "classes.invoice.ready_to_send", InvoiceReady(invoice.id))
    return invoice.id


async def before_the_snapshot(_: Kit) -> None:
    """Write an expense."""
    known = await an_invoice()
    async with Session.begin() as session:
        expense = Expense(
            tenant_id=known.tenant_id, description="Desk", spent_on=TODAY, net=700, tax=133
        )
        session.add(expense)
        await session.flush()
        await jobs.publish(session, "expense.created", ExpenseCreated(expense.id))


@pytest.mark.parametrize(
    ("type", "prepare", "seen"),
    [
        (RENDER, before_the_render, {"render", "put_once", "put_once done"}),
        (SEND, before_the_email, {"get", "send_message", "send_message done"}),
        (CLASS_READY, before_the_class_invoice, set()),
        (SNAPSHOT, before_the_snapshot, set()),
    ],
)
async def test_whichever_step_a_worker_dies_at_everything_happens_once(
    seeded: Kit,
    engine: Engine,
    place: Path,
    workers: DyingProcesses,
    type: str,
    prepare: Callable[[Kit], Awaitable[UUID | None]],
    seen: set[str],
) -> None:
    invoices: list[UUID] = []
    died_at: set[str] = set()
    for step in itertools.count(1):
        invoice = await prepare(seeded)
        invoices += [] if invoice is None else [invoice]
        steps = await workers.die(type, step, seeded._clock.ahead_us)
        await finish(seeded)
        again = is_sent_but_not_recorded(steps or [])
        died_in = {seeded.started(type)[-1].chain_id} if again else set()
        mailbox = {each["Message-ID"] for each in read_mailbox(place / "mail")}
        assert len(read_mailbox(place / "mail")) == len(mailbox) + again
        assert len(mailbox) == len(invoices)
        made = Made(invoices, [], died_in)
        assert Books(engine, jobs, Place(place / "files", place / "mail"), made).faults == []
        forget_repeats(place / "mail")
        if steps is None:
            break
        died_at.add(steps[-1])
    assert died_at >= {"statement", "commit", "committed"} | seen


def is_sent_but_not_recorded(steps: list[str]) -> bool:
    """Say whether the server took a message and the worker died before the commit that records it."""
    if "send_message done" not in steps:
        return False
    return "committed" not in steps[steps.index("send_message done") :]


def forget_repeats(mail: Path) -> None:
    """Keep one copy of each message, so that the next death is looked at alone."""
    known: set[str] = set()
    files = sorted(mail.glob("*.eml"))
    for file, message in zip(files, read_mailbox(mail), strict=True):
        if message["Message-ID"] in known:
            file.unlink()
        known.add(message["Message-ID"])


async def finish(kit: Kit) -> None:
    """Let the dead worker's lease end, and another worker do the rest; a busy machine may cost it a retry."""
    live: Sequence[JobInfo] = ()
    for turn in range(6):
        kit.advance("2m")
        await kit.run_until_idle_async()
        live = kit.app.jobs.list("state:pending,running,blocked").items
        if turn and not live:
            return
    assert live == ()
