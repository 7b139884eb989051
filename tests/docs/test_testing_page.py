"""The page about testing shows tests that pass."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.docs.newcomer import move_in, run
from tests.docs.snippets import blocks

FOLDERS = ("shop/committed", "shop/joined")
PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A newcomer's folder with every file of the page."""
    move_in(tmp_path)
    for block in blocks("docs/do/testing.md"):
        if block.file is not None:
            file = tmp_path / block.file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text, encoding="utf-8")
    tests = tmp_path / "shop/committed/test_orders.py"
    (tmp_path / "shop/joined/test_orders.py").write_text(tests.read_text(encoding="utf-8"))
    return tmp_path


def test_the_tests_on_the_page_pass(folder: Path) -> None:
    assert "3 passed" in run(folder, *PYTEST, "test_app.py")


def test_the_test_of_a_cycle_passes(folder: Path) -> None:
    assert "1 passed" in run(folder, *PYTEST, "carts")


def test_the_tests_of_a_durable_function_pass(folder: Path) -> None:
    assert "2 passed" in run(folder, *PYTEST, "loans")


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_the_recipe_for_async_sessions_passes_again_and_again(
    folder: Path, driver: str, postgres_url: str
) -> None:
    url = postgres_url.replace("postgresql:", f"postgresql+{driver}:")
    for _ in range(2):
        answer = run(folder, *PYTEST, "-o", "asyncio_mode=auto", "parcels", TEST_DATABASE_URL=url)
        assert "2 passed" in answer


@pytest.mark.parametrize("recipe", FOLDERS)
def test_a_recipe_for_postgres_passes_again_and_again(
    folder: Path, recipe: str, postgres_url: str
) -> None:
    url = postgres_url.replace("postgresql:", "postgresql+psycopg:")
    assert "2 passed" in run(folder, *PYTEST, recipe, TEST_DATABASE_URL=url)
    assert "2 passed" in run(folder, *PYTEST, recipe, TEST_DATABASE_URL=url)


def test_the_recipe_that_rolls_back_passes_in_parallel(folder: Path, postgres_url: str) -> None:
    url = postgres_url.replace("postgresql:", "postgresql+psycopg:")
    # SQLAlchemy's create_all is not safe in two processes at once.
    run(folder, *PYTEST, "shop/joined", TEST_DATABASE_URL=url)
    answer = run(folder, *PYTEST, "-n", "2", "shop/joined", TEST_DATABASE_URL=url)
    assert "2 passed" in answer
