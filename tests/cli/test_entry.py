"""A command that is interrupted in its first moments ends without a traceback, as a real process."""

import os
import signal
from pathlib import Path

import pytest

import holdfast
from holdfast.cli.exit_codes import Exit
from tests.cli.processes import Command
from tests.support.until import PATIENCE_S

HALT = """
import sys


class Halt:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            print("importing", flush=True)
            while True:
                pass


sys.meta_path.insert(0, Halt())
"""


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, Exit.INTERRUPTED), (signal.SIGTERM, -signal.SIGTERM)],
    ids=["interrupt", "terminate"],
)
def test_a_signal_while_modules_are_imported_ends_it_quietly(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    (tmp_path / "sitecustomize.py").write_text(HALT)
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    with Command("status", env={"PYTHONPATH": path}, is_warm=False) as command:
        assert command.line() == "importing\n"
        assert command.ended_by(number) == code
        assert command.error() == ""


def test_the_package_itself_can_be_run() -> None:
    with Command("--version", is_warm=False) as command:
        assert command.line() == f"holdfast {holdfast.__version__}\n"
        assert command.process.wait(PATIENCE_S) == 0
