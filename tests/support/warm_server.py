"""A process that has imported libraries and forks a command for each request; the command imports the rest itself.

A request is what `python` would be given: words, directory, environment and the three standard files. The answer is
the id of the process and, when it has ended, its code. Meanwhile the client may send signals; if it goes, the command
is killed.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import runpy
import selectors
import signal
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

FILES = 3
LENGTH = 8


class Request(NamedTuple):
    """A command, as it goes through the socket."""

    cwd: str
    words: list[str]
    variables: dict[str, str]

    def pack(self) -> bytes:
        """Write it down: its length, then texts that end with NUL, which none of them can have."""
        pairs = [f"{name}={text}" for name, text in self.variables.items()]
        texts = [self.cwd, str(len(self.words)), *self.words, *pairs]
        body = b"\0".join(os.fsencode(each) for each in texts)
        return b"%0*d" % (LENGTH, len(body)) + body


def unpack(body: bytes) -> Request:
    """Read what `pack` or the client for shells wrote, without the length."""
    cwd, count, *texts = (os.fsdecode(each) for each in body.split(b"\0"))
    words, pairs = texts[: int(count)], texts[int(count) :]
    return Request(cwd, words, dict(each.split("=", 1) for each in pairs))


class Server:
    """Listens at an address and forks; in a fork, `serve` returns the request to fulfil."""

    def __init__(self, address: str) -> None:
        self._running: dict[int, socket.socket] = {}
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(address)
        self._listener.listen(64)
        self._ended, self._waking = os.pipe()
        os.set_blocking(self._waking, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waking)
        self._ready = selectors.DefaultSelector()
        for each in (0, self._ended, self._listener):
            self._ready.register(each, selectors.EVENT_READ)

    def serve(self) -> Request | None:
        """Fork for each request until standard input ends."""
        while True:
            for key, _ in self._ready.select():
                if key.fileobj == 0:
                    for pid in self._running:
                        os.kill(pid, signal.SIGKILL)
                    return None
                if key.fileobj == self._ended:
                    os.read(self._ended, 1024)
                    self._reap()
                elif key.fileobj is self._listener:
                    request = self._accept()
                    if request is not None:
                        return request
                else:
                    self._signal(key.data)

    def _accept(self) -> Request | None:
        """Fork for a request; return it in the fork."""
        connection, _ = self._listener.accept()
        length, files, _, _ = socket.recv_fds(connection, LENGTH, FILES)
        body = b""
        while len(body) < int(length):
            body += connection.recv(int(length) - len(body))
        pid = os.fork()
        if pid == 0:
            self._leave(files, connection)
            return unpack(body)
        for each in files:
            os.close(each)
        self._running[pid] = connection
        self._ready.register(connection, selectors.EVENT_READ, pid)
        with suppress(ConnectionError):
            connection.send(b"%d\n" % pid)
        return None

    def _leave(self, files: Iterable[int], connection: socket.socket) -> None:
        """Be no longer the server."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._ready.close()
        os.close(self._ended)
        os.close(self._waking)
        for each in (self._listener, connection, *self._running.values()):
            each.close()
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)

    def _signal(self, pid: int) -> None:
        """Pass signals on; a client that is gone wants its command killed."""
        connection = self._running.get(pid)
        if connection is None:
            return
        given = b""
        with suppress(ConnectionError):
            given = connection.recv(1024)
        if not given:
            self._ready.unregister(connection)
        for each in given.split() or [b"%d" % signal.SIGKILL]:
            os.kill(pid, int(each))

    def _reap(self) -> None:
        for pid in list(self._running):
            found, status = os.waitpid(pid, os.WNOHANG)
            if not found:
                continue
            connection = self._running.pop(pid)
            if connection in self._ready.get_map():
                self._ready.unregister(connection)
            with suppress(ConnectionError):
                connection.send(b"%d\n" % os.waitstatus_to_exitcode(status))
            connection.close()


def become(request: Request, own: Sequence[str]) -> None:
    """Go on as `python` would have begun, without the server's own paths."""
    os.chdir(request.cwd)
    os.environ.clear()
    os.environ.update(request.variables)
    libraries = [each for each in sys.path if each not in own]
    sys.path[:] = [*paths_of(request.variables), *libraries]
    open_streams()
    sys.orig_argv[:] = [sys.executable, *request.words]
    kind, *words = request.words
    if kind == "-m":
        sys.argv = words
        sys.path.insert(0, request.cwd)
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv = ["-c", *words[1:]]
        sys.path.insert(0, "")
        run_main(words[0], "<string>")
    else:
        sys.argv = [kind, *words]
        sys.path.insert(0, str(Path(kind).resolve().parent))
        run_main(Path(kind).read_text(encoding="utf-8"), kind)


def open_streams() -> None:
    """Open the standard files as Python does when it starts: what they are is found out only then."""
    is_unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        file = open(number, "wb" if number else "rb", 0 if is_unbuffered else -1, closefd=False)  # noqa: SIM115
        stream = io.TextIOWrapper(
            file,
            "utf-8",
            "backslashreplace" if name == "stderr" else "strict",
            line_buffering=name == "stderr" or os.isatty(number),
            write_through=is_unbuffered,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def paths_of(variables: Mapping[str, str]) -> list[str]:
    """Return what PYTHONPATH adds."""
    return [each for each in variables.get("PYTHONPATH", "").split(os.pathsep) if each]


def run_main(text: str, file: str) -> None:
    """Run a program as the main module."""
    main = sys.modules["__main__"] = ModuleType("__main__")
    if file != "<string>":
        main.__file__ = file
    exec(compile(text, file, "exec", dont_inherit=True), main.__dict__)


class Ending:
    """Ends a command with its code, without taking everything apart, which costs more than the fork."""

    code: int | None = None

    def __enter__(self) -> None:
        Ending.code = 0

    def __exit__(self, kind: type | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, SystemExit):
            code = error.code if error.code is not None else 0
            Ending.code = code if isinstance(code, int) else 1
        elif isinstance(error, Exception):
            Ending.code = 1
        elif error is not None:
            Ending.code = None

    @classmethod
    def leave(cls) -> None:
        """Go, after everything that was to be done at the exit."""
        if cls.code is not None:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(cls.code & 0xFF)


def main(address: str, *libraries: str) -> None:
    """Import the libraries and serve."""
    # The first to be registered is the last to be called.
    atexit.register(Ending.leave)
    for name in libraries:
        import_module(name)
    gc.collect()
    gc.freeze()
    own = [sys.path[0], *paths_of(os.environ)]
    server = Server(address)
    os.write(1, b"ready\n")
    request = server.serve()
    if request is not None:
        with Ending():
            become(request, own)


if __name__ == "__main__":
    main(*sys.argv[1:])
