"""Several observers as one."""

import logging

import pytest

from holdfast.core.events import Event
from holdfast.observe import CompositeObserver
from tests.observe.samples import all_samples


class Recorder:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def observe(self, event: Event) -> None:
        self.events.append(event)


class Broken:
    def observe(self, event: Event) -> None:
        raise RuntimeError("the backend is gone")


def test_every_observer_sees_every_event_in_order() -> None:
    first, second = Recorder(), Recorder()
    observers = CompositeObserver(first, second)
    for event in all_samples():
        observers.observe(event)
    assert first.events == second.events == all_samples()


def test_a_broken_observer_is_logged_once_and_does_not_affect_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    recorder = Recorder()
    observers = CompositeObserver(Broken(), recorder)
    with caplog.at_level(logging.ERROR, "holdfast.observe"):
        for event in all_samples():
            observers.observe(event)
    assert recorder.events == all_samples()
    assert [record.getMessage() for record in caplog.records] == [
        "Broken failed on job_created; further errors are not logged"
    ]


def test_each_broken_observer_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    CompositeObserver(Broken(), Broken()).observe(all_samples()[0])
    assert len(caplog.records) == 2


class Choosy(Recorder):
    def wants(self, name: str) -> bool:
        return name == "job_failed"


class Moody(Recorder):
    def wants(self, name: str) -> bool:
        raise RuntimeError("ask me later")


def test_an_observer_sees_what_it_wants() -> None:
    choosy, recorder = Choosy(), Recorder()
    for event in all_samples():
        CompositeObserver(choosy, recorder).observe(event)
    assert [each.name for each in choosy.events] == ["job_failed"]
    assert recorder.events == all_samples()


def test_an_event_is_wanted_when_one_observer_wants_it() -> None:
    assert CompositeObserver(Choosy(), Choosy()).wants("job_failed")
    assert not CompositeObserver(Choosy(), Choosy()).wants("job_completed")
    assert CompositeObserver(Choosy(), Recorder()).wants("job_completed")
    assert not CompositeObserver().wants("job_completed")


def test_an_observer_that_cannot_say_what_it_wants_gets_everything() -> None:
    moody = Moody()
    observers = CompositeObserver(moody)
    assert observers.wants("job_completed")
    observers.observe(all_samples()[0])
    assert moody.events == all_samples()[:1]
