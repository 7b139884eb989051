"""Connections of Django in a worker's threads: one that broke is replaced, in handlers as in tasks."""

import json
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.django.project import PATIENCE_S, make_project

pytestmark = pytest.mark.timeout(4 * PATIENCE_S)

JOBS = """
    from django.db import OperationalError, connection
    from holdfast import Holdfast
    from holdfast_django import database_url
    from shop.models import Order

    app = Holdfast(database_url())

    @app.job("server.restart")
    def restart(job):
        try:
            with connection.cursor() as cursor:
                cursor.execute("select pg_terminate_backend(pg_backend_pid())")
        except OperationalError:
            return "gone"

    @app.job("order.count")
    def count(job):
        return Order.objects.count()
"""


def test_a_handler_gets_a_new_connection_after_its_old_one_broke(
    postgres_url: str, tmp_path: Path, django_python: str
) -> None:
    shop = make_project(tmp_path, postgres_url, django_python)
    shop.configure('HOLDFAST_APP = "shop.jobs.app"\nDATABASES["default"]["CONN_MAX_AGE"] = None\n')
    shop.write("shop/jobs.py", JOBS)
    shop.manage("migrate", "--run-syncdb")
    ids = shop.evaluate(
        """
        from django.db import connection, transaction
        from shop.jobs import app, count, restart
        with transaction.atomic():
            first = app.start(connection, restart, {}, priority=0)
            answer([first.id, app.start(connection, count, {}, priority=9).id])
        """
    )
    # One thread for both; the first has a higher priority.
    shop.manage("holdfast", "worker", "--drain", "--slots", "1")
    jobs = [json.loads(shop.manage("holdfast", "jobs", "show", each, "-o", "json")) for each in ids]
    assert [(each["state"], each["output"]) for each in jobs] == [
        ("completed", "gone"),
        ("completed", 0),
    ]


def test_what_leads_to_the_server_in_django_s_options_leads_holdfast_there_too(
    postgres_url: str, tmp_path: Path, django_python: str
) -> None:
    shop = make_project(tmp_path, postgres_url, django_python)
    shop.configure(
        'DATABASES["default"]["OPTIONS"] = {"service": "shop", "passfile": "/etc/pgpass"}\n'
    )
    url = shop.evaluate(
        """
        from holdfast_django import database_url
        answer(database_url())
        """
    )
    asked = parse_qs(urlsplit(str(url)).query)
    assert (asked["service"], asked["passfile"]) == (["shop"], ["/etc/pgpass"])
