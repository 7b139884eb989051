"""`make invoicing`: it tells the truth about a killed worker, finds careless handlers, and leaves nothing running."""

import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import psutil
import pytest
from apps.invoicing.tests.conftest import environment
from tests.e2e.local_site import read_addresses
from tests.support.until import PATIENCE_S

pytestmark = pytest.mark.timeout(600)

STORY = ("-m", "apps.invoicing.local", "--headless")
ENVIRONMENT = environment("mysql://no", PYTHONUNBUFFERED="1")


def run(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [sys.executable, *words],
        cwd=place,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
    )


@pytest.mark.parametrize("options", [(), ("--postgres",)], ids=["sqlite", "postgres"])
def test_a_killed_worker_costs_nothing_and_nothing_happens_twice(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    result = run(tmp_path, *STORY, "--invoices", "16", "--kill", "--exit", *options)
    log = tmp_path / "invoicing-demo" / "log"
    assert result.returncode == 0, result.stdout + result.stderr + log.read_text()[-3000:]
    assert result.stderr == ""
    assert re.search(r"w-\d killed \(-9\) while it held \d+ invoice\.", result.stdout)
    assert " recovered after " in result.stdout
    assert "16 invoices · 16 PDFs · 16 e-mails" in result.stdout
    assert "0 missing · 0 doubled · 0 wrong" in result.stdout


CARELESS = """
from email.message import EmailMessage
from uuid import uuid4

from invoicing import emails, pdf, taxes
from invoicing.mail import send_message
from invoicing.worker import jobs

store = pdf._store
seen: list[EmailMessage] = []


async def send_carelessly(url: str, message: EmailMessage) -> None:
    seen.append(message)
    number = len(seen)  # now: others are sent meanwhile
    if number % 3 == 0:
        return  # forgotten
    await send_message(url, message)
    if number % 3 == 1:
        await send_message(url, message)


async def store_twice(document):
    pdf.file_store().put_once(f"copies/{uuid4()}.pdf", pdf.render(document.invoice))
    return await store(document)


async def count_nothing(session, expense):
    pass


emails.send_message = send_carelessly
pdf._store = store_twice
taxes._update_snapshot = count_nothing
"""
WITH_CARELESS_WORKERS = """
import sys
from apps.invoicing.local import __main__ as command

command.APPLICATION = "careless:jobs"
command.main(sys.argv[1:])
"""


def test_careless_handlers_are_found_out(tmp_path: Path) -> None:
    (tmp_path / "careless.py").write_text(CARELESS)
    words = ("--headless", "--exit", "--invoices", "6")
    result = run(tmp_path, "-c", WITH_CARELESS_WORKERS, *words)
    assert result.returncode == 1, result.stdout + result.stderr
    found = re.search(r" (\d+) missing · (\d+) doubled · 0 wrong", result.stdout)
    assert found is not None, result.stdout
    missing, doubled = map(int, found.groups())
    assert missing > 1  # a snapshot of each quarter, and what two workers forgot
    assert doubled > 6  # a copy of each PDF, and the first message of each worker
    assert re.search(r"^  (missing|doubled): ", result.stdout, re.MULTILINE)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """The command, until it is stopped."""
    with subprocess.Popen(
        [sys.executable, *STORY, "--invoices", "1"],
        cwd=tmp_path,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield process, process.stdout
        process.kill()


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_what_it_starts_is_reachable_and_ends_with_it(
    running: tuple[subprocess.Popen[str], IO[str]],
    tmp_path: Path,
    number: signal.Signals,
    code: int,
) -> None:
    process, lines = running
    addresses = read_addresses(lines)
    for name in ("API", "dashboard"):
        with urllib.request.urlopen(addresses[name], timeout=PATIENCE_S) as answer:
            assert answer.status == 200
    for name, pattern in (("mailbox", "*.eml"), ("files", "**/*.pdf")):
        assert len(list((tmp_path / addresses[name]).glob(pattern))) == 1
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) >= 4  # the guard, the API and two workers
    workers = [each.environ() for each in children if "worker" in each.cmdline()]
    assert [each["HOLDFAST_UNHANDLED_AFTER_MS"] for each in workers] == ["60000", "60000"]
    process.send_signal(number)
    assert process.wait(PATIENCE_S) == code
    _, alive = psutil.wait_procs(children, PATIENCE_S)
    assert alive == []
