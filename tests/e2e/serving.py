"""The dashboard as its users meet it."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.app import Holdfast
from holdfast.settings import read_settings
from holdfast.web.app import create
from tests.support.serving import serve


@contextmanager
def served(app: Holdfast, listening: socket.socket | None = None) -> Iterator[str]:
    """Serve an application's dashboard, at a socket's address if there is one; yield where to look."""
    with serve(create(app, settings=read_settings({})), listening) as address:
        yield address
