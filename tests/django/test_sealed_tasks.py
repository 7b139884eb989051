"""Tasks whose arguments and values are sealed: run as any other, and nowhere in clear."""

from __future__ import annotations

import pytest

from holdfast import Seal
from tests.django.project import PATIENCE_S, Project
from tests.sealed.clinic import SECRET
from tests.sealed.test_secret_life import dump

pytestmark = pytest.mark.timeout(4 * PATIENCE_S)

TASKS = f"""
    from holdfast_django.tasks import task

    SECRET = {SECRET!r}

    @task(sealed=True, key="letter:{{number}}")
    def write(number, patient):
        return f"Dear {{patient}}"

    @task(sealed=True)
    def fail(patient):
        raise ValueError(f"no bed for {{patient}}")

    @task(sealed=True)
    async def fail_later(patient):
        try:
            raise KeyError(patient)
        except KeyError as error:
            raise ValueError(f"no bed for {{patient}}") from error
"""
ENQUEUED = """
    from shop.tasks import *
    answer([write.enqueue(7, patient=SECRET).id, fail.enqueue(SECRET).id, fail_later.enqueue(SECRET).id])
"""


def hold_key(project: Project, key: str) -> None:
    """Give every process of the project a key, as its environment would."""
    project.configure(f"""
        import os
        os.environ["HOLDFAST_SEAL_KEYS"] = "2026-11:{key}"
    """)


def test_a_sealed_task_runs_and_is_nowhere_in_clear(
    project: Project, request: pytest.FixtureRequest
) -> None:
    is_file = "sqlite" in request.node.name
    url = f"sqlite:///{project.folder / 'shop.sqlite3'}" if is_file else None
    url = url or request.getfixturevalue("postgres_url")
    without_key = (project.folder / "config.py").read_text()
    hold_key(project, Seal.new_key())
    project.write("shop/tasks.py", TASKS)
    project.manage("migrate", "--run-syncdb")
    written, *failed = project.evaluate(ENQUEUED)
    said = project.manage("holdfast", "worker", "--drain", "--log-level", "debug")
    assert "ValueError" in said
    assert "(the text is sealed)" in said
    assert SECRET not in said
    assert SECRET not in dump(url)
    value, *errors = project.evaluate(
        f"""
        from holdfast_django.tasks_api import task_backends
        results = [task_backends["default"].get_result(each) for each in {[written, *failed]!r}]
        answer([results[0].return_value, *(
            [str(each.status), each.args, each.errors[0].exception_class_path, each.errors[0].traceback]
            for each in results[1:])])
        """
    )
    assert value == f"Dear {SECRET}"
    for status, args, raised, text in errors:
        assert (status, args, raised) == ("FAILED", [SECRET], "builtins.ValueError")
        assert "shop/tasks.py" in text
        assert SECRET not in text
    found = project.manage("holdfast", "jobs", "list", "key:letter:7", "-o", "id").split()
    assert found == [written]
    (project.folder / "config.py").write_text(without_key)
    shown = project.manage("holdfast", "jobs", "show", written)
    assert '"sealed"' in shown
    assert SECRET not in shown
    for code in (f"write.get_result({written!r})", "write.enqueue(8, patient='x')"):
        refused = project.evaluate(
            f"""
            from shop.tasks import write
            try:
                {code}
            except Exception as error:
                answer(str(error))
            """
        )
        assert "HF120" in refused


def test_sealed_takes_a_yes_or_no(sqlite_project: Project) -> None:
    sqlite_project.write("shop/tasks.py", TASKS)
    refused = sqlite_project.evaluate(
        """
        from holdfast_django.tasks import task
        from holdfast_django.tasks_api import InvalidTask
        from shop.tasks import write
        try:
            task(sealed="2026-11")(write.func)
        except InvalidTask as error:
            answer(str(error))
        """
    )
    assert refused == "sealed must be True or False, not '2026-11'."
