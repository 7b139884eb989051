"""`python -m holdfast_demo.socket_server MODULE:NAME FD`: a web application on a socket that its parent opened."""

from __future__ import annotations

import socket
import sys

import uvicorn


def main() -> None:
    """Serve until stopped."""
    with socket.socket(fileno=int(sys.argv[2])) as listening:
        config = uvicorn.Config(sys.argv[1], access_log=False, timeout_graceful_shutdown=2)
        uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
