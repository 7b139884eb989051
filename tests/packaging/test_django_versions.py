"""The tests of Django projects again with the oldest and the newest Django that Holdfast supports, from the wheel.

Django 6 needs Python 3.12, which the environment of the tests may not have.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contrib.django.project import PATIENCE_S, Project, make_project
from tests.contrib.django.test_contract import TESTS as CONTRACT
from tests.contrib.django.test_pages import TESTS as PAGES
from tests.contrib.django.test_pages import with_pages
from tests.contrib.django.test_tasks import prepared
from tests.packaging.environment import installed
from tests.support.absent import skip_because_absent

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(4 * PATIENCE_S)]

VERSIONS = {
    "django 4.2": ("3.11", ["django~=4.2.0", "django-tasks"]),
    "django 6.0": ("3.12", ["django~=6.0.0"]),
    "django 6.1": ("3.13", ["django~=6.1.0"]),
}

NEWEST = "django 6.1"


@pytest.fixture(scope="module", params=list(VERSIONS))
def django_python(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """An interpreter with that version and the wheel."""
    version, packages = VERSIONS[request.param]
    interpreter = find_python(version)
    if interpreter is None:
        skip_because_absent(f"Python {version}", "pyenv install, or your system's packages")
    folder = tmp_path_factory.mktemp("django")
    return installed(wheel, "web,postgres", folder, interpreter, packages).python


@pytest.fixture
def project(request: pytest.FixtureRequest, tmp_path: Path, django_python: str) -> Project:
    """A project with that version: on PostgreSQL with the newest, on SQLite with the others."""
    is_newest = NEWEST in request.node.name
    url = request.getfixturevalue("postgres_url") if is_newest else f"sqlite:///{tmp_path}/shop.db"
    return make_project(tmp_path, url, django_python)


def find_python(version: str) -> str | None:
    """Return an interpreter of a version that runs: a shim of pyenv may lead nowhere."""
    for each in candidates(version):
        asked = subprocess.run([each, "--version"], capture_output=True, text=True, check=False)
        if asked.returncode == 0 and asked.stdout.startswith(f"Python {version}."):
            return each
    return None


def candidates(version: str) -> Iterator[str]:
    if found := shutil.which(f"python{version}"):
        yield found
    for root in (Path.home() / ".pyenv", Path("/opt/pyenv")):
        yield from map(str, sorted(root.glob(f"versions/{version}.*/bin/python")))


def test_backend_and_pages_work_with_this_version_of_django(project: Project) -> None:
    with_pages(project)
    project.write("shop/tests.py", CONTRACT)
    project.write("shop/test_pages.py", PAGES)
    said = project.manage("test", "shop")
    assert "\nOK" in said
    assert "skipped" not in said


def test_a_worker_runs_tasks_with_this_version_of_django(project: Project) -> None:
    shop = prepared(project)
    id = shop.evaluate("from shop.tasks import add\nanswer(add.enqueue(1, 2).id)")
    shop.manage("holdfast", "worker", "--drain")
    value = shop.evaluate(
        f"from shop.tasks import add\nanswer(add.get_result({id!r}).return_value)"
    )
    assert value == 3
