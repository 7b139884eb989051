"""The page about Django, followed in an empty folder as its readers do, with Django's own commands."""

from __future__ import annotations

import re
import socket
import sys
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import httpx
import pytest

from tests.contrib.django.project import Project
from tests.docs.newcomer import PATIENCE_S, run
from tests.docs.snippets import blocks

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
from holdfast.contrib.django import database_url

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
PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "shop/test_orders.py")


def follow(folder: Path, settings: str = "", page: str = PAGE) -> None:
    """Do what a page says, from top to bottom."""
    for block in blocks(page):
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


def completed_jobs(address: str) -> list[dict[str, Any]]:
    """Ask a dashboard until a job is completed."""
    end = monotonic() + PATIENCE_S
    while monotonic() < end:
        with suppress(httpx.TransportError):
            found: list[dict[str, Any]] = httpx.get(address).json()["items"]
            if any(each["state"] == "completed" for each in found):
                return found
        sleep(0.1)
    raise AssertionError("no job was completed")


@pytest.mark.timeout(2 * PATIENCE_S)
def test_five_commands_lead_to_a_task_on_the_dashboard(tmp_path: Path) -> None:
    follow(tmp_path, page=TASKS_PAGE)
    assert "Ran 35 tests" in run(tmp_path, "bash", "-c", "python manage.py test 2>&1")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    with Project(tmp_path).running("holdfast", "dev", "--port", port):
        found = completed_jobs(f"http://127.0.0.1:{port}/api/v1/jobs")
    assert [(each["type"], each["state"]) for each in found] == [("shop.tasks.greet", "completed")]


@pytest.mark.timeout(2 * PATIENCE_S)
def test_tasks_run_with_pytest_django(tmp_path: Path) -> None:
    follow(tmp_path, page=TASKS_PAGE)
    (tmp_path / "shop/test_orders.py").write_text(PYTEST_TASKS)
    variables = {"DJANGO_SETTINGS_MODULE": "config.settings"}
    assert "2 passed" in run(tmp_path, *PYTEST, **variables)


def test_a_test_database_in_memory_is_refused_with_what_to_do(tmp_path: Path) -> None:
    from holdfast.errors import UnusableUrl
    from holdfast.storage.url import parse_url

    with pytest.raises(UnusableUrl, match="only the connection that made this database") as raised:
        parse_url("sqlite:///file:memorydb_default?mode=memory&cache=shared")
    assert "test.sqlite3" in str(raised.value)
