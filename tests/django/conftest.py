"""Projects on either store."""

import sys
from pathlib import Path

import pytest

from tests.django.project import Project, make_project


@pytest.fixture
def django_python() -> str:
    """The interpreter that projects run with, and with it their version of Django."""
    return sys.executable


ON_SQLITE, ON_POSTGRES = (
    pytest.mark.parametrize(
        "project", [one, pytest.param(other, marks=pytest.mark.lasting)], indirect=True
    )
    for one, other in (("sqlite", "postgresql"), ("postgresql", "sqlite"))
)
"""For what takes several workers: one store in every run of the tests, the other with `-m lasting`."""


@pytest.fixture(params=["sqlite", "postgresql"])
def project(request: pytest.FixtureRequest, tmp_path: Path, django_python: str) -> Project:
    """A project that is not migrated yet, on SQLite and on PostgreSQL."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'shop.sqlite3'}"
    else:
        url = request.getfixturevalue("postgres_url")
    return make_project(tmp_path, url, django_python)


@pytest.fixture
def sqlite_project(tmp_path: Path, django_python: str) -> Project:
    """A project on SQLite, for what does not depend on the store."""
    return make_project(tmp_path, f"sqlite:///{tmp_path / 'shop.sqlite3'}", django_python)
