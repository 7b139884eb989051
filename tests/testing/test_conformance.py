"""Somebody with a store of their own follows the package's instructions and gets a verdict."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests import conformance
from tests.support.warm_python import LIBRARIES

ROOT = Path(__file__).parents[2]

CONFTEST = """
import sqlite3

import pytest_asyncio

from holdfast.storage.sqlite.database import SqliteDatabase
from tests.conformance import AsyncHarness, SyncHarness


class MyDatabase(SqliteDatabase):
    def dump_all_tables(self):
        connection = sqlite3.connect(self.path)
        dump = {"everything": list(connection.iterdump())}
        connection.close()
        return dump


"""
TESTS = """
import pytest

from tests import conformance

pytestmark = pytest.mark.asyncio


class TestReapingInBatches(conformance.ReapingInBatchesConformance): ...


class TestWaitingEvents(conformance.WaitingEventConformance): ...
"""


def documented_fixture() -> str:
    """The fixture as the package's text shows it."""
    text = conformance.__doc__ or ""
    found = re.search(r"( +)@pytest_asyncio\.fixture.*?close_async\(\)\n", text, re.DOTALL)
    assert found, "the instructions show no fixture"
    return re.sub(rf"^{found[1]}", "", found[0], flags=re.MULTILINE)


def run_tests(folder: Path, conftest: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(conftest)
    (folder / "test_my_store.py").write_text(TESTS)
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={folder}")
    return LIBRARIES.run(words, folder, os.environ | {"PYTHONPATH": str(ROOT)})


def test_the_instructions_lead_to_passing_tests(tmp_path: Path) -> None:
    answer = run_tests(tmp_path, CONFTEST + documented_fixture())
    assert answer.returncode == 0, answer.stdout
    assert re.search(r"^\d+ passed", answer.stdout, re.MULTILINE)


def test_a_store_that_breaks_a_promise_fails_with_the_values_shown(tmp_path: Path) -> None:
    forgetful = CONFTEST + documented_fixture().replace(
        "    database.migrate()\n",
        "    database.migrate()\n"
        "    database.store.leases.reap = lambda limit, poison, after=None, now=None: "
        "type(database.store.leases).reap(database.store.leases, limit, poison, None, now)\n",
    )
    answer = run_tests(tmp_path, forgetful)
    assert answer.returncode == pytest.ExitCode.TESTS_FAILED
    assert "test_a_look_after_a_lease_does_not_see_it_again" in answer.stdout
    assert "At index" in answer.stdout or "Left contains" in answer.stdout
