"""Django's own tests of its tasks framework, from its source distribution and by its own runner, with our backend.

Its two backends are replaced by ours before its tests are imported, so that not a line of them is changed. What fails
must be what is listed here, no more and no less.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pytest

from tests.contrib.django.project import described
from tests.packaging.environment import PATIENCE_S, Environment, installed
from tests.packaging.test_django_versions import NEWEST, VERSIONS, find_python
from tests.support.absent import skip_because_absent

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(4 * PATIENCE_S)]

OPTIONS = ("--parallel=1", "--settings=with_holdfast")
LEAST_TESTS = 85
"""How many tests of tasks Django 6.1.3 has."""

DUMMY = "tasks.test_dummy_backend.DummyBackendTestCase"
IMMEDIATE = "tasks.test_immediate_backend.ImmediateBackendTestCase"
IN_TRANSACTION = "tasks.test_immediate_backend.ImmediateBackendTransactionTestCase"
CANNOT_HOLD = {
    f"{DUMMY}.test_refresh_result": "ends the task in the memory of the dummy; ours is in the database",
    f"{DUMMY}.test_refresh_result_async": "the same, async",
    f"{IMMEDIATE}.test_cannot_get_result": "ours returns results",
    f"{IMMEDIATE}.test_cannot_refresh_result": "ours refreshes results",
    f"{IMMEDIATE}.test_cannot_pass_run_after": "ours runs tasks later",
    f"{IMMEDIATE}.test_throws_keyboard_interrupt": "Ctrl-C in a worker is not the caller's",
    f"{IN_TRANSACTION}.test_doesnt_wait_until_transaction_commit_by_default": (
        "ours runs a task after the commit, never before"
    ),
}

SETTINGS = """
import __main__  # runtests.py, whose own list takes the place of INSTALLED_APPS
__main__.ALWAYS_INSTALLED_APPS += ["holdfast.contrib.django", "stand_ins.StandIns"]
SECRET_KEY = "of a test"
USE_TZ = False
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
TASKS = {"default": {"BACKEND": "holdfast.contrib.django.tasks.HoldfastBackend"}}
DATABASES = {"default": %r}
if "sqlite" in DATABASES["default"]["ENGINE"]:
    DATABASES["default"]["OPTIONS"]["transaction_mode"] = "IMMEDIATE"
"""
STAND_INS = """
from threading import Thread

from django.apps import AppConfig
from django.db import connection

def run_what_is_due():
    from holdfast.contrib.django import app, database_url
    from holdfast.testing.kit import Kit

    kit = Kit(app, database_url(), prepare=lambda app: None)
    try:
        kit.run_until_idle()
    finally:
        kit.close()

def clear_jobs():
    from holdfast.contrib.django import app, database_url
    from holdfast.testing.fresh_state import clear_in_transaction
    from holdfast.testing.kit import Kit

    Kit(app, database_url(), prepare=clear_in_transaction).close()

def make_stand_ins():
    from holdfast.contrib.django.tasks import HoldfastBackend

    class DummyBackend(HoldfastBackend):
        # No worker runs. What enqueue returns has this process's time, what is stored the database's: refreshed,
        # both are equal.
        def __init__(self, alias, params):
            super().__init__(alias, params)
            self._ids = []

        def enqueue(self, task, args, kwargs):
            result = super().enqueue(task, args, kwargs)
            self._ids.append(result.id)
            result.refresh()
            return result

        @property
        def results(self):
            return [self.get_result(each) for each in self._ids]

        def clear(self):
            clear_jobs()
            self._ids.clear()

    class ImmediateBackend(HoldfastBackend):
        # A worker runs beside each call of enqueue, in a thread of its own as it would in a process of its own.
        def enqueue(self, task, args, kwargs):
            result = super().enqueue(task, args, kwargs)
            if not connection.in_atomic_block:
                worker = Thread(target=run_what_is_due)
                worker.start()
                worker.join()
            result.refresh()
            return result

    return DummyBackend, ImmediateBackend

class StandIns(AppConfig):
    name = "stand_ins"

    def ready(self):
        from django.tasks.backends import dummy, immediate
        from django.test import SimpleTestCase

        dummy.DummyBackend, immediate.ImmediateBackend = make_stand_ins()
        SimpleTestCase.databases = {"default"}  # Django's two backends have no database
"""


@dataclass(frozen=True, slots=True)
class DjangoSource:
    """Django's source distribution, unpacked, and an environment with the same version and the wheel."""

    tests: Path
    environment: Environment

    def run_tests(self, folder: Path, url: str) -> str:
        """Run Django's tests of tasks with our backend on a database; return what the runner said."""
        (folder / "stand_ins.py").write_text(STAND_INS, encoding="utf-8")
        (folder / "with_holdfast.py").write_text(SETTINGS % described(url), encoding="utf-8")
        own = self.environment.variables() | {
            "PYTHONPATH": str(folder),
            # Two of its coroutines call what blocks, which Django refuses to every backend with a database.
            "DJANGO_ALLOW_ASYNC_UNSAFE": "1",
        }
        done = subprocess.run(
            [self.environment.python, "runtests.py", "tasks", *OPTIONS],
            cwd=self.tests,
            env=own,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return done.stdout


@pytest.fixture(scope="module")
def django_source(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> DjangoSource:
    """The newest Django that is supported, with its tests."""
    version, packages = VERSIONS[NEWEST]
    interpreter = find_python(version)
    if interpreter is None:
        skip_because_absent(f"Python {version}", "pyenv install, or your system's packages")
    folder = tmp_path_factory.mktemp("djangos_own")
    environment = installed(wheel, "postgres", folder, interpreter, packages)
    code = "import django; print(django.get_version())"
    exact = environment.succeed("python", "-c", code).strip()
    return DjangoSource(download_source(f"django=={exact}", environment, folder), environment)


def download_source(requirement: str, environment: Environment, folder: Path) -> Path:
    """Download Django's source distribution and unpack its runner and its tests of tasks; return their folder."""
    words = ["download", "--quiet", "--no-deps", "--no-binary", "django", requirement]
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", environment.python, *words],
        cwd=folder,
        check=True,
        timeout=PATIENCE_S,
    )
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        wanted = [each for each in opened.getmembers() if is_wanted(each)]
        opened.extractall(folder / "source", wanted, filter="data")
    (tests,) = (folder / "source").glob("*/tests")
    return tests


def is_wanted(member: tarfile.TarInfo) -> bool:
    """Whether a file of the distribution is the runner, what it needs, or a test of tasks."""
    path = PurePosixPath(member.name).parts[1:]
    return path[:1] == ("tests",) and (len(path) == 2 or path[1:2] in (("tasks",), ("templates",)))


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_djangos_own_tests_of_tasks_pass_with_our_backend(
    store: str, request: pytest.FixtureRequest, django_source: DjangoSource, tmp_path: Path
) -> None:
    is_file = store == "sqlite"
    url = f"sqlite:///{tmp_path}/own.db" if is_file else request.getfixturevalue("postgres_url")
    said = django_source.run_tests(tmp_path, url)
    ran = re.search(r"^Ran (\d+) tests", said, re.MULTILINE)
    assert ran is not None, said
    assert int(ran[1]) >= LEAST_TESTS
    failed = re.findall(r"^(?:FAIL|ERROR): \S+ \((\S+)\)", said, re.MULTILINE)
    assert sorted(set(failed)) == sorted(CANNOT_HOLD), said
