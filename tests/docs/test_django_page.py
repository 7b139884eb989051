"""The page about Django, followed in an empty folder as its readers do, with Django's own commands."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from time import monotonic

import httpx
import pytest

from tests.django.project import Project
from tests.docs.newcomer import PATIENCE_S, run
from tests.docs.snippets import Block, blocks
from tests.support.until import SLOWNESS, wait_until

PAGE = "docs/start/django.md"
TASKS_PAGE = "docs/start/django-tasks.md"
ADDED = re.compile(r"# add to (\S+)\n")
DATABASE = """
DATABASES = {"default": {
    "ENGINE": "django.db.backends.postgresql", "NAME": "%(dbname)s", "USER": "%(user)s",
    "PASSWORD": "%(password)s", "HOST": "%(host)s", "PORT": "%(port)s"}}
"""
COMMITTED = """
import pytest
from holdfast_django import database_url

@pytest.fixture
def holdfast_app():
    from shop.jobs import app
    return app

@pytest.fixture
def holdfast_url(transactional_db):
    return database_url()
"""
FILE = """
DATABASES["default"]["TEST"] = {"NAME": BASE_DIR / "test.sqlite3"}
"""
PYTEST_TASKS = """
from shop.tasks import greet

def test_a_greeting(holdfast_tasks):
    result = greet.enqueue("Ada")
    holdfast_tasks.run_until_idle()
    result.refresh()
    assert result.return_value == "Hello, Ada"

def test_nothing_is_left(holdfast_tasks):
    assert holdfast_tasks.started() == []
"""
LAST_STEP = "$ python manage.py holdfast dev\n"
FIVE_COMMANDS_S = 60 * SLOWNESS
"""Many times what the page says it takes, so that a busy machine may run the test too."""

PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "shop/test_orders.py")


def follow(folder: Path, settings: str = "", page: str = PAGE) -> None:
    """Do what a page says, from top to bottom."""
    do(folder, blocks(page), settings)


def do(folder: Path, steps: Sequence[Block], settings: str = "") -> None:
    """Run commands and write files, in order."""
    for block in steps:
        if block.language == "sh":
            run(folder, "bash", "-euo", "pipefail", "-c", block.text)
        elif added := ADDED.match(block.text):
            with (folder / added[1]).open("a") as file:
                file.write(block.text + (settings if "settings" in added[1] else ""))
        elif block.file is not None:
            (folder / block.file).write_text(block.text, encoding="utf-8")


@pytest.mark.timeout(2 * PATIENCE_S)
def test_the_page_works_on_sqlite_with_tests_in_memory_and_in_a_file(tmp_path: Path) -> None:
    follow(tmp_path)
    (tmp_path / "conftest.py").write_text(COMMITTED)
    with (tmp_path / "config/settings.py").open("a") as file:
        file.write(FILE)
    variables = {"DJANGO_SETTINGS_MODULE": "config.settings"}
    assert "2 passed" in run(tmp_path, *PYTEST, **variables)


@pytest.mark.timeout(2 * PATIENCE_S)
def test_the_page_works_on_postgres_one_after_another_and_in_parallel(
    tmp_path: Path, postgres_url: str
) -> None:
    from psycopg.conninfo import conninfo_to_dict

    follow(tmp_path, DATABASE % conninfo_to_dict(postgres_url))
    variables = {"DJANGO_SETTINGS_MODULE": "config.settings"}
    assert "2 passed" in run(tmp_path, *PYTEST, "-n", "2", **variables)
    (tmp_path / "conftest.py").write_text(COMMITTED)
    assert "2 passed" in run(tmp_path, *PYTEST, "--create-db", **variables)


def page_with(address: str, text: str) -> str:
    """Ask for a page of the dashboard, as a browser does, until it shows a text."""
    shown = ""

    def look() -> str | None:
        nonlocal shown
        with suppress(httpx.TransportError):
            shown = httpx.get(address, headers={"Accept": "text/html"}).text
        return shown if text in shown else None

    return wait_until(look, lambda: f"{address} does not show {text!r}: {shown}", PATIENCE_S)


def first_steps() -> list[Block]:
    """The blocks of the page about tasks up to the command that shows the dashboard."""
    found = list(takewhile(lambda each: each.text != LAST_STEP, blocks(TASKS_PAGE)))
    commands = [line for each in found if each.language == "sh" for line in each.text.splitlines()]
    assert [each.split()[1] for each in commands] == ["-m", "manage.py", "manage.py", "manage.py"]
    return found


@pytest.mark.timeout(2 * PATIENCE_S)
def test_five_commands_lead_to_a_task_on_the_dashboard(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    steps = first_steps()
    begun = monotonic()
    do(tmp_path, steps)
    with Project(tmp_path).running("holdfast", "dev", "--port", port):
        address = f"http://127.0.0.1:{port}"
        page = page_with(f"{address}/jobs?q=state%3Acompleted", "shop.tasks.greet")
        took_s = monotonic() - begun
        (job,) = httpx.get(f"{address}/api/v1/jobs").json()["items"]
        assert "Hello, Ada" in page_with(f"{address}/jobs/{job['id']}", "Hello, Ada")
    print(f"five commands, the files between them written at once: {took_s:.1f} s")
    assert job["id"] in page
    assert took_s < FIVE_COMMANDS_S


@pytest.mark.timeout(2 * PATIENCE_S)
def test_the_rest_of_the_page_about_tasks_works_too(tmp_path: Path) -> None:
    follow(tmp_path, page=TASKS_PAGE)
    assert "Ran 2 tests" in run(tmp_path, "bash", "-c", "python manage.py test 2>&1")


@pytest.mark.timeout(2 * PATIENCE_S)
def test_tasks_run_with_pytest_django(tmp_path: Path) -> None:
    follow(tmp_path, page=TASKS_PAGE)
    (tmp_path / "shop/test_orders.py").write_text(PYTEST_TASKS)
    variables = {"DJANGO_SETTINGS_MODULE": "config.settings"}
    assert "2 passed" in run(tmp_path, *PYTEST, **variables)


def test_a_test_database_in_memory_is_refused_with_what_to_do(tmp_path: Path) -> None:
    from holdfast.errors import UnusableUrl
    from holdfast.storage.url import parse_url

    with pytest.raises(
        UnusableUrl, match="only the connection that created this in-memory database"
    ) as raised:
        parse_url("sqlite:///file:memorydb_default?mode=memory&cache=shared")
    assert "test.sqlite3" in str(raised.value)
