"""Opening a file: how it is set up, and what is refused before anything is written."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import ConfigError, DatabaseUnreachable, UnusableUrl, WrongDatabase
from holdfast.storage.sqlite.connection import (
    SqliteOptions,
    check_version,
    open_reader,
    open_writer,
    refuse_network_mount,
)
from holdfast.storage.sqlite.database import SqliteDatabase

MOUNTS = """\
/dev/vda / ext4 rw 0 0
server:/export /srv/shared nfs4 rw 0 0
/dev/vdb /srv/shared/local ext4 rw 0 0
//nas/my\\040files /mnt/my\\040files cifs rw 0 0
tmpfs /tmp tmpfs rw 0 0
me@host:/ /home/me/far fuse.sshfs rw 0 0
C:\\134 /mnt/c 9p rw 0 0
"""


def pragma(connection: sqlite3.Connection, query: str) -> Any:
    return connection.execute(query).fetchone()[0]


@pytest.mark.parametrize(("synchronous", "level"), [("FULL", 2), ("NORMAL", 1)])
def test_a_file_is_opened_in_wal_mode_with_the_chosen_durability(
    path: Path, synchronous: Any, level: int
) -> None:
    with closing(open_writer(SqliteOptions(str(path), synchronous))) as connection:
        assert pragma(connection, "pragma journal_mode") == "wal"
        assert pragma(connection, "pragma synchronous") == level
        assert pragma(connection, "pragma foreign_keys") == 0
    with closing(open_reader(SqliteOptions(str(path), synchronous))) as connection:
        assert pragma(connection, "pragma query_only") == 1


def test_an_old_sqlite_is_refused() -> None:
    check_version((3, 35, 0))
    with pytest.raises(ConfigError, match=r"SQLite 3\.34\.1"):
        check_version((3, 34, 1))


@pytest.mark.parametrize("settings", [{"synchronous": "OFF"}, {"busy_timeout_ms": -1}])
def test_settings_that_make_no_sense_are_refused(path: Path, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        SqliteDatabase(path, **settings)


@pytest.mark.parametrize(
    "file",
    ["/srv/shared/a.db", "/mnt/my files/a.db", "/home/me/far/deep/a.db", "/mnt/c/Users/me/a.db"],
)
def test_a_network_file_system_is_refused(file: str) -> None:
    with pytest.raises(UnusableUrl, match="network file system"):
        refuse_network_mount(Path(file), MOUNTS)
    with pytest.raises(UnusableUrl):
        SqliteDatabase(file, mounts=lambda: MOUNTS)


@pytest.mark.parametrize("file", ["/srv/shared/local/a.db", "/tmp/a.db", "/srv/a.db", "/a.db"])
def test_a_local_file_system_is_accepted(file: str) -> None:
    refuse_network_mount(Path(file), MOUNTS)
    refuse_network_mount(Path(file), "")


def test_a_folder_that_is_not_there_is_a_typed_error(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "absent" / "holdfast.db")
    with pytest.raises(DatabaseUnreachable, match="unable to open"):
        database.migrate()
    database.close()


def test_a_file_that_is_no_database_is_a_typed_error(path: Path) -> None:
    path.write_bytes(b"no database at all" * 100)
    database = SqliteDatabase(path)
    with pytest.raises(WrongDatabase):
        database.migrate()
    database.close()


def test_a_file_that_cannot_be_opened_is_named_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DatabaseUnreachable) as refusal:
        open_writer(SqliteOptions("absent/shop.db"))
    assert str(tmp_path / "absent" / "shop.db") in refusal.value.message


def test_a_damaged_file_is_to_be_restored(path: Path) -> None:
    SqliteDatabase(str(path)).migrate()
    with path.open("r+b") as file:
        file.seek(4_096)
        file.write(b"damage" * 10_000)
    with pytest.raises(DatabaseUnreachable, match="malformed") as refusal:
        SqliteDatabase(str(path)).check()
    assert "restore a backup" in refusal.value.help
