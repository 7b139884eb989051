"""What `holdfast migrate-from celery --write` changes in a project, and what it leaves alone."""

from __future__ import annotations

import json
import subprocess
import textwrap
from pathlib import Path

import pytest

from holdfast.cli.exit_codes import Exit
from holdfast_celery.analysis import analyse
from holdfast_celery.edits import plan_edits
from tests.cli.processes import Command
from tests.support.until import PATIENCE_S

TASKS = '''\
"""Mails, in the background."""

import os  # kept
from celery import shared_task
from celery.exceptions import Retry  # a comment
from celery.utils.log import (
    # of the worker
    get_task_logger as logger_of,
)


@shared_task(  # sends one
    bind = True,   typing=False,
    lazy=True,  # tasks register themselves
    # as often as it takes
    max_retries=None,
    resultrepr_maxsize=100
)
def mail(self, to: "str"):
    return f'{to} – über'  # ünïcode, then what is removed


@shared_task(shared=True)
def other(): mail.apply_async(("ana",), retry=False, countdown=3); mail.apply_async(retry_policy={})
'''

MOVED_TASKS = '''\
"""Mails, in the background."""

import os  # kept
from holdfast_celery import shared_task
from holdfast_celery.exceptions import Retry  # a comment
from holdfast_celery.utils.log import (
    # of the worker
    get_task_logger as logger_of,
)


@shared_task(  # sends one
    bind = True,
    # as often as it takes
    max_retries=None,
)
def mail(self, to: "str"):
    return f'{to} – über'  # ünïcode, then what is removed


@shared_task()
def other(): mail.apply_async(("ana",), countdown=3); mail.apply_async()
'''


def write(folder: Path, **files: str) -> Path:
    """Write the files of a project; `__` in a name is a folder."""
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(textwrap.dedent(text).encode())
    return folder


def move(folder: Path) -> dict[str, str]:
    """Make the edits; return the files that were edited."""
    edits = plan_edits(folder, analyse(folder))
    edits.write(folder)
    return {each.file: each.after.decode() for each in edits.files}


def left(folder: Path) -> set[str]:
    """What is left to change."""
    return {each.what for each in analyse(folder).to_change}


def test_only_what_is_moved_changes_and_a_second_run_finds_nothing(tmp_path: Path) -> None:
    write(tmp_path, tasks=TASKS)
    assert move(tmp_path) == {"tasks.py": MOVED_TASKS}
    assert move(tmp_path) == {}
    assert left(tmp_path) == set()


def test_line_ends_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_bytes(TASKS.replace("\n", "\r\n").encode())
    assert move(tmp_path) == {"tasks.py": MOVED_TASKS.replace("\n", "\r\n")}


def test_the_application_loses_its_broker_and_settings_that_change_nothing(tmp_path: Path) -> None:
    write(
        tmp_path,
        app="""
            import celery

            app = celery.Celery("shop", broker="redis://", include=["tasks"], backend="rpc://")
            app.conf.update(
                timezone="UTC",
                worker_prefetch_multiplier=1,  # one each
                # read by nobody
                task_acks_late=True,
                broker_pool_limit=None
            )
            app.conf.update({"result_backend": "rpc://", "enable_utc": True})
            app.conf.redis_max_connections = 4
            if app:
                app.conf.broker_url = "redis://"
        """,
    )
    assert move(tmp_path) == {
        "app.py": textwrap.dedent(
            """
            import holdfast_celery

            app = holdfast_celery.Celery("shop", include=["tasks"])
            app.conf.update(
                timezone="UTC",
                # read by nobody
                task_acks_late=True,
            )
            app.conf.update({"enable_utc": True})
            if app:
                app.conf.broker_url = "redis://"
            """
        )
    }
    assert left(tmp_path) == {"conf.broker_url"}, "it is all that its block has"
    assert move(tmp_path) == {}


def test_names_that_are_not_covered_keep_their_import_and_are_listed(tmp_path: Path) -> None:
    write(
        tmp_path,
        tasks="""
            from celery import current_app, shared_task
            from celery.app.task import Task
            from celery import signals
            import os, celery.result as results, celery.exceptions
            print(results.AsyncResult, celery.exceptions.Retry, os.celery)
        """,
    )
    assert move(tmp_path) == {
        "tasks.py": textwrap.dedent(
            """
            from holdfast_celery import shared_task
            from celery import current_app
            from holdfast_celery import Task
            from holdfast_celery import signals
            import os, holdfast_celery.result as results, holdfast_celery.exceptions
            print(results.AsyncResult, holdfast_celery.exceptions.Retry, os.celery)
            """
        )
    }
    assert left(tmp_path) == {"from celery import current_app"}
    assert move(tmp_path) == {}


def test_modules_that_are_used_by_the_package_alone_are_imported(tmp_path: Path) -> None:
    text = "import celery\nimport celery.result\nprint(celery.result.AsyncResult)\n"
    write(tmp_path, both=text)
    assert move(tmp_path) == {
        "both.py": text.replace("celery", "holdfast_celery", 1).replace(
            "celery\nimport celery.result\nprint(celery",
            "celery.result\nimport holdfast_celery.result\nprint(holdfast_celery",
        )
    }
    write(
        tmp_path, tasks="import celery\nprint(celery.result.AsyncResult, celery.exceptions.Retry)\n"
    )
    assert move(tmp_path) == {
        "tasks.py": "import holdfast_celery.exceptions, holdfast_celery.result\n"
        "print(holdfast_celery.result.AsyncResult, holdfast_celery.exceptions.Retry)\n"
    }
    assert move(tmp_path) == {}


@pytest.mark.parametrize(
    "text",
    [
        "from celery import *",
        "import celery.worker",
        "import celery as package\npackage.result.AsyncResult",
        "from celery.nowhere import something",
        "from celery import shared_task\n@shared_task(**options)\ndef f(): ...",
        "from celery import shared_task\n@shared_task(mystery=1)\ndef f(): ...",
        "from celery import Celery\napp = Celery('a', loader)",
        "try:\n    from celery import shared_task\nexcept ImportError:\n    shared_task = None",
        "from celery import (\n    shared_task,\n    current_app,\n)",
        "# coding: latin-1\nfrom celery import shared_task",
        "from celery import shared_task\ndef (:",
    ],
)
def test_a_file_that_is_not_understood_is_left_alone(tmp_path: Path, text: str) -> None:
    write(tmp_path, tasks=text, other="from celery import chain\n")
    assert set(move(tmp_path)) == {"other.py"}
    assert (tmp_path / "tasks.py").read_text() == text
    assert plan_edits(tmp_path, analyse(tmp_path)).untouched or left(tmp_path)


DJANGO = {
    "site__proj__celery": """\
        import os

        from celery import Celery

        os.environ.setdefault('DJANGO_SETTINGS_MODULE', 'proj.settings')
        app = Celery('proj')
        app.config_from_object('django.conf:settings', namespace='CELERY')
        app.autodiscover_tasks()
    """,
    "site__proj__settings": """\
        INSTALLED_APPS = [
            'django.contrib.admin',
            'mails',
        ]  # ours and Django's
        if DEBUG:
            CELERY_BROKER_URL = 'memory://'
        else:
            CELERY_BROKER_URL = 'redis://'
        CELERY_RESULT_BACKEND = 'rpc://'
        CELERY_TASK_SOFT_TIME_LIMIT = 3
    """,
}
MOVED_DJANGO = {
    "site/proj/celery.py": """\
        import os

        from holdfast_celery import Celery
        from holdfast_django import database_url

        os.environ.setdefault('DJANGO_SETTINGS_MODULE', 'proj.settings')
        app = Celery('proj', url=database_url)
        app.config_from_object('django.conf:settings', namespace='CELERY')
        app.autodiscover_tasks()
    """,
    "site/proj/settings.py": """\
        INSTALLED_APPS = [
            'holdfast_django',
            'django.contrib.admin',
            'mails',
        ]  # ours and Django's
        HOLDFAST_APP = 'proj.celery.app'
        if DEBUG:
            CELERY_BROKER_URL = 'memory://'
        else:
            CELERY_BROKER_URL = 'redis://'
        CELERY_RESULT_BACKEND = 'rpc://'
        CELERY_TASK_SOFT_TIME_LIMIT = 3
    """,
}


def test_a_django_project_gets_its_database_its_installed_app_and_its_setting(
    tmp_path: Path,
) -> None:
    write(tmp_path, **DJANGO)
    assert move(tmp_path) == {file: textwrap.dedent(text) for file, text in MOVED_DJANGO.items()}
    assert move(tmp_path) == {}


def test_apps_and_patched_names_of_celery_are_moved(tmp_path: Path) -> None:
    write(
        tmp_path,
        settings="INSTALLED_APPS = ['celery', 'shop']\n",
        tests="""\
            @patch('celery.app.control.Inspect.ping')
            def test_ping(ping): monkeypatch.setattr("celery.Task.retry", retry)
        """,
    )
    assert move(tmp_path) == {
        "settings.py": "INSTALLED_APPS = ['shop']\n",
        "tests.py": textwrap.dedent(
            """\
            @patch('holdfast_celery.control.WorkerInspection.ping')
            def test_ping(ping): monkeypatch.setattr("holdfast_celery.Task.retry", retry)
            """
        ),
    }
    assert left(tmp_path) == set()


def test_settings_that_do_not_mention_celery_name_the_application(tmp_path: Path) -> None:
    write(tmp_path, **DJANGO | {"site__proj__settings": "INSTALLED_APPS: list = ['mails']\n"})
    assert plan_edits(tmp_path, analyse(tmp_path)).warnings == ()
    assert move(tmp_path)["site/proj/settings.py"] == (
        "INSTALLED_APPS: list = ['holdfast_django', 'mails']\nHOLDFAST_APP = 'proj.celery.app'\n"
    )


def test_what_to_add_to_settings_is_said_where_several_files_have_them(tmp_path: Path) -> None:
    write(tmp_path, **DJANGO, site__proj__tests="INSTALLED_APPS = ['mails']\n")
    (said,) = plan_edits(tmp_path, analyse(tmp_path)).warnings
    assert "HOLDFAST_APP = 'proj.celery.app'" in said
    assert set(move(tmp_path)) == {"site/proj/celery.py"}


def test_what_to_add_to_settings_is_said_where_the_application_does_not_name_them(
    tmp_path: Path,
) -> None:
    app = DJANGO["site__proj__celery"].replace("proj.settings", "elsewhere.settings")
    write(tmp_path, **DJANGO | {"site__proj__celery": app})
    (said,) = plan_edits(tmp_path, analyse(tmp_path)).warnings
    assert "HOLDFAST_APP, the dotted name of app in site/proj/celery.py" in said
    settings = tmp_path / "site/proj/settings.py"
    settings.write_text("INSTALLED_APPS = ['holdfast_django', 'mails']\n")
    assert plan_edits(tmp_path, analyse(tmp_path)).warnings == ()


def test_settings_are_left_alone_while_the_application_cannot_be_moved(tmp_path: Path) -> None:
    app = DJANGO["site__proj__celery"].replace("Celery('proj')", "Celery('proj', **more)")
    write(tmp_path, **DJANGO | {"site__proj__celery": app})
    assert move(tmp_path) == {}


def run(*words: str) -> tuple[int, str, str]:
    """Run the command as a process."""
    with Command("migrate-from", "celery", *words) as command:
        data, said = command.process.communicate(timeout=PATIENCE_S)
        return command.process.returncode, data, said


def git(folder: Path, *words: str) -> None:
    """Run git in a folder, as somebody."""
    who = ("-c", "user.name=ana", "-c", "user.email=ana@example.com")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A project whose files are committed."""
    write(tmp_path, tasks=TASKS)
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "tasks")
    return tmp_path


def test_the_command_prints_a_diff_that_git_applies_and_writes_it(repository: Path) -> None:
    code, diff, said = run(str(repository), "--write", "--dry-run")
    assert (code, (repository / "tasks.py").read_text()) == (Exit.OK, TASKS)
    assert "1 file would be edited" in said
    assert "0 places left to change by hand" in said
    (repository / "move.patch").write_text(diff)
    code, written, said = run(str(repository), "--write")
    assert (code, written) == (Exit.OK, diff)
    assert "1 file edited; review with `git diff`" in said
    assert (repository / "tasks.py").read_text() == MOVED_TASKS
    git(repository, "restore", ".")
    git(repository, "apply", "move.patch")
    assert (repository / "tasks.py").read_text() == MOVED_TASKS


def test_changes_that_are_not_committed_are_not_mixed_with_edits(repository: Path) -> None:
    changed = TASKS + "# mine\n"
    (repository / "tasks.py").write_text(changed)
    code, diff, said = run(str(repository), "--write")
    assert (code, diff) == (Exit.REFUSED, "")
    assert "HF210" in said
    assert "tasks.py" in said
    assert (repository / "tasks.py").read_text() == changed
    code, _, _ = run(str(repository), "--write", "--force")
    assert (code, (repository / "tasks.py").read_text()) == (Exit.OK, MOVED_TASKS + "# mine\n")


def test_a_file_that_git_does_not_know_is_not_edited_either(repository: Path) -> None:
    (repository / "new").mkdir()
    (repository / "new" / "tasks.py").write_text(TASKS)
    code, _, said = run(str(repository), "--write")
    assert (code, "new/tasks.py" in said) == (Exit.REFUSED, True)


def test_a_project_without_git_is_not_edited_unless_told_so(tmp_path: Path) -> None:
    write(tmp_path, tasks=TASKS)
    code, _, said = run(str(tmp_path), "--write")
    assert (code, "is not in a git repository" in said) == (Exit.REFUSED, True)
    code, data, _ = run(str(tmp_path / "tasks.py"), "--write", "--force", "-o", "json")
    answer = json.loads(data)
    assert (code, answer["edited"], answer["untouched"]) == (Exit.OK, ["tasks.py"], [])
    assert "+from holdfast_celery import shared_task\n" in answer["diff"]


def test_options_of_writing_are_refused_without_it(tmp_path: Path) -> None:
    code, _, said = run(str(tmp_path), "--dry-run")
    assert (code, "go with --write" in said) == (Exit.USAGE, True)
