"""Command lines and databases, as in the tests of all other commands."""

import pytest

from tests.cli.conftest import database as database
from tests.cli.conftest import no_settings as no_settings
from tests.cli.conftest import own_modules as own_modules
from tests.cli.conftest import run as run
from tests.cli.conftest import scene as scene


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.lasting)])
def url(request: pytest.FixtureRequest) -> str:
    """The address of a store: the view knows of neither, so most is seen on one, and with `-m lasting` on the other."""
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found
