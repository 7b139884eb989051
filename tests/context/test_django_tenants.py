"""The recipe of docs/do/context.md for django-tenants: two schemas, and a job that runs in the one of its start."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.absent import skip_because_absent

SETTINGS = """
import os
from urllib.parse import unquote, urlsplit

parts = urlsplit(os.environ["TENANTS_URL"])
SECRET_KEY = "of a test"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
SHARED_APPS = ["django_tenants", "customers", "django.contrib.contenttypes", "holdfast_django"]
TENANT_APPS = ["shop"]
INSTALLED_APPS = [*SHARED_APPS, *TENANT_APPS]
TENANT_MODEL, TENANT_DOMAIN_MODEL = "customers.Client", "customers.Domain"
DATABASE_ROUTERS = ["django_tenants.routers.TenantSyncRouter"]
HOLDFAST_APP = "shop.jobs.app"
DATABASES = {"default": {
    "ENGINE": "django_tenants.postgresql_backend", "NAME": parts.path[1:], "HOST": parts.hostname or "",
    "PORT": parts.port or "", "USER": unquote(parts.username or ""), "PASSWORD": unquote(parts.password or "")}}
"""

CUSTOMERS = """
from django.db import models
from django_tenants.models import DomainMixin, TenantMixin


class Client(TenantMixin):
    name = models.CharField(max_length=100)


class Domain(DomainMixin):
    pass
"""

SHOP = """
from django.db import models


class Order(models.Model):
    name = models.CharField(max_length=100)
"""

# As it stands in docs/do/context.md, with two handlers: one for Django's connection, one for Holdfast's transaction.
JOBS = """
from django.db import connection, transaction
from django_tenants.utils import schema_context
from holdfast import Holdfast, Job
from holdfast_context import add_context
from holdfast_django import database_url


def set_search_path(tx, context):
    return tx.execute("select set_config('search_path', %s, true)", [context["schema"]])


app = Holdfast(database_url())
add_context(
    app,
    capture=lambda: {"schema": connection.schema_name},
    enter=lambda context: schema_context(context["schema"]),
    begin=set_search_path,
)


@app.job("order.note")
def note(job: Job[str]) -> None:
    from shop.models import Order

    with transaction.atomic():
        Order.objects.create(name=f"{job.input} of {connection.schema_name}")
        job.complete(tx=connection)


@app.job("order.sql", atomic=True)
def note_by_sql(job: Job[str]) -> None:
    job.tx.execute("insert into shop_order (name) select %s || current_schema()", [f"{job.input} in "])


@app.job("order.sql_async", atomic=True)
async def note_by_async_sql(job: Job[str]) -> None:
    await job.tx.execute("insert into shop_order (name) select %s || current_schema()", [f"{job.input} in "])
"""

RUN = """
import sys

import django
from django.core.management import call_command

django.setup()
call_command("makemigrations", "customers", "shop", verbosity=0)
call_command("migrate_schemas", shared=True, verbosity=0)

from customers.models import Client
from django.db import connection, transaction
from django_tenants.utils import schema_context
from holdfast_testing.kit import Kit
from shop.jobs import app, note, note_by_async_sql, note_by_sql
from shop.models import Order

for tenant in ("acme", "globex"):
    Client.objects.create(schema_name=tenant, name=tenant)
    with schema_context(tenant), transaction.atomic():
        app.start(connection, note, "one")
        app.start(connection, note_by_sql, "two")
        app.start(connection, note_by_async_sql, "three")
kit = Kit(app, sys.argv[1])
kit.run_until_idle()
for tenant in ("acme", "globex"):
    with schema_context(tenant):
        print(tenant, sorted(each.name for each in Order.objects.all()))
print(connection.schema_name, sorted({each.state for each in kit.started()}))
# The transactions of jobs are of connections that others use next.
with app.transaction() as tx:
    print(tx.execute("show search_path").fetchone()[0])
found = app.jobs.list("context.schema:acme").items
print(sorted(each.type for each in found))
kit.close()
app.close()
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of Django with tenants."""
    if importlib.util.find_spec("django_tenants") is None:
        skip_because_absent("django-tenants, so its recipe", "Run: make setup")
    for name, text in {
        "tenants_settings.py": SETTINGS,
        "customers/__init__.py": "",
        "customers/models.py": CUSTOMERS,
        "shop/__init__.py": "",
        "shop/models.py": SHOP,
        "shop/jobs.py": JOBS,
        "run.py": RUN,
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_jobs_run_in_the_schema_of_the_tenant_that_started_them(
    postgres_url: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENANTS_URL", postgres_url)
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "tenants_settings")
    done = subprocess.run(
        [sys.executable, "run.py", postgres_url],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-5:] == [
        "acme ['one of acme', 'three in acme', 'two in acme']",
        "globex ['one of globex', 'three in globex', 'two in globex']",
        "public ['completed']",
        '"$user", public',
        "['order.note', 'order.sql', 'order.sql_async']",
    ]
