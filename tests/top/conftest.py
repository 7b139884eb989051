"""Command lines and databases, as in the tests of all other commands."""

from tests.cli.conftest import database as database
from tests.cli.conftest import no_settings as no_settings
from tests.cli.conftest import own_modules as own_modules
from tests.cli.conftest import run as run
from tests.cli.conftest import scene as scene
from tests.cli.conftest import url as url
