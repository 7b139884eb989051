"""The applications of the page about web frameworks, served as it says."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from holdfast.settings.load import PREFIXES
from tests.docs.newcomer import PATIENCE_S
from tests.docs.snippets import blocks
from tests.support.command import run_command
from tests.support.serving import answers
from tests.support.until import wait_until

PAGE = "docs/start/web-frameworks.md"


def write_page(folder: Path) -> None:
    """Write the page's applications into a folder."""
    for block in blocks(PAGE):
        if block.file is not None:
            (folder / block.file).write_text(block.text, encoding="utf-8")


@dataclass(frozen=True, slots=True)
class WebApplication:
    """One of the page's applications, and the words that serve it on a port."""

    module: str
    server: tuple[str, ...]
    has_lifespan: bool = True

    def try_out(self, python: str, folder: Path) -> None:
        """Ask for a report, wait for it, be refused, and look at the dashboard."""
        with self._serving(python, folder) as client:
            if not self.has_lifespan:
                command = [python, "-m", "holdfast", "worker", f"{self.module}:jobs", "--drain"]
                asked = client.post("/reports/7").json()
                subprocess.run(command, cwd=folder, env=environment(), check=True)
            else:
                asked = client.post("/reports/7").json()
            assert client.post("/reports/7").json() == asked
            ready = client.get(f"/reports/{asked['chain']}")
            assert ready.json() == {"status": "READY", "report": "report 7"}
            refused = client.get("/reports/nonsense")
            assert (refused.status_code, refused.json()["code"]) == (422, "HF072")
            if self.has_lifespan:
                assert "/holdfast/static/" in client.get("/holdfast/").text
                (job,) = client.get("/holdfast/api/v1/jobs").json()["items"]
                assert (job["type"], job["state"]) == ("report.make", "completed")

    def fail_to_start(self, python: str, folder: Path) -> str:
        """Return what the server says that cannot start."""
        words = [python, "-m", *self._words("0")]
        return run_command(words, folder, environment(), PATIENCE_S).stdout

    @contextmanager
    def _serving(self, python: str, folder: Path) -> Iterator[httpx.Client]:
        port = free_port()
        log = folder / f"{self.module}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [python, "-m", *self._words(port)],
                cwd=folder,
                env=environment() | {"OUTBOX_WORKER_ENABLED": "true"},
                stdout=out,
                stderr=subprocess.STDOUT,
            )
            try:
                with httpx.Client(
                    base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S
                ) as client:
                    wait_until(lambda: process.poll() is not None or answers(client), log.read_text)
                    assert process.poll() is None, log.read_text()
                    yield client
                process.terminate()
                process.wait(PATIENCE_S)
                assert "Traceback" not in log.read_text()
            finally:
                process.kill()
                process.wait()

    def _words(self, port: str) -> list[str]:
        return [each.format(module=self.module, port=port) for each in self.server]


APPLICATIONS = (
    WebApplication("quart_reports", ("hypercorn", "--bind", "127.0.0.1:{port}", "{module}:site")),
    WebApplication("litestar_reports", ("uvicorn", "--port", "{port}", "{module}:site")),
    WebApplication(
        "flask_reports", ("flask", "--app", "{module}:site", "run", "--port", "{port}"), False
    ),
)


def free_port() -> str:
    """Return a port that nothing listens on at this moment."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def environment() -> dict[str, str]:
    """Return this process's variables without settings of Holdfast's own."""
    return {name: text for name, text in os.environ.items() if not name.startswith(PREFIXES)}
