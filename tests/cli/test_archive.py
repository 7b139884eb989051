"""`holdfast archive` from the shell: run, list, show, verify, restore."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.archive.scene import APPLICATION, OCTOBER, SEPTEMBER, Deliveries, damage
from tests.cli.conftest import Run
from tests.cli.scene import Scene
from tests.support.until import PATIENCE_S
from tests.support.warm_python import LIBRARIES

APP = ("--app", "shipping:app")


@pytest.fixture
def folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scene: Scene, deliveries: Deliveries
) -> Iterator[Path]:
    """A folder with the application and a directory for its archive."""
    (tmp_path / "shipping.py").write_text(APPLICATION)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_ARCHIVE", str(tmp_path / "archive"))
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("shipping", None)


@pytest.fixture
def deliveries(url: str) -> Deliveries:
    """The table of the application."""
    found = Deliveries(url)
    found.create()
    return found


def process(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a process of its own."""
    command = ("-m", "holdfast", "archive", *words)
    return LIBRARIES.run(command, Path.cwd(), os.environ, PATIENCE_S)


def test_closed_periods_are_archived_dropped_verified_and_restored(
    folder: Path, scene: Scene, deliveries: Deliveries
) -> None:
    ran = process("run", *APP, "-o", "json")
    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout)
    assert (report["periods"], report["rows"], report["failed"]) == (2, 100, 0)
    assert report["manifests"] == [SEPTEMBER, OCTOBER]
    assert f"export {SEPTEMBER}: " in ran.stderr
    assert "\x1b" not in ran.stderr
    assert "archived 2 periods (100 rows, " in ran.stderr

    listed = process("list", "-o", "json")
    october, september = json.loads(listed.stdout)
    assert [october["name"], september["name"]] == [OCTOBER, SEPTEMBER]
    assert {each["state"] for each in (october, september)} == {"verified"}
    assert "token" not in october
    shown = process("show", "deliveries/2025-10")
    assert october["objects"][0]["sha256"] in shown.stdout
    assert "verified 2 manifests, 0 failed" in process("verify", "--all").stderr

    dropped = process("run", *APP)
    assert "dropped 100, failed 0" in dropped.stderr
    assert deliveries.count() == 0
    restored = process("restore", OCTOBER, "--yes", "--reason", "claim 7", "-o", "json")
    assert restored.returncode == 0, restored.stderr
    assert json.loads(restored.stdout)["inserted"] == 50
    assert "restored 50 rows; 0 existed" in restored.stderr
    assert deliveries.count() == 50
    again = json.loads(process("restore", OCTOBER, "--yes", "-o", "json").stdout)
    assert (again["inserted"], again["skipped"]) == (0, 50)
    deeds = [deed[:2] for deed in scene.deeds()]
    assert ("archive.run", "archive") in deeds
    assert deeds.count(("archive.restore", f"manifest {OCTOBER}")) == 2
    assert deeds.count(("archive.verify", f"manifest {OCTOBER}")) == 1


def test_without_a_store_of_files_a_run_says_so_and_succeeds(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOLDFAST_ARCHIVE")
    ran = process("run", *APP, "-o", "json")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["configured"] is False
    assert "HOLDFAST_ARCHIVE is not set" in ran.stderr


def test_a_run_without_an_archive_is_explained(folder: Path, run: Run) -> None:
    ran = run("archive", "run")
    assert ran.exit_code == 2
    assert "--app" in ran.stderr
    unknown = run("archive", "run", "invoices", *APP)
    assert unknown.exit_code == 2
    assert "'invoices' is not archived" in unknown.stderr


def test_a_restore_is_confirmed_first(folder: Path, run: Run, deliveries: Deliveries) -> None:
    run("archive", "run", *APP)
    run("archive", "run", *APP)
    assert deliveries.count() == 0
    refused = run("archive", "restore", OCTOBER)
    assert (refused.exit_code, deliveries.count()) == (4, 0)
    assert "about to restore 1 manifest" in refused.stderr
    tried = run("archive", "restore", OCTOBER, "--dry-run")
    assert tried.exit_code == 0
    assert "would restore 1 manifest; nothing was changed" in tried.stderr
    assert deliveries.count() == 0
    assert run("archive", "restore", OCTOBER, "--into", "deliveries_copy", "--yes").exit_code == 0
    assert (deliveries.count(), deliveries.count("deliveries_copy")) == (0, 50)


def test_a_row_with_other_values_stops_a_restore(
    folder: Path, run: Run, deliveries: Deliveries
) -> None:
    run("archive", "run", *APP)
    deliveries.execute("update deliveries set note = 'changed' where id = 1")
    deliveries.execute("delete from deliveries where id = 3")
    conflict = run("archive", "restore", OCTOBER, "--yes")
    assert (conflict.exit_code, deliveries.count()) == (4, 99)
    assert "HF113" in conflict.stderr


def test_a_damaged_object_fails_the_check(folder: Path, run: Run) -> None:
    run("archive", "run", *APP)
    damage(folder / "archive", OCTOBER)
    one = run("archive", "verify", OCTOBER)
    assert one.exit_code == 6
    assert "HF111" in one.stderr
    both = run("archive", "verify", "--all", "-o", "json")
    assert both.exit_code == 6
    assert {each["name"]: each["state"] for each in json.loads(both.stdout)} == {
        OCTOBER: "failed",
        SEPTEMBER: "verified",
    }
    assert "verified 1 manifest, 1 failed" in both.stderr
    assert run("archive", "list", "--state", "failed", "-o", "id").stdout.split() == [OCTOBER]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("show", "deliveries/1999-01"), 3, "HF110"),
        (("verify", "deliveries/1999-01"), 3, "HF110"),
        (("restore", "nonsense", "--yes"), 3, "HF110"),
        (("verify",), 2, "--all"),
        (("verify", OCTOBER, "--all"), 2, "--all"),
        (("list", "--state", "gone"), 2, "pending"),
    ],
)
def test_what_makes_no_sense_is_explained(
    folder: Path, run: Run, words: tuple[str, ...], code: int, message: str
) -> None:
    found = run("archive", *words)
    assert (found.exit_code, message in found.stderr) == (code, True), found.stderr


def test_nothing_archived_is_an_empty_list(folder: Path, run: Run) -> None:
    assert run("archive", "list").stderr == "no manifests found\n"
    assert run("archive", "list", "-o", "json").stdout == "[]\n"


def test_a_terminal_shows_a_bar_and_takes_it_away(folder: Path) -> None:
    leader, follower = pty.openpty()
    ran = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "archive", "run", *APP, "-o", "id"],
        stdout=subprocess.PIPE,
        stderr=follower,
        text=True,
    )
    out, _ = ran.communicate(timeout=PATIENCE_S)
    os.close(follower)
    seen = os.read(leader, 1_000_000).decode()
    os.close(leader)
    assert out.split() == [SEPTEMBER, OCTOBER]
    assert f"verify {OCTOBER} [" in seen
    assert seen.replace("\r\n", "\n").rpartition("\x1b[K")[2].startswith("archived 2 periods")
