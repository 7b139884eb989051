"""The first steps: an application to begin from, and a terminal that follows its changes."""

import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from holdfast.cli.child_process import RelayedProcess
from holdfast.cli.dev import SourceWatcher, _stop
from holdfast.cli.exit_codes import Exit
from holdfast.cli.orphan_guard import OrphanGuard
from tests.cli.conftest import Run
from tests.cli.processes import Command
from tests.support.until import PATIENCE_S
from tests.support.warm_python import LIBRARIES


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def python(*words: str) -> subprocess.CompletedProcess[str]:
    return LIBRARIES.run(words, Path.cwd(), os.environ, PATIENCE_S)


def test_what_init_writes_works_and_its_test_passes(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run("init")
    assert result.exit_code == 0
    assert result.stdout == "app.py\ntest_app.py\n"
    # Other plugins of this machine take longer to load than the tests to run.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    only = ("-p", "holdfast_testing.plugin", "-p", "no:cacheprovider")
    tested = python("-m", "pytest", "-q", *only, f"--rootdir={folder}", "test_app.py")
    assert "2 passed" in tested.stdout, tested.stdout
    assert python("app.py").returncode == 0
    drained = python("-m", "holdfast", "worker", "app:app", "--drain")
    assert drained.returncode == 0, drained.stderr
    assert "order 1 charged" in drained.stdout
    assert run("jobs", "list", "state:completed", "-o", "id").stdout.count("\n") == 3


def test_init_replaces_nothing_unasked(folder: Path, run: Run) -> None:
    (folder / "app.py").write_text("mine")
    refused = run("init")
    assert refused.exit_code == Exit.REFUSED
    assert (folder / "app.py").read_text() == "mine"
    assert not (folder / "test_app.py").exists()
    assert run("init", "--force").exit_code == 0
    assert (folder / "app.py").read_text() != "mine"


def test_init_can_be_tried_without_writing(folder: Path, run: Run) -> None:
    result = run("init", "shop", "--dry-run")
    assert "would write shop/app.py" in result.stderr
    assert list(folder.iterdir()) == []


def test_what_init_says_can_be_typed_whatever_the_folder_is_called(folder: Path, run: Run) -> None:
    assert "  cd 'my shop'\n" in run("init", "my shop").stderr


def test_init_says_where_it_may_not_write(folder: Path, run: Run) -> None:
    (folder / "file").write_text("")
    result = run("init", "file/below")
    assert result.exit_code == Exit.USAGE
    assert "file/below" in result.stderr


def test_a_changed_an_added_and_a_removed_source_are_noticed_once(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("1")
    (tmp_path / ".venv").mkdir()
    watch = SourceWatcher(tmp_path)
    assert watch.find_change() is None
    (tmp_path / ".venv" / "other.py").write_text("")
    (tmp_path / "notes.txt").write_text("")
    assert watch.find_change() is None
    (tmp_path / "app.py").write_text("23")
    assert watch.find_change() == Path("app.py")
    assert watch.find_change() is None
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "more.py").write_text("")
    assert watch.find_change() == Path("sub/more.py")
    (tmp_path / "app.py").unlink()
    assert watch.find_change() == Path("app.py")


APPLICATION = """
from holdfast import Holdfast, Job

app = Holdfast()

@app.job("hello")
def hello(job: Job[None]) -> None:
    print("hello {version}", flush=True)
"""


def test_dev_runs_the_worker_and_starts_again_when_the_code_changes(folder: Path, run: Run) -> None:
    code = folder / "shop.py"
    code.write_text(APPLICATION.format(version="one"))
    with Command("dev", "shop:app", "--no-dashboard") as dev:
        wait_for(dev, "worker started")
        assert run("jobs", "start", "hello", "--new-type").exit_code == 0
        wait_for(dev, "hello one")
        wait_for(dev, "job completed")
        code.write_text(APPLICATION.format(version="number two"))
        wait_for(dev, "worker stopped")
        wait_for(dev, "worker started")
        assert run("jobs", "start", "hello", "--new-type").exit_code == 0
        wait_for(dev, "hello number two")
        code.write_text("this is no Python")
        dev.wait_for_word("the worker exited with code 2")
        code.write_text(APPLICATION.format(version="three, mended"))
        wait_for(dev, "worker started")
        children = psutil.Process(dev.process.pid).children(recursive=True)
        assert dev.interrupt() == 0
    gone, _ = psutil.wait_procs(children, timeout=PATIENCE_S)
    assert len(gone) == len(children)


def wait_for(dev: Command, word: str) -> None:
    line_with(dev, word)


def line_with(dev: Command, word: str) -> str:
    while word not in (line := dev.line()):
        pass
    return line


def port_of(line: str) -> str:
    return line.partition("http://127.0.0.1:")[2].split()[0]


def test_dev_serves_the_dashboard_beside_the_worker(folder: Path) -> None:
    (folder / "shop.py").write_text(APPLICATION.format(version="one"))
    with Command("dev", "shop:app", "--port", "0") as dev:
        first = line_with(dev, "serving the API and the dashboard on http://127.0.0.1:")
        (folder / "shop.py").write_text(APPLICATION.format(version="two"))
        again = line_with(dev, "serving the API and the dashboard on http://127.0.0.1:")
        assert port_of(first) == port_of(again)
        assert dev.interrupt() == 0


def test_dev_says_what_it_cannot_load(folder: Path, run: Run) -> None:
    result = run("dev", "nothing:app")
    assert result.exit_code == Exit.USAGE
    assert "error[HF092]" in result.stderr


def test_a_killed_dev_leaves_nobody_behind(folder: Path) -> None:
    (folder / "shop.py").write_text(APPLICATION.format(version="one"))
    with Command("dev", "shop:app", "--no-dashboard") as dev:
        wait_for(dev, "worker started")
        children = psutil.Process(dev.process.pid).children(recursive=True)
        dev.process.kill()
        gone, _ = psutil.wait_procs(children, timeout=PATIENCE_S)
        assert len(gone) == len(children)


def test_a_child_is_asked_to_stop_once_so_that_its_handlers_can_finish(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(RelayedProcess, "_signal", lambda _, number: asked.append(number))
    with OrphanGuard() as guard:
        child = RelayedProcess("worker", "cyan", ["--version"], guard)
        child.start()
        _stop([child])
    assert asked == [signal.SIGTERM]
