"""A port that swallows what is sent to it, as the address of a host does that was switched off."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

WAITING = 3


@contextmanager
def silent_port(port: int = 0) -> Iterator[int]:
    """Listen and answer nothing; the queue is full, so the system drops what else comes. Yields the port."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen(0)
        for _ in range(WAITING):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(listening.getsockname())
        yield int(listening.getsockname()[1])
