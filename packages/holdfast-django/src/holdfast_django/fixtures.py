"""The pytest plugin: a `holdfast_tasks` fixture for the tests of a Django project."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from holdfast_testing.kit import Kit


@pytest.fixture
def holdfast_tasks(request: pytest.FixtureRequest) -> Iterator[Kit]:
    """The testing kit for the tasks and jobs of a Django project, in the database that pytest-django gives the test."""
    request.getfixturevalue("db")
    from holdfast_django.test_cases import open_django_kit

    kit = open_django_kit()
    yield kit
    kit.close()
