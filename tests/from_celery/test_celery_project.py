"""A real Celery project on Redis: run as it is, moved by following the page, and run beside Holdfast on the way."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from holdfast.settings.load import PREFIXES
from tests.docs.snippets import ROOT, text_blocks
from tests.notify.servers import LeashedServer, redis_server
from tests.support.until import PATIENCE_S, SLOWNESS, wait_until
from tests.support.warm_python import LIBRARIES, WarmProcess

SOURCES = Path(__file__).parent / "celery_shop"

PAGE = "docs/do/from-celery.md"
BESIDE = "## Run both side by side"
"""Where the page begins to move one task instead of the whole project."""

EXPECTED = {
    "mails": ["busy@7.example: order 7"],
    "thumbnails": ["coat at 120", "hat at 120", "shoe at 120"],
    "sheets": ["order 7: hat@120, coat@120, shoe@120"],
    "invoices": ["invoice-7.pdf to busy@7.example"],
}


CELERY_WORKER = ("-A", "shop.app", "worker", "-B", "-s", "beat", "-P", "threads", "-c", "4")
"""Celery's worker, with beat in it."""


class Shop:
    """A copy of the project, and the processes that run in it."""

    def __init__(self, folder: Path, python: str = sys.executable, **variables: str) -> None:
        shutil.copytree(SOURCES, folder, dirs_exist_ok=True)
        self._python = python
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir()
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(PREFIXES)}
        self._environment = inherited | variables | {"SHOP_HOME": str(self.home)}
        self._environment["PYTHONPATH"] = str(folder)

    def edit(self, text: str) -> None:
        """Make the changes that a part of the page shows as diffs; each has to fit."""
        changes = [each for each in text_blocks(text) if each.language == "diff"]
        assert changes
        for change in changes:
            title, *lines = change.text.splitlines()
            file = self.folder / title.removeprefix(" # ")
            old = "".join(f"{each[1:]}\n" for each in lines if each[:1] != "+")
            new = "".join(f"{each[1:]}\n" for each in lines if each[:1] != "-")
            before = file.read_text(encoding="utf-8") if file.exists() else ""
            assert before.count(old) == 1 or not before, f"{file.name} does not have {old!r} once"
            file.write_text(before.replace(old, new) if before else new, encoding="utf-8")

    def run(self, *words: str) -> str:
        """Run a Python command line in the project to its end."""
        if self._python == sys.executable:
            done = LIBRARIES.run(words, self.folder, self._environment)
        else:
            done = subprocess.run(
                [self._python, *words],
                cwd=self.folder,
                env=self._environment,
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
        assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
        return done.stdout.strip()

    def _start(
        self, words: Sequence[str], variables: Mapping[str, str], output: IO[bytes]
    ) -> WarmProcess | subprocess.Popen[bytes]:
        environment = {**self._environment, **variables}
        if self._python == sys.executable:
            return LIBRARIES.start(words, self.folder, environment, output)
        return subprocess.Popen(
            [self._python, *words], cwd=self.folder, env=environment, stdout=output, stderr=output
        )

    @contextmanager
    def worker(self, name: str, *words: str) -> Iterator[None]:
        """Run a worker until the block ends."""
        log = self.folder / f"{name}.log"
        with log.open("ab") as output:
            process = self._start(["-m", *words], {"SHOP_WORKER": name}, output)
        try:
            yield
        except BaseException:
            print(log.read_text(encoding="utf-8", errors="replace")[-4000:])
            raise
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def lines(self, name: str) -> list[str]:
        """What was recorded so far, in order of the text."""
        file = self.home / name
        return sorted(file.read_text(encoding="utf-8").splitlines()) if file.exists() else []

    def wait_for(self, name: str, count: int) -> list[str]:
        """Wait until so much was recorded."""
        wait_until(
            lambda: len(self.lines(name)) >= count, lambda: f"only {self.lines(name)} of {name}"
        )
        return self.lines(name)


def page_text() -> str:
    """The page that tells how to move."""
    return (ROOT / PAGE).read_text(encoding="utf-8")


@pytest.fixture
def redis() -> Iterator[LeashedServer]:
    """A Redis of our own."""
    with redis_server() as server:
        yield server


def broker(redis: LeashedServer) -> str:
    """Its address, as Celery writes it."""
    return f"redis://127.0.0.1:{redis.port}/0"


def check_order(shop: Shop, worker: str) -> None:
    """Place an order and see all of its effects, once each."""
    assert shop.run("-m", "shop.orders", "7") == "invoice-7.pdf sent 3 FAILURE"
    for name, lines in EXPECTED.items():
        assert shop.wait_for(name, len(lines)) == [f"{worker}: {each}" for each in lines]


def run_as_it_is(shop: Shop) -> None:
    """Run the project under Celery, with beat."""
    with shop.worker("celery", "celery", *CELERY_WORKER):
        check_order(shop, "celery")
        assert "celery: main" in shop.wait_for("stock", 1)


def run_beside(shop: Shop) -> None:
    """Move one task as the page says, and run both workers."""
    start = "import shop.app; from shop.tasks import send_mail, thumbnail; "
    shop.run("-c", start + "send_mail.delay('old@example.com', 'before the move')")
    shop.edit(page_text().partition(BESIDE)[2])
    shop.run("-m", "holdfast", "migrate", "--app", "shop.jobs:jobs")
    shop.run("-c", start + "send_mail.delay('new@example.com', 'after'); thumbnail.delay('hat', 9)")
    with (
        shop.worker("celery", "celery", *CELERY_WORKER),
        shop.worker("holdfast", "holdfast", "worker", "shop.jobs:jobs"),
    ):
        assert shop.wait_for("mails", 2) == [
            "celery: old@example.com: before the move",
            "holdfast: new@example.com: after",
        ]
        assert shop.wait_for("thumbnails", 1) == ["celery: hat at 9"]
        assert shop.run("-m", "shop.orders", "8") == "invoice-8.pdf sent 3 FAILURE"
        assert "holdfast: busy@8.example: order 8" in shop.wait_for("mails", 3)


@pytest.mark.timeout(600 * SLOWNESS)
def test_the_project_runs_under_celery_as_it_is(tmp_path: Path, redis: LeashedServer) -> None:
    run_as_it_is(Shop(tmp_path, SHOP_BROKER=broker(redis)))


@pytest.mark.timeout(600 * SLOWNESS)
def test_the_project_runs_under_holdfast_once_it_is_edited_as_the_page_says(
    tmp_path: Path, any_url: str
) -> None:
    shop = Shop(tmp_path, HOLDFAST_URL=any_url)
    shop.edit(page_text().partition(BESIDE)[0])
    shop.run("-m", "holdfast", "migrate-from", "celery", ".", "--check")
    shop.run("-m", "holdfast", "migrate", "--app", "shop.app:app")
    with shop.worker("holdfast", "holdfast", "worker", "shop.app:app"):
        check_order(shop, "holdfast")
        assert "holdfast: main" in shop.wait_for("stock", 1)
    assert "nightly-report" in shop.run("-m", "holdfast", "cycles", "list", "-o", "id")


@pytest.mark.timeout(600 * SLOWNESS)
def test_the_project_runs_under_holdfast_once_the_command_has_edited_it(
    tmp_path: Path, sqlite_url: str
) -> None:
    shop = Shop(tmp_path, HOLDFAST_URL=sqlite_url)
    shop.run("-m", "holdfast", "migrate-from", "celery", ".", "--write", "--force")
    tasks = shop.folder / "shop" / "tasks.py"
    by_hand = tasks.read_text(encoding="utf-8").replace("soft_time_limit=30", "time_limit=30")
    tasks.write_text(by_hand, encoding="utf-8")
    shop.run("-m", "holdfast", "migrate-from", "celery", ".", "--check")
    shop.run("-m", "holdfast", "migrate", "--app", "shop.app:app")
    with shop.worker("holdfast", "holdfast", "worker", "shop.app:app"):
        check_order(shop, "holdfast")


@pytest.mark.timeout(600 * SLOWNESS)
def test_both_run_beside_each_other_while_one_task_has_moved(
    tmp_path: Path, redis: LeashedServer, sqlite_url: str
) -> None:
    variables = {"SHOP_BROKER": broker(redis), "HOLDFAST_URL": sqlite_url}
    run_beside(Shop(tmp_path / "project", **variables))
