"""Large inputs are in files, and handlers get them as they get others."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import pytest

from holdfast import Holdfast, Start, errors
from holdfast.core.sealing import is_large, is_sealed
from holdfast_files import Files, add_large_values
from holdfast_files.large_values import read_reference
from holdfast_testing.kit import Kit
from tests.large_values.conftest import MakeKit, letter, start, stored, stored_files

LARGE = letter(10_000)


def test_a_large_input_is_in_a_file_and_its_row_names_size_and_digest(
    make_kit: MakeKit, any_files: Files
) -> None:
    kit = make_kit(any_files)
    chain = start(kit, "measure", LARGE)
    assert chain.input == LARGE
    input, _ = stored(kit, chain.id)
    reference = read_reference(input)
    assert reference is not None
    assert len(input) < 200
    (key,) = stored_files(any_files)
    content = any_files.get(key)
    assert (reference.size, reference.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    assert key == f"large-values/{reference.day}/{reference.sha256}"
    kit.run_until_idle()
    assert kit.app.chains.wait(chain, timeout="5s").output == 10_000
    assert kit.app.jobs.get(chain.id).input == LARGE


def test_a_small_input_stays_in_its_row(kit: Kit, directory_files: Files) -> None:
    chain = start(kit, "measure", letter(100))
    assert not is_large(stored(kit, chain.id)[0])
    assert stored_files(directory_files) == []


def test_the_size_counts_bytes_and_not_characters(kit: Kit) -> None:
    at_most = start(kit, "measure", letter(2_000, "a"))
    beyond = start(kit, "measure", letter(2_000, "字"))
    assert [is_large(stored(kit, each.id)[0]) for each in (at_most, beyond)] == [False, True]


def test_an_input_beyond_the_limit_of_rows_runs_and_one_beyond_up_to_is_refused(
    make_kit: MakeKit, directory_files: Files
) -> None:
    kit = make_kit(directory_files, up_to="3MB")
    chain = start(kit, "measure", letter(2 * 1024**2))
    kit.run_until_idle()
    assert kit.app.chains.wait(chain, timeout="5s").output == 2 * 1024**2
    with pytest.raises(errors.PayloadTooLarge, match="the limit is 3145728"):
        start(kit, "measure", letter(4 * 1024**2))


def test_without_files_the_limit_is_what_it_was(make_kit: MakeKit) -> None:
    kit = make_kit(None)
    with pytest.raises(errors.PayloadTooLarge, match="the limit is 1048576"):
        start(kit, "measure", letter(2 * 1024**2))
    chain = start(kit, "measure", LARGE)
    assert not is_large(stored(kit, chain.id)[0])


def test_starts_with_options_of_many_and_of_all_use_files(kit: Kit, directory_files: Files) -> None:
    app = kit.app
    with app.transaction() as tx:
        chains = [
            app.start(tx, "measure", LARGE, priority=3),
            app.start(tx, "measure", LARGE, key="one"),
            *app.start_many(tx, "measure", [LARGE, letter(5_000)]),
            *app.start_all(tx, [Start("echo", LARGE, after="0s"), Start("measure", letter(3))]),
            *app.publish(tx, "uploaded", LARGE),
        ]
    are_large = [is_large(stored(kit, each.id)[0]) for each in chains]
    assert are_large == [True, True, True, True, True, False, True]
    # Equal contents share a file.
    assert len(stored_files(directory_files)) == 2
    assert chains[0].input == LARGE
    kit.run_until_idle()
    outputs = [app.chains.wait(each, timeout="5s").output for each in chains]
    assert outputs == [10_000, 10_000, 10_000, 5_000, LARGE, 3, 10_000]


def test_a_start_that_a_key_deduplicates_gives_the_input_of_the_first(kit: Kit) -> None:
    first = start(kit, "measure", LARGE, key="one")
    again = start(kit, "measure", letter(9_000), key="one")
    assert (again.id, again.deduplicated, again.input) == (first.id, True, LARGE)


def test_a_debounced_start_runs_with_the_last_of_its_inputs(kit: Kit) -> None:
    start(kit, "measure", LARGE, key="one", debounce="1m")
    chain = start(kit, "measure", letter(7_000), key="one", debounce="1m")
    kit.advance("2m")
    kit.run_until_idle()
    assert kit.app.chains.wait(chain, timeout="5s").output == 7_000


def test_a_continuation_and_one_from_outside_use_files(kit: Kit) -> None:
    chain = start(kit, "first", 6_000)
    kit.run_until_idle()
    assert kit.app.chains.wait(chain, timeout="5s").output == 6_000
    jobs = kit.app.chains.jobs(chain)
    assert is_large(stored(kit, jobs[1].id)[0])
    other = start(kit, "first", 1)
    with kit.app.transaction() as tx:
        kit.app.chains.continue_with(tx, other, "measure", letter(8_000))
    kit.run_until_idle()
    assert kit.app.chains.wait(other, timeout="5s").output == 8_000


def test_batch_handlers_get_the_values(kit: Kit) -> None:
    with kit.app.transaction() as tx:
        chains = kit.app.start_many(tx, "measure.all", [letter(5_000 + n) for n in range(3)])
    kit.run_until_idle()
    outputs = [kit.app.chains.wait(each, timeout="5s").output for each in chains]
    assert outputs == [5_000, 5_001, 5_002]


def test_a_sealed_input_is_sealed_in_its_file_too(sealed_kit: Kit, directory_files: Files) -> None:
    kit = sealed_kit
    chain = start(kit, "measure.sealed", LARGE)
    input, _ = stored(kit, chain.id)
    assert is_large(input)
    assert is_sealed(input)
    (key,) = stored_files(directory_files)
    assert b"aaaa" not in directory_files.get(key)
    assert kit.app.jobs.get(chain.id).input == LARGE
    kit.run_until_idle()
    done = kit.app.chains.wait(chain, timeout="5s")
    assert done.output == LARGE
    assert all(b"aaaa" not in directory_files.get(each) for each in stored_files(directory_files))


def test_an_async_producer_is_not_held_up_by_the_files(kit: Kit, monkeypatch: Any) -> None:
    import threading

    threads: list[threading.Thread] = []
    values = kit.app.attached["large_values"]
    put = values.files.put

    def seen(*given: Any) -> Any:
        threads.append(threading.current_thread())
        return put(*given)

    monkeypatch.setattr(values.files, "put", seen)

    async def produce() -> Any:
        async with kit.app.transaction() as tx:
            return await kit.app.start(tx, "measure", LARGE)

    chain = asyncio.run(produce())
    assert is_large(stored(kit, chain.id)[0])
    assert threads
    assert threading.main_thread() not in threads


def test_a_rolled_back_start_leaves_no_row(kit: Kit, directory_files: Files) -> None:
    def fail() -> None:
        with kit.app.transaction() as tx:
            kit.app.start(tx, "measure", LARGE)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(kit.app.jobs.list()) == []
    assert len(stored_files(directory_files)) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"over": "much"},
        {"over": 10},
        {"over": "2MB"},
        {"over": True},
        {"up_to": "100KB"},
        {"up_to": "2GB"},
        {"prefix": ""},
        {"prefix": "../up"},
    ],
)
def test_bad_options_are_refused(directory_files: Files, options: dict[str, Any]) -> None:
    with pytest.raises(errors.HoldfastError) as raised:
        add_large_values(Holdfast("sqlite:///:memory:"), directory_files, **options)
    assert raised.value.code
    assert raised.value.fix


def test_it_is_refused_after_the_first_handler_and_twice(directory_files: Files) -> None:
    app = Holdfast("sqlite:///:memory:")
    add_large_values(app, directory_files)
    with pytest.raises(errors.InvalidOption, match="already has large values"):
        add_large_values(app, directory_files)
    late = Holdfast("sqlite:///:memory:")
    late.job("x")(lambda job: None)
    with pytest.raises(errors.InvalidOption, match="registered before"):
        add_large_values(late, directory_files)


def test_an_input_cannot_pretend_to_be_a_reference(kit: Kit) -> None:
    forged = {"$large": {"size": 1, "sha256": "0" * 64, "day": "2026-01-01"}}
    with pytest.raises(errors.PayloadNotEncodable, match="large"):
        start(kit, "echo", forged)
