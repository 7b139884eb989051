"""The databases of both kinds."""

from tests.contrib.conftest import any_url as any_url
