"""What `manage.py check` finds, and what a process that does not use Django never imports."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.contrib.django.project import PATIENCE_S, Project

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
        ('INSTALLED_APPS.remove("holdfast.contrib.django")\n', ["E001"]),
        ('TASKS["default"]["OPTIONS"]["url"] = "sqlite:///x"\n', ["E002"]),
        ('TASKS["default"]["QUEUES"] = ["default", "a b"]\n', ["E003"]),
        ('HOLDFAST_DATABASE = "elsewhere"\n', ["E004"]),
        ('HOLDFAST_APP = "shop.own.app"\n', ["E006"]),
        ('HOLDFAST_APP = "os.path"\n', ["is not a Holdfast()"]),
        ('DATABASES["default"]["OPTIONS"] = {}\n', ["W002"]),
        ('DATABASES["default"]["AUTOCOMMIT"] = False\n', ["W001"]),
    ],
)
def test_a_mistake_is_found(sqlite_project: Project, settings: str, codes: list[str]) -> None:
    sqlite_project.write(
        "shop/own.py", "from holdfast import Holdfast\napp = Holdfast('sqlite:///other.db')\n"
    )
    sqlite_project.configure(f"{settings}INSTALLED_APPS = list(INSTALLED_APPS)\n")
    said = findings(sqlite_project)
    for each in codes:
        assert each in said


def test_holdfast_alone_imports_nothing_of_it() -> None:
    script = """if True:
        import sys, holdfast, holdfast.app, holdfast.testing.plugin
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
