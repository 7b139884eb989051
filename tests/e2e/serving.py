"""The dashboard as its users meet it."""

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.app import Holdfast
from holdfast.settings import read_settings
from holdfast.web.app import create
from tests.support.serving import serve


@contextmanager
def served(app: Holdfast) -> Iterator[str]:
    """Serve an application's dashboard; the address is where to look."""
    with serve(create(app, settings=read_settings({}))) as address:
        yield address
