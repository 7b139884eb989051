"""`python -m invoicing.local.api_process FD`: the API on a socket that its parent has opened, so no port is guessed."""

from __future__ import annotations

import socket
import sys

import uvicorn


def main() -> None:
    """Serve until stopped."""
    with socket.socket(fileno=int(sys.argv[1])) as listening:
        config = uvicorn.Config("invoicing.api:api", access_log=False, timeout_graceful_shutdown=2)
        uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
