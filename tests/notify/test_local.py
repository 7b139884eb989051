"""The notifier inside one process."""

import pytest

from holdfast.notify.base import Hint
from holdfast.notify.local import Hub, LocalNotifier
from holdfast.testing.conformance.notifier import MakeNotifier, NotifierConformance


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
