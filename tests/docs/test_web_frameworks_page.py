"""The page about web frameworks: its applications, each served by a real server, with worker and dashboard."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.docs.newcomer import PATIENCE_S, run
from tests.docs.web_frameworks import APPLICATIONS, WebApplication, write_page


@pytest.mark.timeout(2 * PATIENCE_S)
@pytest.mark.parametrize("application", APPLICATIONS, ids=lambda each: each.module)
def test_an_application_runs_jobs_and_shows_them(
    application: WebApplication, tmp_path: Path
) -> None:
    write_page(tmp_path)
    run(tmp_path, "holdfast", "migrate", "--app", f"{application.module}:jobs")
    application.try_out(sys.executable, tmp_path)


@pytest.mark.timeout(2 * PATIENCE_S)
def test_a_service_without_tables_does_not_start(tmp_path: Path) -> None:
    write_page(tmp_path)
    (litestar,) = (each for each in APPLICATIONS if each.module == "litestar_reports")
    assert "(run `holdfast migrate`)" in litestar.fail_to_start(sys.executable, tmp_path)
