"""No event of the catalogue is forgotten by any observer."""

from types import ModuleType

import pytest

from holdfast.core.events import CATALOGUE
from holdfast.observe import logging, otel, prometheus


@pytest.mark.parametrize("observer", [logging, otel, prometheus])
def test_every_event_is_handled_or_explicitly_ignored(observer: ModuleType) -> None:
    assert set(CATALOGUE) == observer.HANDLED | observer.IGNORED
    assert not observer.HANDLED & observer.IGNORED


def test_what_happens_each_second_is_not_logged_by_default() -> None:
    assert CATALOGUE["tick_finished"].level == "debug"
