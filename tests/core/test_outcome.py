"""Decisions of handlers, as values."""

from datetime import UTC, datetime

from holdfast import Snooze

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def test_snoozes_for_the_same_time_are_equal() -> None:
    assert Snooze("30s") == Snooze(30)
    assert Snooze(at=NOON) == Snooze(NOON)
    assert Snooze("30s") != Snooze("31s")
    assert len({Snooze("30s"), Snooze(30), Snooze(NOON)}) == 2
