"""The tests of Django projects again with the oldest and the newest Django that Holdfast supports, from the wheel.

Django 6 needs Python 3.12, which the environment of the tests may not have.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.django.project import PATIENCE_S, Project, make_project
from tests.django.test_contract import TESTS as CONTRACT
from tests.django.test_pages import TESTS as PAGES
from tests.django.test_pages import with_pages
from tests.django.test_tasks import prepared
from tests.from_celery.test_django_project import KEPT, with_celery
from tests.packaging.environment import installed
from tests.support.absent import skip_because_absent

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(4 * PATIENCE_S)]

VERSIONS = {
    "django 4.2": ("3.11", ["django~=4.2.0", "django-tasks"]),
    "django 6.0": ("3.12", ["django~=6.0.0"]),
    "django 6.1": ("3.13", ["django~=6.1.0"]),
}

NEWEST = "django 6.1"
WITHOUT_KEYWORDS = [6, 0]
"""The version whose decorator takes no keywords of others, as the page says."""

OWN_DECORATOR = """
    import os, time
    from pathlib import Path
    import django
    from holdfast import Limit, Retry
    from shop.models import Order
    if django.VERSION >= (6, 0):
        from django.tasks import task
    else:
        from django_tasks import task

    @task(retry=Retry(base="100ms", max_attempts=2), key="once:{name}", takes_context=True)
    def second_time(context, name):
        if context.attempt < 2:
            raise ValueError("not yet")
        return [context.attempt, name]

    @task(atomic=True)
    def place(name, fails=False):
        Order.objects.create(name=name)
        if fails:
            raise RuntimeError("after the insert")

    @task(limits=[Limit(1, by="tenant")])
    def alone(tenant, number):
        Path(f"running.{number}").touch()
        time.sleep(0.1)  # another one has the time to begin beside it
        with Path("seen").open("a") as seen:
            print(len(list(Path().glob("running.*"))), file=seen)
        Path(f"running.{number}").unlink()
"""
ENQUEUED = """
    from shop.tasks import alone, place, second_time
    ids = [each.id for each in (
        second_time.enqueue("x"), place.enqueue("kept"), place.enqueue("undone", fails=True),
        *(alone.enqueue("a", number) for number in range(4)))]
    assert second_time.enqueue("x").id == ids[0]
    answer(ids)
"""
FOUND = """
from pathlib import Path
from holdfast_django.tasks_api import task_backends
from shop.models import Order
found = [task_backends["default"].get_result(each) for each in ids]
answer([
    [[str(each.status), each._return_value, each.attempts] for each in found],
    list(Order.objects.values_list("name", flat=True)),
    max(map(int, Path("seen").read_text().split()))])
"""
REFUSED = """
    from django.tasks import task
    from holdfast import Retry
    from shop.tasks import add
    try:
        task(retry=Retry())(add.func)
    except TypeError as error:
        answer(str(error))
"""


@pytest.fixture(scope="module", params=list(VERSIONS))
def django_python(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """An interpreter with that version and the wheel."""
    version, packages = VERSIONS[request.param]
    folder = tmp_path_factory.mktemp("django")
    return installed(
        wheel, "web,postgres,django,celery", folder, find_python(version), packages
    ).python


@pytest.fixture
def project(request: pytest.FixtureRequest, tmp_path: Path, django_python: str) -> Project:
    """A project with that version: on PostgreSQL with the newest, on SQLite with the others."""
    is_newest = NEWEST in request.node.name
    url = request.getfixturevalue("postgres_url") if is_newest else f"sqlite:///{tmp_path}/shop.db"
    return make_project(tmp_path, url, django_python)


def find_python(version: str) -> str:
    """Return an interpreter of a version that runs: a shim of pyenv may lead nowhere."""
    found = next((each for each in candidates(version) if is_python(each, version)), None)
    if found is None:
        skip_because_absent(f"Python {version}", "pyenv install, or your system's packages")
    return found


def is_python(program: str, version: str) -> bool:
    asked = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return asked.returncode == 0 and asked.stdout.startswith(f"Python {version}.")


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


def test_the_decorator_of_the_framework_itself_takes_our_options(project: Project) -> None:
    asked = project.evaluate("import django\nanswer(django.VERSION[:2])")
    if asked == WITHOUT_KEYWORDS:
        shop = prepared(project)
        said = shop.evaluate(REFUSED)
        assert "unexpected keyword argument" in said
        return
    project.write("shop/tasks.py", OWN_DECORATOR)
    project.manage("migrate", "--run-syncdb")
    ids = project.evaluate(ENQUEUED)
    for _ in range(3):
        project.manage("holdfast", "worker", "--drain")
        found, orders, most = project.evaluate(f"ids = {ids!r}\n{FOUND}")
        if all(status in ("SUCCESSFUL", "FAILED") for status, _, _ in found):
            break
    second, kept, undone, *alone = found
    assert second == ["SUCCESSFUL", [2, "x"], 2]
    assert kept[0] == "SUCCESSFUL"
    assert undone == ["FAILED", None, 1]
    assert orders == ["kept"]
    assert [status for status, _, _ in alone] == ["SUCCESSFUL"] * 4
    assert most == 1


def test_celery_s_look_alikes_work_with_this_version_of_django(
    project: Project, tmp_path: Path
) -> None:
    shop = with_celery(project, tmp_path)
    assert shop.evaluate("from shop.starts import start\nanswer(start())") == KEPT
    shop.manage("holdfast", "worker", "--drain")
    count = shop.evaluate("from shop.models import Order\nanswer(Order.objects.count())")
    assert count == len(KEPT) + 1


def test_a_worker_runs_tasks_with_this_version_of_django(project: Project) -> None:
    shop = prepared(project)
    id = shop.evaluate("from shop.tasks import add\nanswer(add.enqueue(1, 2).id)")
    shop.manage("holdfast", "worker", "--drain")
    value = shop.evaluate(
        f"from shop.tasks import add\nanswer(add.get_result({id!r}).return_value)"
    )
    assert value == 3
