"""A SQLite file that each test copies: to migrate one costs ten times as much."""

from pathlib import Path

from holdfast.storage.sqlite.database import SqliteDatabase


def prepare_sqlite_template(path: Path) -> None:
    """Bring a new file to the state in which every test finds its own."""
    database = SqliteDatabase(path)
    database.migrate()
    # A copy of the template is a database of its own, not a restored one.
    with database.transaction() as transaction:
        transaction.connection.execute("delete from holdfast_identity")
    database.close()
