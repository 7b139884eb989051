"""One PostgreSQL database object serves many threads and leaves nothing behind."""

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.storage.postgres.database import PostgresDatabase

THREADS = 16


@pytest.fixture
def restless() -> Iterator[None]:
    """Let threads interrupt each other as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("restless")
def test_threads_that_come_first_together_share_one_pool(postgres_url: str) -> None:
    before = set(threading.enumerate())
    database = PostgresDatabase(postgres_url)
    together = threading.Barrier(THREADS)

    def ask(_: int) -> int:
        together.wait()
        return database.run(database.store.schema.clock())

    with ThreadPoolExecutor(THREADS) as threads:
        assert len(list(threads.map(ask, range(THREADS)))) == THREADS
    database.close()
    assert set(threading.enumerate()) <= before, "a second pool was never closed"
