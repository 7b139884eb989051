"""Rows that tests begin with are written once and are the same in every database after that."""

from pathlib import Path

import pytest

from holdfast.app import Holdfast
from tests.support.postgres import PostgresServer
from tests.support.saved_rows import BeginWith


class Writer:
    """Writes one job."""

    def __init__(self) -> None:
        self.app = Holdfast(open_types=True)
        self.count = 0

    async def write(self) -> None:
        """Write them, and count it."""
        self.count += 1
        with self.app.transaction() as tx:
            self.app.start(tx, "mail.send", {"to": "ana"})


async def begin(beginning: BeginWith, writer: Writer, url: str) -> list[str]:
    """Fill a database; return the ids of its jobs and its own."""
    writer.app = Holdfast(url, open_types=True)
    writer.app.migrate()
    await beginning.fill(url, writer.write)
    jobs = [str(job.id) for job in writer.app.jobs.list().items]
    identity = writer.app.database.read(writer.app.database.store.schema.identity())
    await writer.app.aclose()
    assert identity is not None
    assert identity.recorded_name == identity.name
    return [*jobs, identity.id]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_the_second_database_gets_what_the_first_one_was_given(
    kind: str, tmp_path: Path, postgres_server: PostgresServer
) -> None:
    beginning, writer = BeginWith(), Writer()
    if kind == "sqlite":
        urls = [f"sqlite:///{tmp_path / name}" for name in ("one.db", "two.db")]
        found = [await begin(beginning, writer, url) for url in urls]
    else:
        with postgres_server.database() as one, postgres_server.database() as two:
            found = [await begin(beginning, writer, url) for url in (one, two)]
    assert found[0][0] == found[1][0]
    assert found[0][1] != found[1][1]
    assert writer.count == 1
