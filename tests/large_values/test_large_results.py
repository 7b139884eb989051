"""Large results are in files, and what is wrong with a file is said and waited for."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from holdfast import Holdfast, Job, errors
from holdfast.admin.serializers import payloads_of
from holdfast.core.sealing import is_large
from holdfast.storage.operation import run
from holdfast_files import Files
from holdfast_files.errors import LargeValueChanged, LargeValueMissing, LargeValuesUnreachable
from holdfast_testing.kit import Kit
from tests.large_values.conftest import (
    MakeKit,
    add_types,
    letter,
    sentence,
    start,
    stored,
    stored_files,
)

LARGE = letter(10_000)


def test_a_large_result_is_in_a_file_and_read_when_it_is_asked_for(
    make_kit: MakeKit, any_files: Files
) -> None:
    kit = make_kit(any_files)
    chain = start(kit, "repeat", 9_000)
    kit.run_until_idle()
    output = stored(kit, chain.id)[1]
    assert output is not None
    assert is_large(output)
    listed = next(iter(kit.app.chains.list()))
    assert kit.app.chains.wait(chain, timeout="5s").output == letter(9_000)
    assert listed.output == letter(9_000)
    assert listed.output_as(dict[str, str]) == letter(9_000)
    for each in stored_files(any_files):
        any_files.delete(each)
    # A list names the value and does not read it.
    listed = next(iter(kit.app.chains.list()))
    with pytest.raises(LargeValueMissing):
        _ = listed.output


def test_results_of_sync_handlers_and_beyond_the_limit_of_rows_come_through(kit: Kit) -> None:
    chain = start(kit, "echo", letter(3 * 1024**2))
    kit.run_until_idle()
    assert kit.app.chains.wait(chain, timeout="5s").output == letter(3 * 1024**2)


def test_waiting_for_a_result_does_not_hold_up_the_loop(kit: Kit, monkeypatch: Any) -> None:
    chain = start(kit, "repeat", 9_000)
    kit.run_until_idle()
    values, threads = kit.app.attached["large_values"], []
    get = values.files.get

    def seen(*given: Any, **named: Any) -> Any:
        threads.append(threading.current_thread())
        return get(*given, **named)

    monkeypatch.setattr(values.files, "get", seen)

    async def wait() -> Any:
        return (await kit.app.aio.chains.wait(chain, timeout="5s")).output

    assert asyncio.run(wait()) == letter(9_000)
    assert threads
    assert threading.main_thread() not in threads


def test_blockers_hand_over_large_results(url: str, directory_files: Files) -> None:
    from holdfast_files import add_large_values

    app = Holdfast(url)
    add_large_values(app, directory_files, over="4KB")
    add_types(app)

    @app.job("sum")
    async def sum_up(job: Job[None]) -> int:
        return sum(len(each.output["text"]) for each in job.blockers)

    kit = Kit(app, url)
    with app.transaction() as tx:
        parts = [app.start(tx, "repeat", 5_000), app.start(tx, "repeat", 6_000)]
        chain = app.start(tx, "sum", blockers=[each.id for each in parts])
    kit.run_until_idle()
    assert app.chains.wait(chain, timeout="5s").output == 11_000
    app.close()


def test_an_atomic_handler_and_one_that_completes_in_its_transaction_use_files(
    url: str, directory_files: Files
) -> None:
    from holdfast_files import add_large_values

    app = Holdfast(url)
    add_large_values(app, directory_files, over="4KB")

    @app.job("atomic", atomic=True)
    async def atomic(job: Job[int]) -> dict[str, str]:
        return letter(job.input)

    @app.job("own")
    async def own(job: Job[int]) -> None:
        async with app.transaction() as tx:
            await job.complete(tx=tx, output=letter(job.input))

    kit = Kit(app, url)
    chains = [start(kit, "atomic", 5_000), start(kit, "own", 6_000)]
    kit.run_until_idle()
    assert all(is_large(stored(kit, each.id)[1] or "") for each in chains)
    outputs = [app.chains.wait(each.id, timeout="5s").output for each in chains]
    assert outputs == [letter(5_000), letter(6_000)]
    app.close()


def test_a_job_whose_file_is_missing_waits_and_runs_once_it_is_back(
    make_kit: MakeKit, any_files: Files
) -> None:
    kit = make_kit(any_files)
    chain = start(kit, "measure", LARGE)
    (key,) = stored_files(any_files)
    content = any_files.get(key)
    any_files.delete(key)
    kit.run_until_idle()
    job = kit.app.jobs.get(chain.id)
    assert (job.state, job.attempt) == ("pending", 0)
    (attempt,) = kit.app.jobs.attempts(chain.id)
    assert attempt.error is not None
    assert "LargeValueMissing" in attempt.error
    assert sentence(kit, chain.id).startswith(
        f"Its input cannot be read: there is no file {key}; next try in "
    )
    any_files.put(key, content)
    kit.advance("1h")
    kit.run_until_idle()
    assert kit.app.chains.wait(chain, timeout="5s").output == 10_000


def test_a_changed_file_is_never_given_to_a_handler(make_kit: MakeKit, any_files: Files) -> None:
    kit = make_kit(any_files)
    chain = start(kit, "measure", LARGE)
    (key,) = stored_files(any_files)
    any_files.put(key, any_files.get(key).replace(b"aaaa", b"bbbb"))
    kit.run_until_idle()
    job = kit.app.jobs.get(chain.id)
    assert (job.state, job.attempt) == ("pending", 0)
    with pytest.raises(LargeValueChanged, match="was changed") as raised:
        _ = job.input
    assert raised.value.code == "HF212"
    assert raised.value.fix


def test_files_that_cannot_be_read_are_waited_for(kit: Kit, monkeypatch: Any) -> None:
    chain = start(kit, "measure", LARGE)
    values = kit.app.attached["large_values"]
    key = stored_files(values.files)[0]
    with monkeypatch.context() as patch:
        # A folder in the place of the file: the disk refuses to read it.
        root = values.files._backend._root
        patch.setattr(values, "prefix", "blocked")
        (root / "blocked" / key.split("/")[1] / key.split("/")[2]).mkdir(parents=True)
        kit.run_until_idle()
        with pytest.raises((LargeValuesUnreachable, LargeValueMissing)):
            _ = kit.app.jobs.get(chain.id).input
    assert kit.app.jobs.get(chain.id).attempt == 0
    kit.advance("1h")
    kit.run_until_idle()
    assert kit.app.chains.wait(chain, timeout="5s").output == 10_000


def test_a_result_that_cannot_be_stored_is_retried_and_nothing_is_lost(
    kit: Kit, monkeypatch: Any
) -> None:
    chain = start(kit, "repeat", 9_000)
    values = kit.app.attached["large_values"]
    with monkeypatch.context() as patch:
        root = values.files._backend._root
        root.parent.mkdir(exist_ok=True)
        root.rename(root.with_name("away")) if root.exists() else None
        root.write_text("a file where the folder was")
        kit.run_until_idle()
        root.unlink()
        patch.undo()
    job = kit.app.jobs.get(chain.id)
    assert (job.state, job.attempt) == ("pending", 1)
    assert "FilesUnreachable" in (kit.app.jobs.attempts(chain.id)[0].error or "")
    kit.advance("1h")
    kit.run_until_idle()
    assert kit.app.chains.wait(chain, timeout="5s").output == letter(9_000)


def test_a_process_without_the_files_says_what_to_do_and_leaves_the_job_alone(
    make_kit: MakeKit, kit: Kit
) -> None:
    chain = start(kit, "measure", LARGE)
    other = make_kit(None)
    other.run_until_idle()
    job = other.app.jobs.get(chain.id)
    assert (job.state, job.attempt) == ("pending", 0)
    with pytest.raises(errors.SealError, match="in a file") as raised:
        _ = job.input
    assert raised.value.code == "HF122"
    assert "add_large_values" in str(raised.value.help)
    assert sentence(other, chain.id).startswith(
        "Its input cannot be read: the payload is in a file of large values; next try in "
    )
    kit.advance("1h")
    kit.run_until_idle()
    assert kit.app.chains.wait(chain, timeout="5s").output == 10_000


def test_surfaces_show_size_and_digest_and_do_not_read_the_file(
    kit: Kit, directory_files: Files
) -> None:
    chain = start(kit, "echo", LARGE)
    kit.run_until_idle()
    for each in stored_files(directory_files):
        directory_files.delete(each)
    database = kit.app.database
    (record,) = database.read(database.store.jobs.get([str(chain.id)]))
    shown = payloads_of(record, kit.app.registry.sealer)
    assert set(shown["input"]) == {"large"}
    assert set(shown["output"]["large"]) == {"size", "sha256", "day"}
    assert shown["output"]["large"]["size"] == len('{"text":""}') + 10_000


def test_an_operation_makes_a_blocking_call_and_goes_on(kit: Kit) -> None:
    from holdfast.storage.operation import Op, Statement

    made: list[int] = []

    def op() -> Op[int]:
        yield Statement("", {}, lambda: [made.append(1)])  # type: ignore[func-returns-value,list-item]
        return len(made)

    assert run(op(), kit.app.database) == 1  # type: ignore[arg-type]
