"""`holdfast api serve`: the HTTP API and the dashboard in a process of their own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from holdfast.cli.console import say
from holdfast.cli.lazy import Group
from holdfast.cli.logging_setup import log_options, set_up_logging
from holdfast.cli.serving_process import make_ours
from holdfast.cli.session import chosen, database_options
from holdfast.core.errors import CommandUsage, MissingExtra

if TYPE_CHECKING:
    from holdfast.app import Holdfast

_PATH = re.compile(r"(?:/[A-Za-z0-9._~-]+)+", re.ASCII)


@click.group(
    "api",
    cls=Group,
    examples=("holdfast api serve shop.jobs:app", "holdfast api serve --port 8080"),
)
def command() -> None:
    """Serve the HTTP API and the dashboard."""


@command.command(
    "serve",
    examples=(
        "holdfast api serve shop.jobs:app",
        "holdfast api serve --url sqlite:///holdfast.db --port 8080",
        "holdfast api serve shop.jobs:app --host 0.0.0.0    # once a token exists",
        "holdfast api serve shop.jobs:app --below /ops",
    ),
)
@click.argument("spec", metavar="[APP]", required=False)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=4000,
    show_default=True,
    help="The port; 0 takes a free one.",
)
@click.option(
    "--below",
    metavar="PATH",
    default="",
    callback=lambda _, __, given: _checked_path(given),
    help="Where a proxy serves it, if below a path that the proxy takes off, as in /ops.",
)
@database_options
@log_options
def serve(
    spec: str | None,
    host: str,
    port: int,
    below: str,
    url: str | None,
    schema: str | None,
    log_level: str,
    log_format: str,
) -> None:
    """Serve the HTTP API and the dashboard until told to stop.

    With APP a tick can be run by hand and inputs are checked against its types; without it the
    database alone is served. Other addresses than this machine's own need a token first.
    """
    set_up_logging(log_level, log_format)
    with chosen(spec, url, schema) as session:
        session.refuse_absent()
        session.app.database.check()
        _check_bind(session.app, host)
        session.run(_serve(session.app, host, port, below))


def _checked_path(given: str) -> str:
    path = given.rstrip("/")
    if path and not _PATH.fullmatch(path):
        raise CommandUsage(
            f"{given[:60]!r} is not a path", help="write it as in /ops or /ops/holdfast"
        )
    return path


def _check_bind(app: Holdfast, host: str) -> None:
    try:
        from holdfast.web.authentication import check_bind
    except ImportError as error:
        raise MissingExtra(
            "the API needs starlette and uvicorn", help='pip install "holdfast-jobs[web]"'
        ) from error
    has_tokens = app.database.read(app.database.store.tokens.exist())
    check_bind(host, has_tokens, has_hook=False)


async def _serve(app: Holdfast, host: str, port: int, below: str) -> None:
    import asyncio

    from holdfast.web.app import create
    from holdfast.web.server import make_server

    server = make_server(create(app), host, port, below)
    serving = asyncio.create_task(server.serve())
    address = await server.address()
    make_ours()
    if address is not None:
        say(f"serving the API and the dashboard on {address}")
    await serving
