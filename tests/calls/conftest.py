"""Databases of both kinds, as in the tests of web applications."""

from tests.contrib.conftest import any_url as any_url
