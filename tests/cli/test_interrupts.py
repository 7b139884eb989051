"""An interrupt ends a command wherever it reaches it."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cli.exit_codes import Exit
from tests.cli.processes import Command
from tests.cli.scene import Scene
from tests.support.until import PATIENCE_S

APPLICATION = """
from holdfast import Holdfast

app = Holdfast()

@app.job("hello")
def hello(job: object) -> None: ...
"""


@pytest.fixture
def ignored_interrupts() -> Iterator[None]:
    """Start commands as a shell without job control does in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ignored_interrupts", "scene")
@pytest.mark.parametrize(
    ("words", "said", "code"),
    [
        (["status", "--watch"], "", Exit.INTERRUPTED),
        (["jobs", "tail", "--lines", "1"], "", Exit.INTERRUPTED),
        (["dev", "shop:app", "--no-dashboard"], "worker started", Exit.OK),
        (["worker", "shop:app"], "worker_started", Exit.OK),
        (["worker", "shop:app", "--reload"], "worker_started", Exit.OK),
        (["api", "serve", "--port", "0"], "serving the API", Exit.OK),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_a_command_that_runs_until_it_is_interrupted_hears_that_in_the_background_too(
    tmp_path: Path, scene: Scene, words: list[str], said: str, code: Exit
) -> None:
    (tmp_path / "shop.py").write_text(APPLICATION)
    scene.start()
    with Command(*words, cwd=tmp_path, is_warm=False, joined=True) as command:
        while said not in command.line():
            pass
        assert command.interrupt() == code


@pytest.mark.usefixtures("ignored_interrupts")
def test_a_command_that_ends_by_itself_leaves_the_signal_ignored() -> None:
    script = (
        "import os, signal\n"
        "from holdfast.cli import reference\n"
        "from holdfast.cli.main import main\n"
        f"reference.explanations = lambda: os.kill(os.getpid(), {int(signal.SIGINT)}) or {{}}\n"
        "main()"
    )
    command = [sys.executable, "-c", script, "explain"]
    assert subprocess.run(command, timeout=PATIENCE_S, check=False).returncode == Exit.OK
