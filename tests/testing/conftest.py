"""What the plugin's fixtures begin with here: a database of either store, with its tables."""

import pytest


@pytest.fixture(params=["sqlite", "postgres"])
def holdfast_url(request: pytest.FixtureRequest) -> str:
    """A database of either store."""
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def holdfast_schema() -> str:
    """The one that the database of each test has already."""
    return "holdfast"
