"""A worker's connection to PostgreSQL ends when it is told to, at whatever moment that is."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.storage.postgres.database import PostgresDatabase


async def cancelled_at_an_answer(
    database: PostgresDatabase, number: int, patch: pytest.MonkeyPatch
) -> bool:
    """Open a link, cancel it in the moment of the server's nth word, and say whether there were so many."""
    loop = asyncio.get_running_loop()
    add_reader, heard = loop.add_reader, itertools.count(1)

    def add_listener(fd: int, callback: Callable[..., Any], *arguments: Any) -> None:
        def hear() -> None:
            callback(*arguments)
            if next(heard) == number:
                task.cancel()

        add_reader(fd, hear)

    link = database.link("test")
    with patch.context() as context:
        context.setattr(loop, "add_reader", add_listener)
        task = asyncio.create_task(link.run(database.store.schema.clock()))
        await asyncio.wait([task])
    await link.close()
    if next(heard) <= number:
        return False
    assert task.cancelled(), f"lost at the word {number}"
    return True


async def test_no_cancellation_is_lost_however_far_the_connection_is(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = PostgresDatabase(postgres_url)
    number = 1
    while await cancelled_at_an_answer(database, number, monkeypatch):
        number += 1
    assert number > 3
