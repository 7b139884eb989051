"""Tests of others with our backend: Django's own of its tasks framework, by its own runner, and huey's of its backend.

They come from the source distributions, and what they import is replaced by ours beforehand, so that not a line of them
is changed. What fails must be what is listed here, no more and no less.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pytest

from tests.django.project import described
from tests.packaging.environment import PATIENCE_S, Environment, installed
from tests.packaging.test_django_versions import NEWEST, VERSIONS, find_python
from tests.support.command import run_command

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(4 * PATIENCE_S)]

OPTIONS = ("--parallel=1", "--settings=with_holdfast")
LEAST_TESTS = 85
"""How many tests of tasks Django 6.1.3 has."""

DUMMY = "tasks.test_dummy_backend.DummyBackendTestCase"
IMMEDIATE = "tasks.test_immediate_backend.ImmediateBackendTestCase"
TASK = "tasks.test_tasks.TaskTestCase"
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
    f"{TASK}.test_enqueue_with_invalid_argument": "a datetime travels with ours",
    f"{TASK}.test_aenqueue_with_invalid_argument": "the same, async",
}

SETTINGS = """
import __main__  # runtests.py, whose own list takes the place of INSTALLED_APPS
__main__.ALWAYS_INSTALLED_APPS += ["holdfast_django", "stand_ins.StandIns"]
SECRET_KEY = "of a test"
USE_TZ = False
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
TASKS = {"default": {"BACKEND": "holdfast_django.tasks.HoldfastBackend"}}
DATABASES = {"default": %r}
if "sqlite" in DATABASES["default"]["ENGINE"]:
    DATABASES["default"]["OPTIONS"]["transaction_mode"] = "IMMEDIATE"
"""
STAND_INS = """
from threading import Thread

from django.apps import AppConfig
from django.db import connection

def run_what_is_due():
    from holdfast_django import app, database_url
    from holdfast_testing.kit import Kit

    kit = Kit(app, database_url(), prepare=lambda app: None)
    try:
        kit.run_until_idle()
    finally:
        kit.close()

def clear_jobs():
    from holdfast_django import app, database_url
    from holdfast_testing.fresh_state import clear_in_transaction
    from holdfast_testing.kit import Kit

    Kit(app, database_url(), prepare=clear_in_transaction).close()

def make_stand_ins():
    from holdfast_django.tasks import HoldfastBackend

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


HUEY = "huey~=3.5.0"
HUEY_TESTS = "huey/tests/test_django_tasks.py"
LEAST_HUEY_TESTS = 13
HUEYS = "huey.tests.test_django_tasks.TestDjangoTasksBackend"
HUEY_CANNOT_HOLD = {
    f"{HUEYS}.test_invalid_tasks": "ours runs async tasks, which huey refuses",
    f"{HUEYS}.test_moved_function_marks_failed": "a worker of ours knows its tasks from its start",
    f"{HUEYS}.test_enqueue_on_commit": "ours is written in the transaction and seen inside it",
}
HUEY_STAND_INS = {
    "huey/__init__.py": """
from django.conf import LazySettings

configure = LazySettings.configure

def configure_with_holdfast(settings, **given):
    given |= {
        "SECRET_KEY": "of a test",
        "INSTALLED_APPS": ["holdfast_django"],
        "DATABASES": {"default": {
            "ENGINE": "django.db.backends.sqlite3", "NAME": "huey.db",
            "OPTIONS": {"timeout": 30, "transaction_mode": "IMMEDIATE"}}}}
    configure(settings, **given)

LazySettings.configure = configure_with_holdfast

class MemoryHuey:
    def __init__(self, name):
        pass
""",
    "huey/contrib/__init__.py": "",
    "huey/contrib/djhuey/__init__.py": """
from collections import namedtuple
from types import SimpleNamespace

from holdfast_django import app, database_url
from holdfast_testing.fresh_state import clear_in_transaction
from holdfast_testing.kit import Kit

Dequeued = namedtuple("Dequeued", "args eta")

def opened(prepare=lambda app: None):
    return Kit(app, database_url(), prepare=prepare)

def flush_all():
    app.migrate()
    opened(clear_in_transaction).close()

def waiting():
    return {each.id: each for each in app.jobs.list("state:pending")}

def dequeue():
    # A job cannot be taken without running it; what waits for its time is shown and stays.
    before = waiting()
    if not before:
        return None
    kit = opened()
    try:
        kit.run_one()
    finally:
        kit.close()
    taken = before.keys() - waiting().keys() or before.keys()
    job = before[min(taken)]
    return Dequeued((job.type, job.input["args"]), job.planned_at)

HUEY = SimpleNamespace(
    immediate=False, dequeue=dequeue, execute=lambda dequeued: None,
    storage=SimpleNamespace(flush_all=flush_all, priority=True),
    pending_count=lambda: len(waiting()), result_count=lambda: len(list(app.jobs.list())))
""",
    "huey/contrib/djhuey/tasks_backend.py": """
from holdfast_django.tasks import HoldfastBackend
from huey.contrib.djhuey import HUEY, dequeue

class HueyBackend(HoldfastBackend):
    supports_priority = property(lambda backend: HUEY.storage.priority)

    def validate_task(self, task, is_enqueued=False):
        # Ours refuses a lambda where it is declared, huey where it is enqueued.
        if is_enqueued or task.func.__name__ != "<lambda>":
            super().validate_task(task)

    def enqueue(self, task, args, kwargs):
        self.validate_task(task, is_enqueued=True)
        result = super().enqueue(task, args, kwargs)
        if HUEY.immediate:
            dequeue()
            result.refresh()
        return result
""",
    "huey/tests/__init__.py": "",
    "huey/tests/base.py": """
import unittest
from contextlib import contextmanager
from threading import Event, Thread

from huey.contrib.djhuey import opened

class BaseTestCase(unittest.TestCase):
    def setUp(self):
        self.get_huey()

    @contextmanager
    def consumer_context(self):
        stopping, kit = Event(), opened()

        def work():
            while not stopping.is_set():
                kit.run_until_idle()
                stopping.wait(0.05)

        worker = Thread(target=work)
        worker.start()
        try:
            yield
        finally:
            stopping.set()
            worker.join()
            kit.close()
""",
}
"""A package with the names that huey's tests of its backend import, around ours."""


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
        words = [self.environment.python, "runtests.py", "tasks", *OPTIONS]
        return run_command(words, self.tests, own, PATIENCE_S).stdout


@pytest.fixture(scope="module")
def django_source(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> DjangoSource:
    """The newest Django that is supported, with its tests."""
    version, packages = VERSIONS[NEWEST]
    folder = tmp_path_factory.mktemp("djangos_own")
    environment = installed(wheel, "postgres,django", folder, find_python(version), packages)
    code = "import django; print(django.get_version())"
    exact = environment.succeed("python", "-c", code).strip()
    source = unpack_source("django", f"django=={exact}", environment, folder, is_of_tasks)
    return DjangoSource(source / "tests", environment)


def unpack_source(
    package: str,
    requirement: str,
    environment: Environment,
    folder: Path,
    is_wanted: Callable[[PurePosixPath], bool],
) -> Path:
    """Download a source distribution and unpack a part of it; return its folder."""
    place = folder / f"{package} source"
    place.mkdir()
    words = ["download", "--quiet", "--no-deps", "--no-binary", package, requirement]
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", environment.python, *words],
        cwd=place,
        check=True,
        timeout=PATIENCE_S,
    )
    (archive,) = place.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        members = opened.getmembers()
        wanted = [each for each in members if is_wanted(inside(each))]
        opened.extractall(place, wanted, filter="data")
    (unpacked,) = (each for each in place.iterdir() if each.is_dir())
    return unpacked


def inside(member: tarfile.TarInfo) -> PurePosixPath:
    """The path of a member below the distribution's own folder."""
    return PurePosixPath(*PurePosixPath(member.name).parts[1:])


def is_of_tasks(path: PurePosixPath) -> bool:
    """Whether a file of Django's is its runner of tests, what that needs, or a test of tasks."""
    folder, *names = (*path.parts, "")
    return folder == "tests" and (len(names) == 2 or names[0] in ("tasks", "templates"))


def failures_in(said: str, least: int) -> list[str]:
    """Return the tests that failed, of a run of at least so many."""
    ran = re.search(r"^Ran (\d+) tests", said, re.MULTILINE)
    assert ran is not None, said
    assert int(ran[1]) >= least
    return sorted(set(re.findall(r"^(?:FAIL|ERROR): \S+ \((\S+)\)", said, re.MULTILINE)))


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_djangos_own_tests_of_tasks_pass_with_our_backend(
    store: str, request: pytest.FixtureRequest, django_source: DjangoSource, tmp_path: Path
) -> None:
    is_file = store == "sqlite"
    url = f"sqlite:///{tmp_path}/own.db" if is_file else request.getfixturevalue("postgres_url")
    said = django_source.run_tests(tmp_path, url)
    assert failures_in(said, LEAST_TESTS) == sorted(CANNOT_HOLD), said


def test_hueys_tests_of_its_backend_pass_with_ours(
    django_source: DjangoSource, tmp_path: Path
) -> None:
    environment = django_source.environment
    source = unpack_source(
        "huey", HUEY, environment, tmp_path, lambda path: str(path) == HUEY_TESTS
    )
    shop = tmp_path / "shop"
    for name, text in {**HUEY_STAND_INS, HUEY_TESTS: (source / HUEY_TESTS).read_text()}.items():
        (shop / name).parent.mkdir(parents=True, exist_ok=True)
        (shop / name).write_text(text, encoding="utf-8")
    words = [environment.python, "-m", "unittest", "huey.tests.test_django_tasks"]
    said = run_command(words, shop, environment.variables(), PATIENCE_S).stdout
    assert failures_in(said, LEAST_HUEY_TESTS) == sorted(HUEY_CANNOT_HOLD), said
