"""The dashboard as its users meet it."""

import dataclasses
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from holdfast.app import Holdfast
from holdfast.settings import read_settings
from holdfast.web.app import create
from tests.support.serving import serve


@dataclasses.dataclass
class Charge:
    """The input of a type that the serving process knows."""

    order: int
    to: str
    api_key: str
    currency: Literal["EUR", "CHF"] = "EUR"
    express: bool = False
    items: list[str] = dataclasses.field(default_factory=list)


@contextmanager
def served(app: Holdfast, listening: socket.socket | None = None) -> Iterator[str]:
    """Serve an application's dashboard, at a socket's address if there is one; yield where to look."""
    app.declare("order.charge", Charge)
    with serve(create(app, settings=read_settings({})), listening) as address:
        yield address
