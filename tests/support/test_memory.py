"""What a test run writes goes to memory only where that is wanted and possible, and nothing of it stays."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.memory import PREFIX, VARIABLE, temporary_files_in_memory


@pytest.fixture
def wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that wants it, whatever this one does."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setenv(VARIABLE, "1")


def test_this_process_and_its_programs_write_there_and_nothing_stays(
    wanted: None, tmp_path: Path
) -> None:
    before = tempfile.gettempdir()
    with temporary_files_in_memory(tmp_path, needed=1):
        (folder,) = tmp_path.iterdir()
        assert tempfile.gettempdir() == str(folder)
        told = "import tempfile; print(tempfile.mkdtemp())"
        done = subprocess.run([sys.executable, "-c", told], text=True, capture_output=True)
        assert Path(done.stdout.strip()).parent == folder
    assert list(tmp_path.iterdir()) == []
    assert tempfile.gettempdir() == before


def test_without_room_or_against_a_wish_all_stays_as_it_was(
    wanted: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with temporary_files_in_memory(tmp_path, needed=2**60):
        assert "TMPDIR" not in os.environ
    with temporary_files_in_memory(tmp_path / "missing", needed=1):
        assert "TMPDIR" not in os.environ
    monkeypatch.setenv("TMPDIR", "/somewhere")
    with temporary_files_in_memory(tmp_path, needed=1):
        assert os.environ["TMPDIR"] == "/somewhere"
    monkeypatch.delenv("TMPDIR")
    monkeypatch.delenv(VARIABLE)
    with temporary_files_in_memory(tmp_path, needed=1):
        assert "TMPDIR" not in os.environ


def test_folders_of_killed_runs_are_removed_and_no_others(wanted: None, tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    names = {pid: f"{PREFIX}{os.getuid()}-{pid}" for pid in (ended.pid, os.getppid())}
    for name in (*names.values(), "of-others"):
        (tmp_path / name).mkdir()
    with temporary_files_in_memory(tmp_path, needed=1):
        pass
    assert {each.name for each in tmp_path.iterdir()} == {names[os.getppid()], "of-others"}
