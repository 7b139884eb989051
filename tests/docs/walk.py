"""A reader who follows a page: writes its files, types its commands, leaves its servers running in other terminals."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.settings.load import PREFIXES
from tests.docs.newcomer import PATIENCE_S
from tests.docs.snippets import Block
from tests.support.until import SLOWNESS, until
from tests.support.warm_python import LIBRARIES

INSTALLED = Path(sys.executable).parent
PRINTED_PORT = "8000"
SERVERS = ("uvicorn ", "holdfast worker ")
STOPPED = (0, -signal.SIGINT, 128 + signal.SIGINT)


@dataclass(slots=True)
class Walk:
    """A folder, the programs that a reader has installed, and the servers that run meanwhile.

    Commands are typed as printed, except for the port, which must be a free one.
    """

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)
    programs: Path = INSTALLED
    port: int = field(default_factory=lambda: free_port())
    servers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def follow(self, block: Block) -> str:
        """Do what a block says; return what its commands printed."""
        if block.file is not None:
            file = self.folder / block.file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text, encoding="utf-8")
        elif block.language == "sh":
            return self.type(block.text)
        elif block.language == "console" and block.text.startswith(SERVERS):
            self.serve(block.text)
        return ""

    def type(self, text: str, **variables: str) -> str:
        """Type commands that end; return what they printed."""
        done = self.attempt(text, **variables)
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def attempt(self, text: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Type commands that may fail."""
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text.replace(PRINTED_PORT, str(self.port))],
            cwd=self.folder,
            env=self._environment(warm=True) | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def serve(self, text: str) -> None:
        """Type a command that does not end, in a terminal of its own."""
        log = self.folder.with_name(f"{self.folder.name}-terminal-{len(self.servers)}.log")
        with log.open("wb") as output:
            server = subprocess.Popen(
                ["bash", "-c", f"exec {text}"],
                cwd=self.folder,
                env=self._environment() | {"UVICORN_PORT": str(self.port)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self.servers.append(server)
        if text.startswith("uvicorn"):
            asyncio.run(until(lambda: server.poll() is not None or _answers(self.port)))
        assert server.poll() is None, log.read_text(encoding="utf-8")

    def stop(self) -> None:
        """Press Ctrl-C in every terminal; the servers must stop in order."""
        for each in self.servers:
            each.send_signal(signal.SIGINT)
        try:
            codes = [each.wait(60 * SLOWNESS) for each in self.servers]
        finally:
            for each in self.servers:
                each.kill()
                each.wait()
        self.servers.clear()
        assert all(code in STOPPED for code in codes), codes

    def _environment(self, warm: bool = False) -> dict[str, str]:
        own = {name: text for name, text in os.environ.items() if not name.startswith(PREFIXES)}
        programs = [str(self.programs)]
        if warm and self.programs == INSTALLED:
            programs.insert(0, str(LIBRARIES.programs()))
        path = os.pathsep.join((*programs, own.get("PATH", "")))
        return own | {"PATH": path} | self.variables


@contextmanager
def walking(
    folder: Path, variables: dict[str, str], programs: Path | None = None
) -> Iterator[Walk]:
    """Let a reader loose in a folder; the servers they left running stop at the end."""
    walk = Walk(folder, variables, programs or INSTALLED)
    try:
        yield walk
    except BaseException:
        for each in walk.servers:
            each.kill()
            each.wait()
        raise
    walk.stop()


def free_port() -> int:
    """Return a port of this machine that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
