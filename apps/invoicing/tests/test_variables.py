"""Every variable in the worker's configuration reference has its effect in this application."""

import json
import threading
from pathlib import Path

import pytest
from apps.invoicing.tests.conftest import SOURCE, run_command
from apps.invoicing.tests.test_pdf import RENDER
from sqlalchemy import select
from sqlalchemy.orm import joinedload
from tests.settings.test_every_setting import OBSERVATIONS

from holdfast_testing.kit import Kit
from invoicing import pdf
from invoicing.database import Session
from invoicing.models import Invoice
from invoicing.pdf import request_pdf

SHOWN = {
    "WORKER_TICK_RUNNERS": "outbox,invoiceReminders",
    "WORKER_TICK_OVERALL_MAX_MS": "480001",
    "WORKER_TICK_RUNNER_MAX_MS": "60001",
    "WORKER_TICK_RUNNER_MAX_ITEMS": "201",
    "WORKER_TICK_SHARD_INDEX": "1",
    "WORKER_TICK_SHARD_COUNT": "2",
    "WORKER_BUSY_LOOP_DELAY_MS": "251",
    "WORKER_IDLE_BACKOFF_MIN_MS": "1001",
    "WORKER_IDLE_BACKOFF_MAX_MS": "30001",
    "WORKER_IDLE_BACKOFF_JITTER_MS": "501",
    "WORKER_TICK_LOOP_ERROR_BACKOFF_MS": "30001",
    "WORKER_TICK_LOOP_MAX_JITTER_MS": "2001",
    "WORKER_SHUTDOWN_TIMEOUT_MS": "30001",
    "WORKER_API_BASE_URL": "http://127.0.0.1:9",
    "OUTBOX_BATCH_SIZE": "51",
    "OUTBOX_CONCURRENCY": "11",
    "PDF_RENDER_CONCURRENCY": "3",
    "OUTBOX_LEASE_DURATION_MS": "60001",
    "OUTBOX_LEASE_HEARTBEAT_MS": "15001",
    "OUTBOX_MAX_ATTEMPTS": "4",
    "OUTBOX_RETRY_BASE_MS": "5001",
    "OUTBOX_RETRY_MAX_MS": "120001",
    "OUTBOX_RETRY_JITTER_MS": "501",
    "INVOICE_REMINDERS_CRON": "0 8 * * mon",
    "INVOICE_REMINDERS_TIME_ZONE": "Asia/Tokyo",
    "CLASSES_BILLING_CRON": "0 7 1 * *",
    "CLASSES_BILLING_TIME_ZONE": "America/Lima",
}
OWN = {name for name in SHOWN if name.startswith(("PDF_", "INVOICE_", "CLASSES_"))}


async def test_the_application_takes_every_variable(sqlite_url: str, tmp_path: Path) -> None:
    secret = {"WORKER_API_SERVICE_TOKEN": "hush, hush, hush"}
    command = ("holdfast", "config", "show", "invoicing.worker:jobs", "--origin", "-o", "json")
    code, out, err = await run_command(tmp_path, sqlite_url, *command, **SHOWN, **secret)
    assert code == 0, err
    shown = {each["name"]: each for each in json.loads(out)}
    for name, value in SHOWN.items():
        assert str(shown[name]["value"]) == value
        assert shown[name]["origin"].startswith("env")
    assert "hush" not in out


async def test_the_application_comes_with_its_settings(sqlite_url: str) -> None:
    command = ("holdfast", "config", "show", "--origin", "-o", "json")
    code, out, err = await run_command(SOURCE.parent, sqlite_url, *command)
    assert code == 0, err
    shown = {each["name"]: each for each in json.loads(out)}
    found = shown["HOLDFAST_UNHANDLED_AFTER_MS"]
    assert (str(found["value"]), found["origin"]) == ("60000", "holdfast.toml")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("INVOICING_MAIL", "smpt://billing:hush-hush@mail.example:587"),
        ("INVOICING_MAIL", "smtp:mail.example"),
        ("INVOICING_MAIL", "smtp://billing:hush-hush@"),
        ("INVOICING_MAIL", "smtp://mail.example:99999"),
        ("INVOICING_MAIL", "file://mail/out"),
        ("INVOICING_MAIL_FROM", "billing"),
        ("INVOICING_FILES", "s4://invoices"),
        ("INVOICING_FILES", "s3:invoices"),
        ("INVOICING_FILES_SECRET", "hush-hush"),
    ],
)
async def test_a_value_that_cannot_work_is_refused_before_anything_runs(
    sqlite_url: str, tmp_path: Path, name: str, value: str
) -> None:
    command = ("holdfast", "config", "show", "invoicing.worker:jobs")
    code, out, err = await run_command(tmp_path, sqlite_url, *command, **{name: value})
    assert (code, out) == (2, "")
    assert "HF010" in err
    assert name in err
    assert "hush" not in err


@pytest.mark.parametrize("name", sorted(SHOWN.keys() - OWN))
def test_a_variable_of_the_product_is_observed_in_something_that_runs(name: str) -> None:
    assert name in OBSERVATIONS


@pytest.mark.parametrize(
    ("name", "value", "attribute"),
    [
        ("OUTBOX_MAX_ATTEMPTS", "7", "max_attempts"),
        ("OUTBOX_RETRY_BASE_MS", "700", "base_ms"),
        ("OUTBOX_RETRY_MAX_MS", "70000", "cap_ms"),
        ("OUTBOX_RETRY_JITTER_MS", "70", "jitter_ms"),
    ],
)
async def test_retries_of_pdfs_and_e_mails_follow_the_outbox(
    sqlite_url: str, tmp_path: Path, name: str, value: str, attribute: str
) -> None:
    (tmp_path / "look.py").write_text(
        "from invoicing.worker import jobs\n"
        "for name in ('invoice.pdf.render.requested', 'invoice.email.requested'):\n"
        f"    print(jobs.registry.get(name).retry.{attribute})\n"
    )
    code, out, err = await run_command(tmp_path, sqlite_url, "look", **{name: value})
    assert code == 0, err
    assert out.split() == [value, value]


class Oven:
    """Renders slowly, and counts how many renders run at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = 0
        self.peak = 0

    def render(self, invoice: Invoice) -> bytes:
        with self._lock:
            self._now += 1
            self.peak = max(self.peak, self._now)
        threading.Event().wait(0.3)
        with self._lock:
            self._now -= 1
        return b"%PDF-1.7 " + str(invoice.id).encode()


async def test_two_pdfs_are_rendered_at_a_time(
    seeded: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    oven = Oven()
    monkeypatch.setattr(pdf, "render", oven.render)
    async with Session.begin() as session:
        for invoice in await session.scalars(select(Invoice).options(joinedload(Invoice.document))):
            await request_pdf(session, invoice.document)
    await seeded.run_until_idle_async()
    assert {each.state for each in seeded.started(RENDER)} == {"completed"}
    assert oven.peak == 2
