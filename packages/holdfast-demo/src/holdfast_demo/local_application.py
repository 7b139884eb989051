"""What a command that runs a whole application on this machine needs: its lines, environment and socket."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence

import click

LOCAL_HOST = "127.0.0.1"
PORTS_TRIED = 20


def print_ready(what: str, rest: str, *, to_stderr: bool = False) -> None:
    """Print one thing that runs now, and where."""
    mark = click.style("✓", fg="green")
    click.echo(f"  {mark} {what:<23} {rest}", err=to_stderr)


def clean_environment(own: Mapping[str, str], prefixes: Sequence[str] = ()) -> dict[str, str]:
    """Return an environment without the settings of the user's other applications, and with these."""
    others = ("HOLDFAST_", "OUTBOX_", "WORKER_", *prefixes)
    rest = {name: text for name, text in os.environ.items() if not name.startswith(others)}
    return rest | dict(own)


def listen(port: int) -> socket.socket:
    """Listen on the port or on the next free one, or on any for 0; connections wait until a process accepts them."""
    for candidate in [*range(port, port + PORTS_TRIED), 0] if port else [0]:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOCAL_HOST, candidate))
        except OSError:
            listener.close()
            continue
        listener.listen(100)
        return listener
    raise click.ClickException(f"no port is free from {port} up")
