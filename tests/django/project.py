"""A small Django project in a folder, and its `manage.py`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from holdfast.settings.load import PREFIXES
from tests.support.command import run_command
from tests.support.until import SLOWNESS
from tests.support.warm_python import LIBRARIES, WarmProcess, WarmPython

PATIENCE_S = 120 * SLOWNESS
ROOT = Path(__file__).parents[2]

MANAGE = """
import os, sys
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config")
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""
SETTINGS = """
import django
from pathlib import Path
SECRET_KEY = "of a test"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "holdfast_django", "shop"]
if django.VERSION < (6, 0):
    INSTALLED_APPS.append("django_tasks")
TASKS = {"default": {
    "BACKEND": "holdfast_django.tasks.HoldfastBackend",
    "QUEUES": ["default", "mail"],
    "OPTIONS": {"modules": ["tests.django.contract_tasks"]}}}
"""
IMMEDIATE = """
if django.VERSION >= (5, 1) and "sqlite" in DATABASES["default"]["ENGINE"]:
    DATABASES["default"]["OPTIONS"]["transaction_mode"] = "IMMEDIATE"
"""
MODELS = """
from django.db import models

class Order(models.Model):
    name = models.CharField(max_length=100, unique=True)
"""

DJANGO = WarmPython(
    *LIBRARIES.modules,
    "django.contrib.admin.apps",
    "django.contrib.auth.apps",
    "django.contrib.contenttypes.apps",
    "django.core.management.commands.migrate",
    "django.core.management.commands.test",
    "django.db.backends.postgresql.base",
    "django.db.backends.sqlite3.base",
    "django.forms",
    "django.test",
)
"""What `manage.py` imports in every project."""


@dataclass(frozen=True, slots=True)
class Project:
    """A project with one app, `shop`."""

    folder: Path
    python: str = sys.executable

    def write(self, path: str, text: str) -> None:
        """Write a module, replacing what is there."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text), encoding="utf-8")

    def configure(self, text: str) -> None:
        """Add to the settings."""
        with (self.folder / "config.py").open("a", encoding="utf-8") as file:
            file.write(textwrap.dedent(text))

    def manage(self, *words: str) -> str:
        """Run a command that must succeed; return what it wrote, messages included."""
        done = self.try_to_manage(*words)
        assert done.returncode == 0, f"manage.py {' '.join(words)}\n{done.stdout}"
        return done.stdout

    def try_to_manage(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command, whatever comes of it."""
        if self.python == sys.executable:
            return DJANGO.run(
                ["manage.py", *words], self.folder, self.environment(), PATIENCE_S, joined=True
            )
        words = (self.python, "manage.py", *words)
        return run_command(words, self.folder, self.environment(), PATIENCE_S)

    def evaluate(self, code: str) -> Any:
        """Run code that calls `answer(value)`; return the value."""
        lines = (
            "import json\ndef answer(value): print('answer=' + json.dumps(value, default=str))\n"
        )
        self.write("code.txt", lines + textwrap.dedent(code))
        said = self.manage("shell", "-v", "0", "-c", "exec(open('code.txt').read(), globals())")
        (line,) = [each for each in said.splitlines() if each.startswith("answer=")]
        return json.loads(line.removeprefix("answer="))

    @contextmanager
    def running(self, *words: str) -> Iterator[WarmProcess | subprocess.Popen[str]]:
        """Run a command beside the test; it is killed at the end of the block."""
        process: WarmProcess | subprocess.Popen[str]
        with (self.folder / "process.log").open("a+") as log:
            if self.python == sys.executable:
                words = ("manage.py", *words)
                process = DJANGO.start(words, self.folder, self.environment(), log)
            else:
                process = subprocess.Popen(
                    [self.python, "manage.py", *words],
                    cwd=self.folder,
                    env=self.environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            try:
                yield process
            finally:
                process.kill()
                process.wait()

    @property
    def log(self) -> str:
        """What commands that ran beside the test have written."""
        return (self.folder / "process.log").read_text()

    def environment(self) -> dict[str, str]:
        """Return this process's variables without settings of Holdfast's own."""
        own = {name: text for name, text in os.environ.items() if not name.startswith(PREFIXES)}
        own["PYTHONUNBUFFERED"] = "1"
        # The contract and its tasks are modules of these tests.
        own["PYTHONPATH"] = str(ROOT)
        return own


def make_project(folder: Path, url: str, python: str = sys.executable) -> Project:
    """Write a project that uses a database; nothing is migrated yet."""
    project = Project(folder, python)
    project.write("manage.py", MANAGE)
    project.write("config.py", SETTINGS)
    project.configure(f'DATABASES = {{"default": {described(url)!r}}}\n{IMMEDIATE}')
    project.write("shop/__init__.py", "")
    project.write("shop/models.py", MODELS)
    return project


def described(url: str) -> dict[str, Any]:
    """Return a database as an entry of DATABASES."""
    if url.startswith("sqlite"):
        file = url.removeprefix("sqlite:///")
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": file,
            "OPTIONS": {"timeout": 30},
            "TEST": {"NAME": f"{file}.test"},
        }
    parts = urlsplit(url)
    name = parts.path.removeprefix("/")
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": name,
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname,
        "PORT": str(parts.port),
        "TEST": {"NAME": f"{name}_django"},
    }
