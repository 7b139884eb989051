"""The page about Django, followed in an empty folder as its readers do, with Django's own commands."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.docs.newcomer import PATIENCE_S, run
from tests.docs.snippets import blocks

PAGE = "docs/start/django.md"
SETTINGS = "# add to config/settings.py\n"
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
PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "shop/test_orders.py")


def follow(folder: Path, settings: str = "") -> None:
    """Do what the page says, from top to bottom."""
    for block in blocks(PAGE):
        if block.language == "sh":
            run(folder, "bash", "-euo", "pipefail", "-c", block.text)
        elif block.text.startswith(SETTINGS):
            with (folder / "config/settings.py").open("a") as file:
                file.write(block.text + settings)
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


def test_a_test_database_in_memory_is_refused_with_what_to_do(tmp_path: Path) -> None:
    from holdfast.errors import UnusableUrl
    from holdfast.storage.url import parse_url

    with pytest.raises(UnusableUrl, match="only the connection that made this database") as raised:
        parse_url("sqlite:///file:memorydb_default?mode=memory&cache=shared")
    assert "test.sqlite3" in str(raised.value)
