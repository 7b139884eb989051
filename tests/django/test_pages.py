"""The dashboard and the admin of a Django project, for its users and their permissions."""

from __future__ import annotations

import socket

import httpx
import pytest

from tests.django.project import PATIENCE_S, Project
from tests.support.serving import answers
from tests.support.until import wait_until

pytestmark = pytest.mark.timeout(4 * PATIENCE_S)

SITE = """
    INSTALLED_APPS += ["django.contrib.sessions", "django.contrib.messages", "django.contrib.admin"]
    DEBUG = True
    DATABASES["default"]["ATOMIC_REQUESTS"] = True
    ALLOWED_HOSTS = ["*"]
    ROOT_URLCONF = "urls"
    MIDDLEWARE = [
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.common.CommonMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
        "django.middleware.clickjacking.XFrameOptionsMiddleware"]
    TEMPLATES = [{
        "BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True,
        "OPTIONS": {"context_processors": [
            "django.template.context_processors.request",
            "django.contrib.auth.context_processors.auth",
            "django.contrib.messages.context_processors.messages"]}}]
    STATIC_URL = "static/"
"""
URLS = """
    from django.contrib import admin
    from django.urls import include, path
    urlpatterns = [
        path("admin/", admin.site.urls),
        path("ops/jobs/", include("holdfast_django.urls")),
    ]
"""
TESTS = """
    from unittest import mock
    from django.contrib.auth.models import Permission, User
    from django.core.management import call_command
    from django.test import Client, TransactionTestCase
    from django.utils.timezone import now
    from holdfast_django.test_cases import RunsTasks
    from tests.django.contract_tasks import echo, fail

    HTML = {"HTTP_ACCEPT": "text/html"}
    JSON = {"data": "{}", "content_type": "application/json"}
    SAME = {"HTTP_SEC_FETCH_SITE": "same-origin"}

    class PageTests(RunsTasks, TransactionTestCase):
        def client_with(self, *permissions):
            user = User.objects.create_user(f"u{User.objects.count()}", is_staff=True)
            user.user_permissions.set(Permission.objects.filter(
                codename__in=permissions, content_type__app_label="holdfast"))
            assert user.user_permissions.count() == len(permissions)
            client = Client(enforce_csrf_checks=True)
            client.force_login(user)
            return client

        def failed(self):
            result = fail.enqueue("see here")
            echo.enqueue("payload")
            self.run_tasks()
            return result

        def test_visitors_are_sent_to_the_sign_in(self):
            response = self.client.get("/ops/jobs/", **HTML)
            self.assertRedirects(response, "/admin/login/?next=/ops/jobs/", fetch_redirect_response=False)
            self.assertEqual(self.client.get("/ops/jobs/api/v1/jobs").status_code, 401)

        def test_users_without_a_permission_are_refused(self):
            self.assertEqual(self.client_with().get("/ops/jobs/", **HTML).status_code, 403)

        def test_a_viewer_sees_jobs_and_changes_nothing(self):
            result = self.failed()
            client = self.client_with("view_jobs")
            page = client.get("/ops/jobs/jobs", **HTML)
            self.assertContains(page, "contract_tasks.fail")
            self.assertContains(page, 'href="/ops/jobs/')
            detail = client.get(f"/ops/jobs/jobs/{result.id}", **HTML)
            self.assertContains(detail, "see here")
            refused = client.post(f"/ops/jobs/api/v1/jobs/{result.id}/retry", **JSON, **SAME)
            self.assertEqual(refused.status_code, 403, refused.content)
            static = client.get("/ops/jobs/static/dashboard.js")
            self.assertEqual((static.status_code, static["Content-Type"].split(";")[0]), (200, "text/javascript"))

        def test_an_operator_retries_from_this_site_only(self):
            result = self.failed()
            client = self.client_with("operate_jobs")
            address = f"/ops/jobs/api/v1/jobs/{result.id}/retry"
            foreign = client.post(address, **JSON, HTTP_SEC_FETCH_SITE="cross-site")
            self.assertEqual(foreign.status_code, 403)
            answer = client.post(address, **JSON, **SAME)
            self.assertEqual(answer.status_code, 200, answer.content)
            result.refresh()
            self.assertEqual(str(result.status), "READY")

        def test_a_server_without_streams_is_polled(self):
            answer = self.client_with("view_jobs").get("/ops/jobs/api/v1/live")
            self.assertIn(b"retry: 5000", answer.content)
            self.assertEqual(answer["Content-Type"].split(";")[0], "text/event-stream")

        def test_the_admin_lists_jobs_and_retries_them(self):
            result = self.failed()
            viewer, operator, developer = (
                self.client_with(each) for each in ("view_jobs", "operate_jobs", "develop_jobs"))
            listed = viewer.get("/admin/holdfast/jobrow/", {"state__exact": "failed"})
            self.assertContains(listed, "see here")
            self.assertContains(listed, f"/ops/jobs/jobs/{result.id}")
            self.assertNotContains(listed, "Retry selected")
            self.assertContains(viewer.get("/admin/holdfast/jobrow/", {"q": "contract_tasks.fail"}), "1 job")
            shown = viewer.get(f"/admin/holdfast/jobrow/{result.id}/change/")
            self.assertContains(shown, "see here")
            self.assertNotContains(shown, "kwargs")
            self.assertContains(developer.get(f"/admin/holdfast/jobrow/{result.id}/change/"), "kwargs")
            operator.handler.enforce_csrf_checks = False
            answer = operator.post("/admin/holdfast/jobrow/", {
                "action": "retry", "_selected_action": [result.id]}, follow=True)
            self.assertContains(answer, "Retry: 1 of 1 jobs")
            result.refresh()
            self.assertEqual(str(result.status), "READY")

        def test_the_admin_refuses_more_jobs_than_one_command_takes(self):
            results = [self.failed() for _ in range(2)]
            operator = self.client_with("operate_jobs")
            operator.handler.enforce_csrf_checks = False
            with mock.patch("holdfast_django.admin.MAX_AT_ONCE", 1):
                answer = operator.post("/admin/holdfast/jobrow/", {
                    "action": "retry", "select_across": "1",
                    "_selected_action": [each.id for each in results]}, follow=True)
            self.assertContains(answer, "More than 1 jobs are selected")
            results[0].refresh()
            self.assertEqual(str(results[0].status), "FAILED")

        def test_the_admin_is_empty_for_others(self):
            self.assertEqual(self.client_with().get("/admin/holdfast/jobrow/").status_code, 403)

        def test_dumps_leave_jobs_alone(self):
            self.failed()
            call_command("dumpdata", "holdfast", output="dump.json")
            with open("dump.json") as file:
                self.assertEqual(file.read().strip(), "[]")
"""
ASGI = """
    import os
    from django.core.asgi import get_asgi_application
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config")
    application = get_asgi_application()
"""


def with_pages(project: Project) -> Project:
    project.configure(SITE)
    project.write("urls.py", URLS)
    project.write("asgi.py", ASGI)
    project.write("shop/tests.py", TESTS)
    return project


def test_pages_are_for_users_with_permissions(project: Project) -> None:
    said = with_pages(project).manage("test", "shop")
    assert "\nOK" in said


def test_no_migration_is_missing(sqlite_project: Project) -> None:
    with_pages(sqlite_project)
    assert "No changes detected" in sqlite_project.manage("makemigrations", "--check", "--dry-run")


@pytest.mark.parametrize("server", ["runserver", "uvicorn"])
def test_a_page_is_live_on_servers_that_can_stream(server: str, sqlite_project: Project) -> None:
    project = with_pages(sqlite_project)
    project.manage("migrate", "--run-syncdb")
    key = project.evaluate(
        """
        from django.contrib.auth.models import User
        from django.test import Client
        client = Client()
        client.force_login(User.objects.create_superuser("boss"))
        answer(client.cookies["sessionid"].value)
        """
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    words = ("runserver", "--noreload", port)
    if server == "uvicorn":
        project.write(
            "manage.py", "import sys, uvicorn; uvicorn.run(sys.argv[1], port=int(sys.argv[2]))"
        )
        words = ("asgi:application", port, "")
    with (
        project.running(*words),
        httpx.Client(
            base_url=f"http://127.0.0.1:{port}/ops/jobs/",
            cookies={"sessionid": key},
            timeout=PATIENCE_S,
        ) as client,
    ):
        wait_until(lambda: answers(client), lambda: project.log)
        with client.stream("GET", "api/v1/live") as stream:
            lines = stream.iter_lines()
            assert next(lines) == "retry: 2000"
            assert next(each for each in lines if each.startswith("event")) == "event: hint"


def test_the_admin_finds_jobs_behind_an_engine_of_another_name(project: Project) -> None:
    project.configure(
        """
        wrapped = DATABASES["default"]["ENGINE"]
        DATABASES["default"]["ENGINE"] = "measured"
        """
    )
    project.write("measured/__init__.py", "")
    project.write(
        "measured/base.py",
        """
        from importlib import import_module
        from config import wrapped

        class DatabaseWrapper(import_module(f"{wrapped}.base").DatabaseWrapper):
            pass
        """,
    )
    project.manage("migrate", "-v", "0")
    found = project.evaluate(
        """
        from holdfast_django.models import JobRow
        from tests.django.contract_tasks import echo
        echo.enqueue(1)
        answer([each.type for each in JobRow.rows.all()])
        """
    )
    assert found == ["tests.django.contract_tasks.echo"]
