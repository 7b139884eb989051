"""The notifier that a URL asks for."""

import importlib
import sys
from pathlib import Path

import pytest

from holdfast.core.errors import ConfigError, MissingExtra
from holdfast.notify.base import Hint
from holdfast.notify.factory import open_notifier
from holdfast.notify.local import LocalNotifier, NullNotifier
from holdfast.notify.server_notifier import ServerNotifier
from holdfast.notify.sqlite import SqliteNotifier

POSTGRES = "postgresql://user@localhost/shop"
SQLITE = "sqlite:///shop.db"


@pytest.mark.parametrize(
    ("url", "database_url", "kind"),
    [
        (None, SQLITE, SqliteNotifier),
        (None, "sqlite:////var/lib/shop.db", SqliteNotifier),
        (None, "sqlite:///:memory:", LocalNotifier),
        (None, "sqlite://", LocalNotifier),
        (None, POSTGRES, ServerNotifier),
        ("local", SQLITE, SqliteNotifier),
        ("local", POSTGRES, LocalNotifier),
        ("none", SQLITE, NullNotifier),
        ("none", POSTGRES, NullNotifier),
        (POSTGRES, SQLITE, ServerNotifier),
        ("redis://localhost:6379/0", POSTGRES, ServerNotifier),
        ("rediss://localhost:6379/0", POSTGRES, ServerNotifier),
        ("nats://localhost:4222", POSTGRES, ServerNotifier),
    ],
)
def test_a_url_chooses_the_notifier_and_the_database_is_the_default(
    url: str | None, database_url: str, kind: type[object]
) -> None:
    notifier = open_notifier(url, database_url=database_url)
    assert type(notifier) is kind
    notifier.close()


@pytest.mark.parametrize("url", ["amqp://u:secret@localhost", "redis", "", "LOCAL"])
def test_an_unknown_url_is_refused_without_showing_its_password(url: str) -> None:
    with pytest.raises(ConfigError, match="use local, none") as refused:
        open_notifier(url, database_url=SQLITE)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("extra", "package", "url"),
    [
        ("postgres", "psycopg", POSTGRES),
        ("redis", "redis.asyncio", "redis://localhost"),
        ("nats", "nats.aio.client", "nats://localhost"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(
    extra: str, package: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"holdfast.notify.{extra}", raising=False)
    with pytest.raises(MissingExtra, match=rf'pip install "holdfast-jobs\[{extra}\]"'):
        open_notifier(url, database_url=SQLITE)
    monkeypatch.undo()
    importlib.import_module(f"holdfast.notify.{extra}")


def test_silence_sends_nothing_hears_nothing_and_is_not_alive() -> None:
    notifier = NullNotifier()
    heard: list[Hint] = []
    listener = notifier.listen(heard.append)
    notifier.send([Hint("due", "mail")])
    assert not listener.alive
    assert not listener.wait_until_alive(0)
    listener.close()
    notifier.close()
    assert heard == []
    assert notifier.counts.dropped == 0


def test_the_path_of_a_sqlite_url_is_the_file_that_is_watched(tmp_path: Path) -> None:
    notifier = open_notifier(database_url=f"sqlite:///{tmp_path / 'a.db'}?timeout=5")
    assert isinstance(notifier, SqliteNotifier)
    assert notifier.path == tmp_path / "a.db"
    notifier.close()
