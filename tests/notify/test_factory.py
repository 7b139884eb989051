"""The notifier that a URL asks for."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import extensions
from holdfast.core.errors import ConfigError, MissingExtra
from holdfast.notify.base import Hint
from holdfast.notify.factory import open_notifier
from holdfast.notify.local import LocalNotifier, NullNotifier
from holdfast.notify.server_notifier import ServerNotifier
from holdfast.notify.sqlite import SqliteNotifier
from holdfast.settings import read_settings

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
    ("extra", "package", "module", "url"),
    [
        ("postgres", "psycopg", "holdfast.notify.postgres", POSTGRES),
        ("redis", "redis.asyncio", "holdfast_brokers.redis", "redis://localhost"),
        ("nats", "nats.aio.client", "holdfast_brokers.nats", "nats://localhost"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(
    extra: str, package: str, module: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(MissingExtra, match=rf'pip install "holdfast-jobs\[{extra}\]"'):
        open_notifier(url, database_url=SQLITE)
    monkeypatch.undo()
    importlib.import_module(module)


@pytest.mark.parametrize(
    ("url", "extra"),
    [("redis://localhost", "redis"), ("rediss://localhost", "redis"), ("tls://localhost", "nats")],
)
def test_without_the_package_of_brokers_a_url_names_the_extra_that_brings_it(
    url: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extensions, "find_extensions", tuple)
    assert read_settings({"HOLDFAST_NOTIFIER": url}).holdfast.notifier == url
    with pytest.raises(MissingExtra, match=rf'pip install "holdfast-jobs\[{extra}\]"'):
        open_notifier(url, database_url=SQLITE)


BUS = """
from holdfast.extensions import Extension
from holdfast.notify.local import LocalNotifier

class BusNotifier(LocalNotifier):
    def __init__(self, *given):
        super().__init__()
        self.given = given

EXTENSION = Extension(notifiers={"bus": "bus_of_ours:BusNotifier"})
"""


@pytest.fixture
def bus_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package that registers a scheme."""
    (tmp_path / "bus_of_ours.py").write_text(BUS)
    registry = tmp_path / "bus-1.dist-info" / "entry_points.txt"
    registry.parent.mkdir()
    registry.write_text("[holdfast.extensions]\nbus = bus_of_ours:EXTENSION\n")
    monkeypatch.syspath_prepend(tmp_path)
    extensions.find_extensions.cache_clear()
    yield
    monkeypatch.undo()
    extensions.find_extensions.cache_clear()


@pytest.mark.usefixtures("bus_package")
def test_a_package_of_one_s_own_registers_a_scheme() -> None:
    url = "bus://here/topic"
    assert read_settings({"HOLDFAST_NOTIFIER": url}).holdfast.notifier == url
    notifier: Any = open_notifier(url, database_url=SQLITE, schema="shop", listen_url=POSTGRES)
    assert notifier.given == (url, "shop", POSTGRES)
    notifier.close()


def test_a_scheme_that_nobody_registered_is_refused_as_a_setting() -> None:
    with pytest.raises(ConfigError, match="local, none, or a postgresql://, redis:// or nats://"):
        read_settings({"HOLDFAST_NOTIFIER": "bus://here/topic"})


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
