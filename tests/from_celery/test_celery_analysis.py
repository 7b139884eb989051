"""What `holdfast migrate-from celery` says of a code base, which it reads and never imports."""

from __future__ import annotations

import json
import pkgutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from holdfast.cli.exit_codes import Exit
from holdfast_celery.analysis import Analysis, analyse
from holdfast_celery.companions import patched_name
from holdfast_celery.edits import plan_edits
from tests.cli.processes import Command
from tests.support.until import PATIENCE_S

SHOP = Path(__file__).parent / "celery_shop"

SETTINGS = """
CELERY_BROKER_URL = "redis://localhost"
CELERY_TIMEZONE = "UTC"
CELERY_TASK_SERIALIZER = "pickle"
"""

PROJECT = """
import celery
from celery import Task, chain, shared_task
from celery.result import AsyncResult
from celery.schedules import crontab, solar
from celery.signals import task_failure
from celery.exceptions import Ignore
from celery.utils.log import get_task_logger
from kombu import Queue

raise RuntimeError("it is read, not imported")

app = celery.Celery("other", backend="rpc://", **more)
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.task_routes = {"*": "a"}
app.conf["worker_pool"] = "solo"
app.conf.update({"task_always_eager": True}, **computed)
app.conf.beat_schedule = {
    "monday": {"task": "t", "schedule": crontab(day_of_week=1, day_of_month="1-7"), "options": {"queue": "q"}},
    "sunset": {"task": "t", "schedule": solar("sunset", 1, 2), "relative": True},
    "made": make_entry(),
}

class Base(Task):
    pass

@app.task(bind=True, base=Base, acks_late=False, retry_kwargs={"max_retries": 3, "queue": "x"})
def mail(self, to):
    self.send_event("progress")
    print(self.request.delivery_info, self.request.id)
    raise self.retry(max_retries=9)

@shared_task(rate_limit="10/m", **options)
def other():
    mail.apply_async((1,), queue="slow", countdown=3)
    mail.s(1).set(chord=other.s()).apply_async(shadow="x")
    chain(mail.s(1), other.si()).apply_async(headers={})
    pool.apply_async(print, queue="not ours")
    mail.apply((1,), throw=True, max_retries=0, shadow="x")
    mail.replace(other.s())
    chain(mail.s(1).stamp(other.s()), other.si()).delay()
    AsyncResult("x").children
    app.send_task("mail", routing_key="k")
    app.control.purge()
    workers = app.control.inspect()
    workers.active(), workers.scheduled()
    started = mail.delay(1)
    started.ready(), started.children, somebody.parent

@shared_task
async def later():
    pass
"""

TO_CHANGE = {
    "CELERY_TASK_SERIALIZER",
    "from celery.schedules import solar",
    "from celery.exceptions import Ignore",
    "celery.Celery(backend=…)",
    "celery.Celery(**more)",
    "conf['worker_pool']",
    "conf.update(…)",
    "crontab(day_of_week=…, day_of_month=…)",
    "beat entry 'sunset' relative",
    "beat entry 'made'",
    "solar(…)",
    "@app.task(acks_late=…)",
    "@app.task(retry_kwargs=…)['queue']",
    "self.send_event",
    "self.request.delivery_info",
    "@shared_task(**options)",
    "mail.s(1).set(chord=…)",
    "mail.s(1).set(chord=other.s()).apply_async(shadow=…)",
    "mail.replace",
    "mail.apply(shadow=…)",
    "mail.s(1).stamp",
    "from kombu import …",
    "AsyncResult('x').children",
    "app.control.purge",
    "workers.scheduled",
    "started.children",
    "app.send_task(routing_key=…)",
    "@shared_task async def later",
}


@pytest.fixture
def found(tmp_path: Path) -> Analysis:
    """What is found in a project with one of everything."""
    (tmp_path / "settings.py").write_text(SETTINGS)
    (tmp_path / "jobs.py").write_text(PROJECT)
    (tmp_path / "broken.py").write_text("import celery\ndef (:")
    hidden = tmp_path / "venv" / "lib"
    hidden.mkdir(parents=True)
    (hidden / "theirs.py").write_text("from celery.signals import task_failure")
    return analyse(tmp_path)


def test_what_is_not_covered_is_found_and_nothing_else(found: Analysis) -> None:
    broken = "a file that cannot be parsed"
    assert {each.what for each in found.to_change} == TO_CHANGE | {broken}
    assert all(each.instead for each in found.to_change)
    assert (found.tasks, found.files) == (3, 2)


def test_what_is_covered_is_found(found: Analysis) -> None:
    assert {
        "CELERY_TIMEZONE",
        "from celery.schedules import crontab",
        "mail.apply_async(countdown=…)",
        "@app.task(bind=…)",
        "self.request.id",
        "beat entry 'monday'",
    } <= {each.what for each in found.covered}


def run(*words: str) -> tuple[int, str, str]:
    """Run the command as a process."""
    with Command("migrate-from", *words) as command:
        data, said = command.process.communicate(timeout=PATIENCE_S)
        return command.process.returncode, data, said


def test_the_command_prints_what_to_write_instead() -> None:
    code, data, said = run("celery", str(SHOP))
    assert code == Exit.OK
    assert data.count("instead: ") == 4
    assert "@shared_task(soft_time_limit=…)\n    instead: threads cannot be" in data
    assert "8 tasks in 3 files: 52 uses of Celery covered, 4 to change" in said
    code, data, _ = run("celery", str(SHOP), "--all")
    assert (code, data.count("covered: "), data.count("instead: ")) == (Exit.OK, 52, 4)


def test_the_command_prints_json_and_checks() -> None:
    code, data, said = run("celery", str(SHOP), "--check", "-o", "json")
    answer = json.loads(data)
    assert code == Exit.CHECK_NOT_MET
    assert "HF094" in said
    assert (answer["tasks"], answer["covered"], answer["to_change"]) == (8, 52, 4)
    assert {
        name: next(each for each in answer["findings"] if not each["covered"])[name]
        for name in ("file", "line", "covered")
    } == {"file": "shop/app.py", "line": 10, "covered": False}


@pytest.mark.parametrize(
    ("words", "message"),
    [(("celery", "nowhere"), "nowhere does not exist"), (("rq", "."), "no command 'rq'")],
)
def test_what_cannot_be_read_is_refused(words: tuple[str, ...], message: str) -> None:
    code, _, said = run(*words)
    assert code == Exit.USAGE
    assert message in said


def test_a_project_without_celery_has_nothing_to_change(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("print('hello')")
    code, data, said = run("celery", str(tmp_path), "--check")
    assert (code, data) == (Exit.OK, "")
    assert "no uses of Celery found" in said


def test_settings_below_if_and_try_and_installed_apps_are_read(tmp_path: Path) -> None:
    (tmp_path / "settings.py").write_text(
        """
INSTALLED_APPS = ["django.contrib.admin", "django_celery_beat"]
INSTALLED_APPS += ["django_celery_results.apps.Results"]
if DEBUG:
    CELERY_TASK_ALWAYS_EAGER = True
else:
    try:
        CELERY_WORKER_POOL = os.environ["POOL"]
    except KeyError:
        CELERY_RESULT_EXPIRES: int = 60
"""
    )
    (tmp_path / "celery.py").write_text(
        'from celery import Celery\napp = Celery("shop")\n'
        'app.config_from_object("django.conf:settings", namespace="CELERY")\n'
    )
    found = analyse(tmp_path)
    places = [(each.line, each.what) for each in found.to_change if each.file == "settings.py"]
    assert places == [
        (2, "INSTALLED_APPS: django_celery_beat"),
        (3, "INSTALLED_APPS: django_celery_results.apps.Results"),
        (8, "CELERY_WORKER_POOL"),
        (10, "CELERY_RESULT_EXPIRES"),
    ]


def test_tasks_of_an_application_of_another_file_are_found_and_files_without_celery_left_alone(
    tmp_path: Path,
) -> None:
    (tmp_path / "a_tasks.py").write_text(
        "from shop import app\n@app.task(acks_late=False)\ndef mail(): ...\n"
    )
    (tmp_path / "calls.py").write_text("from a_tasks import mail\nmail.apply_async(shadow=1)\n")
    (tmp_path / "other.py").write_text("this is no Python and has nothing to do with it\n")
    (tmp_path / "shop.py").write_text("import celery\napp = celery.Celery('shop')\n")
    found = analyse(tmp_path)
    assert found.tasks == 1
    assert {each.file for each in found.to_change} == {"a_tasks.py", "calls.py"}


def test_a_folder_whose_application_is_elsewhere_is_named_and_its_tasks_are_found(
    tmp_path: Path,
) -> None:
    (tmp_path / "shop" / "mails").mkdir(parents=True)
    (tmp_path / "shop" / "celery.py").write_text("from celery import Celery\nmain = Celery('shop')")
    (tmp_path / "shop" / "mails" / "tasks.py").write_text(
        "from ..celery import main as app\n@app.task(acks_late=False)\ndef mail(): ...\n"
    )
    part = analyse(tmp_path / "shop" / "mails")
    assert (part.tasks, [each.what for each in part.to_change]) == (1, ["@app.task(acks_late=…)"])
    assert [each.startswith("no application") for each in part.warnings] == [True]
    assert analyse(tmp_path).warnings == ()
    _, _, said = run("celery", str(tmp_path / "shop" / "mails"))
    assert "warning: no application" in said


def test_signals_are_looked_up_by_their_names(tmp_path: Path) -> None:
    (tmp_path / "hooks.py").write_text(
        "from celery import signals\nfrom celery.signals import task_prerun, beat_init\n"
        "signals.task_unknown.connect(print)\nsignals.task_failure.connect(print)\n"
    )
    found = analyse(tmp_path)
    assert {each.what for each in found.to_change} == {
        "from celery.signals import beat_init",
        "signals.task_unknown",
    }


def test_settings_that_are_ignored_and_those_of_before_celery_4_are_known(tmp_path: Path) -> None:
    (tmp_path / "settings.py").write_text(
        'BROKER_URL = "redis://"\nCELERYBEAT_SCHEDULE = {}\nCELERYD_MAX_TASKS_PER_CHILD = 3\nOTHER = 1\n'
    )
    application = 'from celery import Celery\napp = Celery("shop")\n'
    read = 'app.config_from_object("django.conf:settings"'
    (tmp_path / "celery.py").write_text(f"{application}{read})\n")
    assert {each.what for each in analyse(tmp_path).to_change} == {"CELERYD_MAX_TASKS_PER_CHILD"}
    (tmp_path / "celery.py").write_text(
        f'{application}{read}, ignore=["worker_max_tasks_per_child"])\n'
    )
    assert analyse(tmp_path).to_change == ()


def test_many_files_are_read_in_batches(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"tasks_{number}.py").write_text("from celery import shared_task\n")
    sizes: list[int] = []

    def batches(files: Sequence[Path]) -> Iterator[Sequence[Path]]:
        for start in range(0, len(files), 2):
            sizes.append(len(files[start : start + 2]))
            yield files[start : start + 2]

    assert analyse(tmp_path, batches).files == 5
    assert sizes == [2, 2, 1]


def test_packages_beside_celery_and_its_names_in_texts_are_found(tmp_path: Path) -> None:
    (tmp_path / "settings.py").write_text('INSTALLED_APPS = ["celery", "shop"]\n')
    (tmp_path / "views.py").write_text(
        "from billiard.exceptions import SoftTimeLimitExceeded\n"
        "from django_celery_beat.models import PeriodicTask\n"
        "from sentry_sdk.integrations.celery import CeleryIntegration\n"
        "import kombu.serialization\n"
        "from shop.celery import app\n"
    )
    (tmp_path / "tests.py").write_text(
        'patch("celery.app.control.Inspect.ping")\n'
        'monkeypatch.setattr("celery.worker.state.reserved", 1)\n'
        'name.startswith("celery."), LOGGERS.get("celery.utils")\n'
    )
    found = analyse(tmp_path)
    assert [(each.file, each.what) for each in found.to_change] == [
        ("settings.py", "INSTALLED_APPS: celery"),
        ("tests.py", '"celery.app.control.Inspect.ping"'),
        ("tests.py", '"celery.worker.state.reserved"'),
        ("views.py", "from billiard.exceptions import …"),
        ("views.py", "from django_celery_beat.models import …"),
        ("views.py", "from sentry_sdk.integrations.celery import …"),
        ("views.py", "import kombu.serialization"),
    ]


@pytest.mark.parametrize("name", ["Task.retry", "app.control.Inspect.ping", "result.AsyncResult"])
def test_what_takes_the_place_of_a_patched_name_exists(name: str) -> None:
    ours = patched_name(f"celery.{name}")
    assert ours is not None
    assert pkgutil.resolve_name(ours) is not None


PICKLED = """
from celery import Task, shared_task

@shared_task(bind=True)
def work(
    self: Task,
    document: Document,
    ids: "list[int] | None",
    prices: dict[str, Decimal],
    numbers: dict[int, str],
    path: Path | None = None,
    report: Callable[[str], None] | None = None,
    wrap: Callable = identity,
    *,
    mode: Literal["fast"] = "fast",
    when: datetime.datetime,
    rest=None,
): ...
"""


def test_parameters_that_no_json_becomes_are_found_where_arguments_are_pickled(
    tmp_path: Path,
) -> None:
    (tmp_path / "tasks.py").write_text(PICKLED)
    (tmp_path / "celery.py").write_text("import celery\napp = celery.Celery('shop')\n")
    assert analyse(tmp_path).to_change == ()
    (tmp_path / "settings.py").write_text('CELERY_TASK_SERIALIZER = "signed-pickle"\n')
    assert [each.what for each in analyse(tmp_path).to_change] == [
        "work(document: Document)",
        "work(numbers: dict[int, str])",
        "work(path: Path | None)",
    ]


def test_applications_and_tasks_of_derived_classes_and_starts_of_pipes_are_found(
    tmp_path: Path,
) -> None:
    (tmp_path / "shop.py").write_text(
        """
from celery import Celery as Base, Task

class Shop(Base):
    pass

app = Shop("shop", task_cls=Task)
app.conf.result_expires = 5

class Noting(app.Task):
    acks_late = False
    max_retries = 3
    mine = 5

    def shadow_name(self, args, kwargs, options):
        return "a"

class Other(Task):
    soft_time_limit = 5

@app.task(base=Noting)
def mail(to): ...

(mail.si(1) | mail.si(2)).apply_async(shadow="x")
"""
    )
    found = analyse(tmp_path)
    assert {each.what for each in found.to_change} == {
        "Shop(task_cls=…)",
        "conf.result_expires",
        "class Noting: acks_late",
        "class Noting: shadow_name",
        "class Other: soft_time_limit",
        "(mail.si(1) | mail.si(2)).apply_async(shadow=…)",
    }
    assert "class Noting: max_retries" in {each.what for each in found.covered}
    assert found.warnings == ()


def test_a_link_to_nowhere_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("from celery import shared_task\n")
    (tmp_path / ".#shop.py").symlink_to("someone@host.1234")
    assert analyse(tmp_path).files == 1


def test_options_of_a_task_that_is_made_by_a_call_are_read(tmp_path: Path) -> None:
    (tmp_path / "views.py").write_text(
        "from celery import Celery\napp = Celery('shop')\n"
        "class View:\n"
        "    def __init_subclass__(cls):\n"
        "        cls.execute = app.task(bind=True, soft_time_limit=3, typing=False)(execute)\n"
    )
    found = analyse(tmp_path)
    assert [each.what for each in found.to_change] == [
        "app.task(soft_time_limit=…)",
        "app.task(typing=…)",
    ]
    assert "app.task(bind=True, soft_time_limit=3)(execute)" in (
        plan_edits(tmp_path, found).files[0].after.decode()
    )
