"""The proxy: what passes, and what does not."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from holdfast_chaos.proxy import FaultyProxy

PATIENCE_S = 20.0
DELAY_S = 0.2


class EchoServer:
    """Answers with what it was asked, under a name of its own."""

    def __init__(self, name: bytes = b"") -> None:
        self._name = name
        self.heard: list[bytes] = []
        self._connections: list[socket.socket] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"postgresql://me@127.0.0.1:{self._socket.getsockname()[1]}/shop"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    def hang_up(self) -> None:
        """End the connections, and accept others."""
        for each in self._connections:
            each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._answer, args=[connection], daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with closing(connection):
            try:
                while data := connection.recv(100):
                    self.heard.append(data)
                    connection.sendall(self._name + data)
            except OSError:
                return


@pytest.fixture
def server() -> Iterator[EchoServer]:
    with closing(EchoServer()) as made:
        yield made


@pytest.fixture
def proxy(server: EchoServer) -> Iterator[FaultyProxy]:
    with FaultyProxy(server.url) as made:
        yield made


def connect(proxy: FaultyProxy) -> socket.socket:
    parts = urlsplit(proxy.url)
    made = socket.create_connection((str(parts.hostname), parts.port or 0), PATIENCE_S)
    made.settimeout(PATIENCE_S)
    return made


def ask(line: socket.socket, text: bytes = b"hello") -> bytes:
    line.sendall(text)
    return line.recv(100)


def is_ended(line: socket.socket) -> bool:
    try:
        return ask(line) == b""
    except OSError:
        return True


def test_everything_passes_at_first(proxy: FaultyProxy) -> None:
    with closing(connect(proxy)) as line:
        assert ask(line) == b"hello"
        assert len(proxy.server_ports()) == 1


def test_a_url_through_the_proxy_keeps_its_account_and_database(proxy: FaultyProxy) -> None:
    parts = urlsplit(proxy.url)
    assert (parts.username, parts.path) == ("me", "/shop")


def test_a_cut_ends_connections_and_lets_none_in_until_it_is_over(proxy: FaultyProxy) -> None:
    with closing(connect(proxy)) as line:
        assert ask(line) == b"hello"
        proxy.cut()
        assert is_ended(line)
    with closing(connect(proxy)) as line:
        assert is_ended(line)
    proxy.pass_all()
    with closing(connect(proxy)) as line:
        assert ask(line) == b"hello"


def test_a_reset_ends_connections_and_accepts_others(proxy: FaultyProxy) -> None:
    with closing(connect(proxy)) as line:
        assert ask(line) == b"hello"
        proxy.reset()
        assert is_ended(line)
    with closing(connect(proxy)) as line:
        assert ask(line) == b"hello"


def test_a_reset_passes_over_connections_that_ended_while_something_was_under_way(
    proxy: FaultyProxy, server: EchoServer
) -> None:
    with closing(connect(proxy)) as line:
        assert ask(line) == b"hello"
        proxy.delay(PATIENCE_S)
        line.sendall(b"late")
        server.hang_up()
        assert is_ended(line)
        proxy.delay(0)
        proxy.reset()
    with closing(connect(proxy)) as line:
        assert ask(line) == b"hello"


def test_a_delay_slows_what_passes_in_both_directions(proxy: FaultyProxy) -> None:
    with closing(connect(proxy)) as line:
        proxy.delay(DELAY_S)
        begun = time.monotonic()
        assert ask(line) == b"hello"
        assert time.monotonic() - begun >= 2 * DELAY_S
        proxy.delay(0)
        assert ask(line) == b"hello"


def test_nothing_passes_while_it_swallows(proxy: FaultyProxy, server: EchoServer) -> None:
    with closing(connect(proxy)) as line:
        assert ask(line) == b"hello"
        proxy.swallow()
        line.sendall(b"lost")
        proxy.pass_all()
        assert is_ended(line)
    assert server.heard == [b"hello"]


def test_a_muted_server_hears_what_its_answer_is_lost_to(
    proxy: FaultyProxy, server: EchoServer
) -> None:
    with closing(connect(proxy)) as line:
        assert ask(line) == b"hello"
        proxy.mute()
        line.sendall(b"done")
        deadline = time.monotonic() + PATIENCE_S
        while b"done" not in server.heard and time.monotonic() < deadline:
            time.sleep(0.01)
        proxy.pass_all()
        assert is_ended(line)
    assert server.heard == [b"hello", b"done"]


def test_connections_are_led_to_another_server(proxy: FaultyProxy) -> None:
    with closing(EchoServer(b"second: ")) as other, closing(connect(proxy)) as line:
        assert ask(line) == b"hello"
        proxy.retarget(other.url)
        assert is_ended(line)
        with closing(connect(proxy)) as again:
            assert ask(again) == b"second: hello"
