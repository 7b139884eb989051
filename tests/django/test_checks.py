"""What `manage.py check` finds, and what a process that does not use Django never imports."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.django.project import PATIENCE_S, Project, described

SERVER = """
    import os
    os.environ["DJANGO_SETTINGS_MODULE"] = "config"
    import django
    django.setup()
"""
START = """
from holdfast_django import app
with app.transaction() as tx:
    app.jobs.list(tx=tx)
"""
BEGIN_WITHOUT_TABLES = """
from django.db import connection
if connection.vendor != "sqlite":
    with connection.cursor() as cursor:
        cursor.execute("drop schema holdfast cascade")
answer(None)
"""
FORGET_THE_LAST_MIGRATION = """
from django.db import connection
table = "holdfast_schema_version" if connection.vendor == "sqlite" else "holdfast.schema_version"
with connection.cursor() as cursor:
    cursor.execute(f"delete from {table} where version = (select max(version) from {table})")
answer(None)
"""
NAMED = '(name yours in the settings, as in HOLDFAST_APP = "shop.jobs.app"; without it one is made)'

pytestmark = pytest.mark.timeout(4 * PATIENCE_S)


def findings(project: Project, *words: str) -> str:
    return project.try_to_manage("check", *words).stdout


def test_a_good_project_has_no_issues(project: Project) -> None:
    assert "no issues" in findings(project)
    said = findings(project, "--database", "default")
    if "backends.sqlite3" in project.folder.joinpath("config.py").read_text():
        # PostgreSQL's database is prepared for the test.
        assert "(holdfast.schema)" in said
        assert "HINT: run manage.py migrate" in said
        assert not (project.folder / "shop.sqlite3").exists()
    project.manage("migrate", "--run-syncdb")
    assert "holdfast.schema" not in findings(project, "--database", "default")


@pytest.mark.parametrize(
    ("settings", "codes"),
    [
        ('INSTALLED_APPS.remove("holdfast_django")\n', ["E001"]),
        ('TASKS["default"]["OPTIONS"]["url"] = "sqlite:///x"\n', ["E002"]),
        ('TASKS["default"]["QUEUES"] = ["default", "a b"]\n', ["E003"]),
        ('HOLDFAST_DATABASE = "elsewhere"\n', ["E004"]),
        ('HOLDFAST_APP = "shop.own.app"\n', ["E006"]),
        ('HOLDFAST_APP = "os.path"\n', ["E005", "[HF092]", "os:path is a module, not a Holdfast"]),
        ('HOLDFAST_APP = "shop.onw.app"\n', ["E005", "module shop.onw not found", "mean own?"]),
        ('HOLDFAST_APP = "shop.own.ap"\n', ["E005", "shop.own has no ap", "mean shop.own:app?"]),
        ('HOLDFAST_APP = "shop.bad.app"\n', ["E005", "No module named 'nowhere'", "bad.py:1"]),
        ('HOLDFAST_APP = "app"\n', ["E005", "not a name in a module", '"shop.jobs.app"']),
        ('DATABASES["default"]["OPTIONS"] = {}\n', ["W002"]),
        ('DATABASES["default"]["AUTOCOMMIT"] = False\n', ["W001"]),
    ],
)
def test_a_mistake_is_found(sqlite_project: Project, settings: str, codes: list[str]) -> None:
    sqlite_project.write(
        "shop/own.py", "from holdfast import Holdfast\napp = Holdfast('sqlite:///other.db')\n"
    )
    sqlite_project.write("shop/bad.py", "import nowhere\n")
    sqlite_project.configure(f"{settings}INSTALLED_APPS = list(INSTALLED_APPS)\n")
    said = findings(sqlite_project)
    for each in codes:
        assert each in said


def test_tasks_that_would_run_inside_the_request_are_found(sqlite_project: Project) -> None:
    for app, source in {
        "shop": "from holdfast_django.tasks import task",
        "mailing": "from django import tasks",
        "books": "import django_tasks.base",
        "legacy": "from celery import shared_task",
    }.items():
        sqlite_project.write(f"{app}/__init__.py", "")
        sqlite_project.write(f"{app}/tasks.py", source)
    sqlite_project.configure('INSTALLED_APPS += ["mailing", "books", "legacy"]\ndel TASKS\n')
    said = findings(sqlite_project)
    assert "(holdfast.W003) TASKS is not set: the tasks of shop, mailing, books run" in said
    assert '"BACKEND": "holdfast_django.tasks.HoldfastBackend"' in said
    sqlite_project.configure("TASKS = {}\n")
    assert "W003" not in findings(sqlite_project)


def test_a_wrong_application_is_explained_by_commands_and_where_nothing_checks(
    sqlite_project: Project,
) -> None:
    sqlite_project.configure('HOLDFAST_APP = "shop.jbos.app"\n')
    expected = "HOLDFAST_APP is 'shop.jbos.app': module shop.jbos not found"
    said = sqlite_project.try_to_manage("holdfast", "status").stdout
    assert f"error[HF092]: {expected}" in said
    assert "Traceback" not in said
    sqlite_project.write("server.py", SERVER)
    served = subprocess.run(
        [sqlite_project.python, "server.py"],
        cwd=sqlite_project.folder,
        env=sqlite_project.environment(),
        capture_output=True,
        text=True,
    )
    assert served.returncode == 1
    assert (
        served.stderr.strip().splitlines()[-1].endswith(f"AppNotLoaded: [HF092] {expected} {NAMED}")
    )


def test_missing_and_old_tables_are_the_business_of_manage_py_migrate(project: Project) -> None:
    project.evaluate(BEGIN_WITHOUT_TABLES)
    started = project.try_to_manage("shell", "-c", START)
    assert "[HF040]" in started.stdout or "[HF041]" in started.stdout
    assert "(run `manage.py migrate`)" in started.stdout
    refused = project.try_to_manage("holdfast", "worker", "--drain").stdout
    assert "manage.py migrate`" in refused
    assert "holdfast migrate" not in refused
    project.manage("migrate", "--run-syncdb")
    project.evaluate(FORGET_THE_LAST_MIGRATION)
    for old in (
        project.try_to_manage("shell", "-c", START),
        project.try_to_manage("holdfast", "worker", "--drain"),
        project.try_to_manage("holdfast", "jobs", "list"),
    ):
        assert "HF041" in old.stdout
        assert "run `manage.py migrate`" in old.stdout


def test_advice_fits_what_is_wrong(postgres_url: str, sqlite_project: Project) -> None:
    sqlite_project.write("shop/tasks.py", "from holdfast_django import app\n")
    sqlite_project.configure('HOLDFAST_DATABASE = "elsewhere"\n')
    said = findings(sqlite_project)
    assert (
        "HOLDFAST_DATABASE is 'elsewhere', which is not in DATABASES (use one of default)" in said
    )
    gone = described(postgres_url) | {"HOST": "127.0.0.1", "PORT": "1"}
    sqlite_project.configure(f'HOLDFAST_DATABASE = "gone"; DATABASES["gone"] = {gone!r}\n')
    said = findings(sqlite_project, "--database", "gone")
    assert "HINT: check that the server is running" in said
    assert "manage.py migrate" not in said


def test_advice_is_a_command_of_manage_py(project: Project) -> None:
    project.manage("migrate", "--run-syncdb")
    project.evaluate(
        """
        from tests.django.contract_tasks import fail
        fail.enqueue("see here")
        answer(None)
        """
    )
    project.manage("holdfast", "worker", "--drain")
    assert "HINT: manage.py holdfast dead list" in findings(project, "--database", "default")


def test_advice_names_the_database_that_is_not_djangos_default(sqlite_project: Project) -> None:
    sqlite_project.configure(
        """
        DATABASES["jobs"] = DATABASES["default"] | {"NAME": DATABASES["default"]["NAME"] + ".jobs"}
        HOLDFAST_DATABASE = "jobs"
        """
    )
    sqlite_project.manage("migrate", "--run-syncdb")
    said = sqlite_project.try_to_manage("holdfast", "status").stdout
    assert "create it with `manage.py migrate --database jobs`" in said
    assert "HINT: run manage.py migrate --database jobs" in findings(
        sqlite_project, "--database", "jobs"
    )
    sqlite_project.manage("migrate", "--database", "jobs")
    sqlite_project.manage("holdfast", "status")


def test_holdfast_alone_imports_nothing_of_it() -> None:
    script = """if True:
        import sys, holdfast, holdfast.app, holdfast_testing.plugin
        print([each for each in sys.modules if each.split(".")[0] in ("django", "django_tasks", "asgiref")])
    """
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_project_without_tasks_needs_no_backport(sqlite_project: Project) -> None:
    sqlite_project.configure(
        """
        import sys
        del TASKS
        INSTALLED_APPS = [each for each in INSTALLED_APPS if each != "django_tasks"]
        sys.modules["django_tasks"] = None
        """
    )
    assert "no issues" in findings(sqlite_project)


@pytest.mark.parametrize(
    "line", ["--help", "jobs list --help", "migrate --help", "jobs", "retry", "jobs show 123"]
)
def test_help_and_errors_name_the_command_that_is_typed(sqlite_project: Project, line: str) -> None:
    sqlite_project.manage("migrate")
    said = sqlite_project.try_to_manage("holdfast", *line.split()).stdout
    assert "manage.py holdfast " in said
    assert not re.search(r"(?<!manage\.py )\bholdfast [a-z-]", said), said
