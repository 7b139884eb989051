"""Files that no row names are removed, and no other file is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast_files import Files, open_files
from holdfast_files.errors import LargeValuesShared
from holdfast_testing.kit import Kit
from tests.large_values.conftest import MakeKit, letter, start

LARGE = letter(10_000)
CYCLE = "large-values"


def value_files(files: Files) -> list[str]:
    return [each.key for each in files.list() if not each.key.endswith(".json")]


def look_twice(kit: Kit) -> dict[str, Any]:
    """Have unused files found, and found again; return the counters of the second run."""
    kit.run_cycle(CYCLE)
    kit.advance("2h")
    return dict(kit.run_cycle(CYCLE).counters)


def delete(kit: Kit, *chains: Any) -> None:
    with kit.app.transaction() as tx:
        kit.app.chains.delete(tx, *chains)


def test_the_file_of_a_removed_job_goes_after_day_and_grace_and_two_looks(
    make_kit: MakeKit, any_files: Files
) -> None:
    kit = make_kit(any_files)
    chain = start(kit, "echo", LARGE)
    kit.run_until_idle()
    kit.app.chains.wait(chain, timeout="5s")
    delete(kit, chain)
    look_twice(kit)
    assert len(value_files(any_files)) == 1, "its day is not over"
    kit.advance("3d")
    first = kit.run_cycle(CYCLE).counters
    assert (first["unused"], len(value_files(any_files))) == (1, 1)
    kit.advance("10m")
    kit.run_cycle(CYCLE)
    assert len(value_files(any_files)) == 1, "the second look came too soon"
    kit.advance("2h")
    last = kit.run_cycle(CYCLE).counters
    assert value_files(any_files) == []
    assert (last["processed"], last["bytes"] > 10_000) == (1, True)


def test_a_file_stays_as_long_as_any_job_names_it(kit: Kit, directory_files: Files) -> None:
    first, second = start(kit, "measure", LARGE), start(kit, "measure", LARGE)
    assert len(value_files(directory_files)) == 1
    kit.run_until_idle()
    kit.advance("3d")
    delete(kit, first)
    look_twice(kit)
    assert kit.app.jobs.get(second.id).input == LARGE
    delete(kit, second)
    look_twice(kit)
    assert value_files(directory_files) == []


def test_results_and_inputs_that_wait_to_be_taken_over_are_kept(
    kit: Kit, directory_files: Files
) -> None:
    done = start(kit, "repeat", 9_000)
    kit.run_until_idle()
    start(kit, "measure", LARGE, key="one", debounce="30d")
    start(kit, "measure", letter(11_000), key="one", debounce="30d")
    kit.advance("3d")
    look_twice(kit)
    assert kit.app.chains.wait(done, timeout="5s").output == letter(9_000)
    assert len(value_files(directory_files)) == 3


def test_a_rolled_back_start_leaves_a_file_that_is_removed(
    kit: Kit, directory_files: Files
) -> None:
    kept = start(kit, "measure", letter(20_000))

    def fail() -> None:
        with kit.app.transaction() as tx:
            kit.app.start(tx, "measure", LARGE)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert len(value_files(directory_files)) == 2
    kit.advance("3d")
    look_twice(kit)
    assert len(value_files(directory_files)) == 1
    assert kit.app.jobs.get(kept.id).input == letter(20_000)


def test_retention_removes_jobs_and_upkeep_their_files(kit: Kit, directory_files: Files) -> None:
    from holdfast.commands.retention import FIRST_ID, Ages, remove_chains

    start(kit, "echo", LARGE)
    kit.run_until_idle()
    kit.advance("40d")
    database, ages = kit.app.database, Ages(30, 90, 30)
    removed = database.run(
        remove_chains(database.store, ages, FIRST_ID, 100, kit.app.instant())
    ).removed
    assert removed == 1
    look_twice(kit)
    assert value_files(directory_files) == []


def test_files_of_others_are_left_alone(kit: Kit, directory_files: Files) -> None:
    directory_files.put("large-values/readme.txt", b"not ours")
    directory_files.put("invoices/2020-01-01/7.pdf", b"neither")
    kit.advance("3d")
    look_twice(kit)
    assert "large-values/readme.txt" in value_files(directory_files)
    assert "invoices/2020-01-01/7.pdf" in value_files(directory_files)


def test_a_value_that_is_stored_again_on_another_day_has_a_file_of_its_own(
    kit: Kit, directory_files: Files
) -> None:
    first = start(kit, "measure", LARGE)
    kit.advance("1d")
    again = start(kit, "measure", LARGE)
    assert len(value_files(directory_files)) == 2
    delete(kit, first)
    kit.advance("5d")
    look_twice(kit)
    assert len(value_files(directory_files)) == 1
    kit.run_until_idle()
    assert kit.app.chains.wait(again, timeout="5s").output == 10_000


def test_what_is_named_again_between_two_looks_is_kept(kit: Kit, directory_files: Files) -> None:
    """As when a row was copied, and the look came between the end of the first and the commit of the second."""
    chain = start(kit, "measure", LARGE)
    text = kit.app.database.read(kit.app.database.store.jobs.get([str(chain.id)]))[0].input
    delete(kit, chain)
    kit.advance("3d")
    kit.run_cycle(CYCLE)
    from holdfast.core.records import NewJob

    id = str(kit.app.new_id())
    kit.app.database.run(kit.app.database.store.jobs.insert([NewJob(id, id, "measure", text)]))
    kit.advance("2h")
    kit.run_cycle(CYCLE)
    kit.run_until_idle()
    assert kit.app.chains.wait(id, timeout="5s").output == 10_000


def test_another_database_cannot_remove_what_this_one_names(
    kit: Kit, directory_files: Files, tmp_path: Path
) -> None:
    start(kit, "measure", LARGE)
    kit.run_cycle(CYCLE)
    from holdfast_files import add_large_values

    other = Holdfast(f"sqlite:///{tmp_path / 'other.db'}")
    add_large_values(other, directory_files)
    second = Kit(other, other.url)
    second.advance("3d")
    with pytest.raises(LargeValuesShared, match="belongs to the database"):
        second.run_cycle(CYCLE)
    other.close()
    assert len(value_files(directory_files)) == 1


DIES_BEFORE_COMMIT = """
import os, sys
from holdfast import Holdfast
from holdfast_files import add_large_values

app = Holdfast(sys.argv[1], open_types=True)
add_large_values(app, sys.argv[2], over="4KB")
with app.transaction() as tx:
    app.start(tx, "measure", {"text": "a" * 10_000}) if sys.argv[3] == "row" else None
    if sys.argv[3] == "file":
        put = app.attached["large_values"].files.put
        def dies(*given):
            put(*given)
            os.kill(os.getpid(), 9)
        app.attached["large_values"].files.put = dies
        app.start(tx, "measure", {"text": "a" * 10_000})
    os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("after", ["file", "row"])
def test_a_producer_killed_before_its_commit_leaves_a_file_and_no_row(
    kit: Kit, url: str, directory_files: Files, tmp_path: Path, after: str
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", DIES_BEFORE_COMMIT, url, str(tmp_path / "files"), after],
        capture_output=True,
        timeout=60,
    )
    assert ended.returncode == -9, ended.stderr.decode()
    assert len(value_files(directory_files)) == 1
    assert list(kit.app.jobs.list()) == []
    # The same value is started again meanwhile, and shares the file.
    chain = start(kit, "measure", LARGE)
    kit.advance("3d")
    look_twice(kit)
    kit.run_until_idle()
    assert kit.app.chains.wait(chain, timeout="5s").output == 10_000


def test_a_worker_killed_after_it_stored_a_result_leaves_nothing_half_done(
    kit: Kit, directory_files: Files, monkeypatch: Any
) -> None:
    chain = start(kit, "repeat", 9_000)
    values = kit.app.attached["large_values"]
    store = values.store

    def dies(text: str) -> str:
        store(text)
        raise SystemExit("killed after the file, before the row")

    with monkeypatch.context() as patch:
        patch.setattr(values, "store", dies)
        kit.run_until_idle()
    assert len(value_files(directory_files)) == 1
    kit.advance("1h")
    kit.run_until_idle()
    assert kit.app.chains.wait(chain, timeout="5s").output == letter(9_000)


def test_a_url_opens_the_files(tmp_path: Path, sqlite_url: str) -> None:
    from holdfast_files import add_large_values

    app = Holdfast(sqlite_url)
    values = add_large_values(app, str(tmp_path / "kept"), every="1h")
    values.files.put("large-values/x", b"1")
    assert open_files(tmp_path / "kept").get("large-values/x") == b"1"
    app.close()
