"""The notifier inside one process."""

import gc
import weakref
from pathlib import Path

import pytest

from holdfast.notify.base import Hint, SendCounts
from holdfast.notify.local import Hub, LocalNotifier
from holdfast.notify.sqlite import SqliteNotifier
from holdfast_brokers.conformance import HintRecorder, MakeNotifier, NotifierConformance


class TestLocal(NotifierConformance):
    @pytest.fixture
    def make_notifier(self) -> MakeNotifier:
        hub = Hub()
        return lambda: LocalNotifier(hub)


def test_notifiers_with_hubs_of_their_own_do_not_hear_each_other() -> None:
    first, second = LocalNotifier(), LocalNotifier()
    heard: list[Hint] = []
    first.listen(heard.append)
    second.send([Hint("due", "mail")])
    second.close()
    first.close()
    assert heard == []


@pytest.mark.parametrize("store", ["local", "sqlite"])
def test_a_notifier_forgets_listeners_that_were_closed(store: str, tmp_path: Path) -> None:
    notifier = LocalNotifier() if store == "local" else SqliteNotifier(tmp_path / "holdfast.db")
    recorder = HintRecorder()
    listener, kept = notifier.listen(recorder), weakref.ref(recorder)
    listener.close()
    assert not listener.alive
    del listener, recorder
    gc.collect()
    assert kept() is None
    notifier.close()


@pytest.mark.parametrize("store", ["local", "sqlite"])
def test_hints_that_nobody_would_hear_are_not_sent(store: str, tmp_path: Path) -> None:
    notifier = LocalNotifier() if store == "local" else SqliteNotifier(tmp_path / "holdfast.db")
    notifier.send([Hint("due", "mail")])
    notifier.close()
    assert notifier.counts == SendCounts()
