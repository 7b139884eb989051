"""The recipes of docs/do/context.md on a real PostgreSQL: row-level security, and a schema per tenant with Django."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import create_engine, event, text
from sqlalchemy.orm import Session

from holdfast import Holdfast, Job, Retry
from holdfast.storage.id_generator import new_id
from holdfast_context import add_context
from holdfast_testing.kit import Kit

TENANT: ContextVar[str | None] = ContextVar("tenant", default=None)

TABLES = """
create table invoice (
  id bigserial primary key, tenant text not null default current_setting('app.tenant'), total integer);
alter table invoice enable row level security;
alter table invoice force row level security;
create policy of_tenant on invoice using (tenant = current_setting('app.tenant', true));
"""


@contextmanager
def as_tenant(tenant: str) -> Iterator[None]:
    token = TENANT.set(tenant)
    try:
        yield
    finally:
        TENANT.reset(token)


def capture() -> dict[str, str]:
    tenant = TENANT.get()
    return {} if tenant is None else {"tenant": tenant}


def set_tenant(tx: Any, context: Mapping[str, str]) -> Any:
    return tx.execute("select set_config('app.tenant', %s, true)", [context["tenant"]])


@pytest.fixture
def owner_url(postgres_url: str) -> Iterator[str]:
    """The database, for a role that row-level security holds for: not a superuser, and the owner of what it makes."""
    role = f"tenants_{new_id()[-12:]}"
    named, database = sql.Identifier(role), urlsplit(postgres_url).path.removeprefix("/")
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(sql.SQL("create role {} login password 'secret'").format(named))
        admin.execute(sql.SQL("grant all on schema public to {}").format(named))
        admin.execute(
            sql.SQL("grant all on database {} to {}").format(sql.Identifier(database), named)
        )
        admin.execute(sql.SQL("grant all on schema holdfast to {}").format(named))
        admin.execute(sql.SQL("grant all on all tables in schema holdfast to {}").format(named))
        admin.execute(sql.SQL("grant all on all sequences in schema holdfast to {}").format(named))
    parts = urlsplit(postgres_url)
    place = parts.netloc.rpartition("@")[2]
    yield parts._replace(netloc=f"{role}:secret@{place}").geturl()
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(sql.SQL("drop owned by {} cascade").format(named))
        admin.execute(sql.SQL("drop role {}").format(named))


def totals(url: str, tenant: str) -> list[int]:
    with psycopg.connect(url) as connection:
        connection.execute("select set_config('app.tenant', %s, true)", [tenant])
        return [each[0] for each in connection.execute("select total from invoice order by id")]


def test_row_level_security_holds_in_the_transaction_that_completes_the_job(owner_url: str) -> None:
    app = Holdfast(owner_url)
    add_context(
        app, capture=capture, enter=lambda context: as_tenant(context["tenant"]), begin=set_tenant
    )
    with psycopg.connect(owner_url) as connection:
        connection.execute(TABLES)

    @app.job("invoice.sync", atomic=True)
    def write(job: Job[int]) -> None:
        job.tx.execute("insert into invoice (total) values (%s)", [job.input])
        job.tx.execute("update invoice set total = total + 100")

    @app.job("invoice.async", atomic=True)
    async def write_async(job: Job[int]) -> None:
        await job.tx.execute("insert into invoice (total) values (%s)", [job.input])

    kit = Kit(app, owner_url)
    for tenant, total in (("acme", 1), ("globex", 2)):
        with as_tenant(tenant), app.transaction() as tx:
            app.start(tx, "invoice.sync", total)
            app.start(tx, "invoice.async", total * 10, after="1h")
    kit.run_until_idle()
    kit.advance("2h")
    kit.run_until_idle()
    assert totals(owner_url, "acme") == [101, 10]
    assert totals(owner_url, "globex") == [102, 20]
    assert {each.state for each in kit.started()} == {"completed"}
    kit.close()
    app.close()


def test_sqlalchemy_sessions_begin_as_the_tenant_of_the_job(owner_url: str) -> None:
    app = Holdfast(owner_url)
    add_context(app, capture=capture, enter=lambda context: as_tenant(context["tenant"]))
    engine = create_engine(owner_url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        connection.execute(text(TABLES))

    @event.listens_for(Session, "after_begin")
    def set_tenant_of_session(session: Session, transaction: Any, connection: Any) -> None:
        if (tenant := TENANT.get()) is not None:
            connection.execute(
                text("select set_config('app.tenant', :tenant, true)"), {"tenant": tenant}
            )

    @app.job("invoice.write", retry=Retry(max_attempts=1))
    def write(job: Job[int]) -> None:
        with Session(engine) as session, session.begin():
            session.execute(text("insert into invoice (total) values (:n)"), {"n": job.input})
            job.complete(tx=session)

    kit = Kit(app, owner_url)
    try:
        for tenant, total in (("acme", 1), ("globex", 2)):
            with as_tenant(tenant), Session(engine) as session, session.begin():
                app.start(session, "invoice.write", total)
        kit.run_until_idle()
        assert totals(owner_url, "acme") == [1]
        assert totals(owner_url, "globex") == [2]
        assert {each.state for each in kit.started()} == {"completed"}
    finally:
        event.remove(Session, "after_begin", set_tenant_of_session)
        engine.dispose()
        kit.close()
        app.close()


DJANGO = """
import sys
from contextlib import contextmanager
from urllib.parse import unquote, urlsplit

import django
from django.conf import settings

url = sys.argv[1]
parts = urlsplit(url)
settings.configure(
    SECRET_KEY="of a test", USE_TZ=True, INSTALLED_APPS=["holdfast_django"],
    DATABASES={"default": {
        "ENGINE": "django.db.backends.postgresql", "NAME": parts.path[1:], "HOST": parts.hostname or "",
        "PORT": parts.port or "", "USER": unquote(parts.username or ""), "PASSWORD": unquote(parts.password or "")}})
django.setup()

from django.db import connection, models, transaction
from holdfast import Holdfast, Job
from holdfast_context import add_context
from holdfast_testing.kit import Kit


class Order(models.Model):
    name = models.CharField(max_length=100)

    class Meta:
        app_label = "shop"


@contextmanager
def schema(name):
    before, connection.schema_name = getattr(connection, "schema_name", "public"), name
    with connection.cursor() as cursor:
        cursor.execute("select set_config('search_path', %s, false)", [name])
    try:
        yield
    finally:
        connection.schema_name = before
        with connection.cursor() as cursor:
            cursor.execute("select set_config('search_path', %s, false)", [before])


app = Holdfast(url)
add_context(
    app,
    capture=lambda: {"schema": getattr(connection, "schema_name", "public")},
    enter=lambda context: schema(context["schema"]),
)


@app.job("order.note")
def note(job: Job[str]) -> None:
    with transaction.atomic():
        Order.objects.create(name=f"{job.input} of {connection.schema_name}")
        job.complete(tx=connection)


for tenant in ("acme", "globex"):
    with connection.cursor() as cursor:
        cursor.execute(f"create schema {tenant}")
    with schema(tenant):
        with connection.schema_editor() as editor:
            editor.create_model(Order)
        with transaction.atomic():
            app.start(connection, "order.note", "an order")
kit = Kit(app, url)
kit.run_until_idle()
for tenant in ("acme", "globex"):
    with schema(tenant):
        print(tenant, [each.name for each in Order.objects.all()])
print(getattr(connection, "schema_name", "public"), sorted({each.state for each in kit.started()}))
kit.close()
app.close()
"""


def test_a_schema_per_tenant_is_set_on_the_connection_of_django(
    postgres_url: str, tmp_path: Path
) -> None:
    script = tmp_path / "tenants.py"
    script.write_text(DJANGO)
    done = subprocess.run(
        [sys.executable, str(script), postgres_url],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "acme ['an order of acme']",
        "globex ['an order of globex']",
        "public ['completed']",
    ]
