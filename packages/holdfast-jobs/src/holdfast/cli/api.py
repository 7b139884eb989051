"""`holdfast api serve`: the HTTP API and the dashboard in their own process."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from holdfast.cli.console import print_info
from holdfast.cli.interrupts import take_interrupts
from holdfast.cli.lazy import HelpGroup
from holdfast.cli.serving_process import log_options, port_option, set_up_logging, tune_interpreter
from holdfast.cli.session import app_argument, database_options, open_app_or_database
from holdfast.core.errors import CommandUsage, MissingExtra

if TYPE_CHECKING:
    from holdfast.app import Holdfast

_PATH = re.compile(r"(?:/[A-Za-z0-9._~-]+)+", re.ASCII)


@click.group(
    "api",
    cls=HelpGroup,
    examples=("holdfast api serve shop.jobs:app", "holdfast api serve --port 8080"),
)
def api() -> None:
    """Serve the HTTP API and the dashboard."""


@api.command(
    "serve",
    examples=(
        "holdfast api serve shop.jobs:app",
        "holdfast api serve --url sqlite:///holdfast.db --port 8080",
        "holdfast api serve shop.jobs:app --host 0.0.0.0    # once a token exists",
        "holdfast api serve shop.jobs:app --root-path /ops",
    ),
)
@app_argument()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@port_option("The port; 0 picks a free one.")
@click.option(
    "--root-path",
    metavar="PATH",
    default="",
    callback=lambda _, __, given: _check_path(given),
    help="Path prefix the proxy strips, e.g. /ops.",
)
@click.option(
    "--below",
    default="",
    hidden=True,
    callback=lambda _, __, given: _check_path(given),
    help="Former name of --root-path.",
)
@database_options
@log_options
def serve(
    spec: str | None,
    host: str,
    port: int,
    root_path: str,
    below: str,
    url: str | None,
    schema: str | None,
    log_level: str,
    log_format: str,
) -> None:
    """Serve the HTTP API and the dashboard until stopped.

    With APP, you can run a tick manually and inputs are validated against its types; without it,
    only the database is served. Listening on non-loopback addresses requires a token.
    """
    take_interrupts()
    set_up_logging(log_level, log_format)
    with open_app_or_database(spec, url, schema) as session:
        session.check()
        _check_bind(session.app, host)
        session.run(_serve(session.app, host, port, root_path or below))


def _check_path(given: str) -> str:
    path = given.rstrip("/")
    if path and not _PATH.fullmatch(path):
        raise CommandUsage(
            f"{given[:60]!r} is not a path", help="write it like /ops or /ops/holdfast"
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


async def _serve(app: Holdfast, host: str, port: int, root_path: str) -> None:
    import asyncio

    from holdfast.extensions import modules_of
    from holdfast.web.app import create
    from holdfast.web.http_server import Server

    server = Server(create(app), host, port, root_path)
    serving = asyncio.create_task(server.serve())
    address = await server.address()
    tune_interpreter(app.database.store.dialect)
    if address is not None:
        served = "the API and the dashboard" if modules_of("dashboard") else "the API"
        print_info(f"serving {served} on {address}")
    await serving
