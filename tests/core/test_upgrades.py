"""Stored inputs of earlier versions become inputs of the current one, step by step, or are refused with a reason."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from holdfast import Holdfast, Job
from holdfast.core.errors import HandlerInvalid, InputUnreadable, InvalidOption, UnknownJobType
from holdfast.core.registry import JobType


@dataclass
class OldMail:
    to: str


@dataclass
class Mail:
    address: str
    subject: str


async def send(job: Job[Mail]) -> None: ...


async def send_all(job: Job[list[str]]) -> None: ...


def application(version: int = 3) -> Holdfast:
    app = Holdfast("sqlite:///unused.db")
    app.job("mail.send", version=version)(send)
    return app


def mail(app: Holdfast) -> JobType:
    return app.registry.get("mail.send")


def with_upgrades() -> Holdfast:
    app = application()

    @app.upgrade(send, from_=1)
    def renamed(old: OldMail) -> dict[str, str]:
        return {"address": old.to}

    @app.upgrade("mail.send", from_=2)
    def with_subject(old: dict[str, Any]) -> Mail:
        return Mail(old["address"], "Hello")

    return app


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('{"to": "ana"}', None),
        ('{"to": "ana"}', 1),
        ('{"address": "ana"}', 2),
        ('{"address": "ana", "subject": "Hello"}', 3),
    ],
)
def test_every_earlier_version_is_brought_up_to_date(text: str, version: int | None) -> None:
    assert mail(with_upgrades()).read_input(text, version) == Mail("ana", "Hello")


def test_an_input_of_newer_code_is_refused() -> None:
    with pytest.raises(InputUnreadable, match="version 4, but this code reads versions up to 3"):
        mail(with_upgrades()).read_input("{}", 4)


def test_a_missing_step_is_named() -> None:
    with pytest.raises(InputUnreadable, match="nothing upgrades version 1 to 2"):
        mail(application()).read_input('{"to": "ana"}', None)


def test_an_input_that_an_upgrade_cannot_take_is_refused_with_the_field() -> None:
    with pytest.raises(InputUnreadable, match="upgrade from version 1: the input no longer") as it:
        mail(with_upgrades()).read_input('{"to": 7}', 1)
    assert it.value.path == "$.to"


def test_an_upgrade_that_raises_makes_the_input_unreadable() -> None:
    with pytest.raises(InputUnreadable, match="upgrade from version 2 raised KeyError"):
        mail(with_upgrades()).read_input("{}", 2)


def test_a_result_that_does_not_fit_is_refused() -> None:
    app = application(2)
    app.upgrade(send, from_=1)(lambda old: {"address": old})
    with pytest.raises(InputUnreadable, match="missing required field `subject`"):
        mail(app).read_input('"ana"', 1)


def test_handlers_of_an_event_share_its_version_and_its_upgrades() -> None:
    app = Holdfast("sqlite:///unused.db")
    app.on("mail.sent", name="count", version=3)(send)
    app.upgrade("mail.sent", from_=2)(lambda old: {"address": old, "subject": "Hello"})
    app.on("mail.sent", name="thank", version=3)(send)
    for name in ("mail.sent/count", "mail.sent/thank"):
        assert app.registry.get(name).read_input('"ana"', 2) == Mail("ana", "Hello")
    with pytest.raises(InvalidOption, match="version 1 of the event"):
        app.on("mail.sent", name="other")(send)
    with pytest.raises(InvalidOption, match="version 2 of the event"):
        app.declare("mail.sent", version=2)


@pytest.mark.parametrize("version", [0, -1, True, "2", 40_000])
def test_a_version_is_a_small_whole_number(version: Any) -> None:
    with pytest.raises(InvalidOption):
        application(version)


def test_an_upgrade_gets_what_its_first_parameter_is_annotated_with() -> None:
    def doubled(old: Any, times: int = 2) -> Any:
        return old * times

    def bare(old, times: int = 2):  # type: ignore[no-untyped-def]
        return old * times

    class Doubling:
        def __call__(self, old: list[str]) -> list[str]:
            return old * 2

    for upgrade in (doubled, bare, partial(doubled, times=2), Doubling()):
        app = Holdfast("sqlite:///unused.db")
        app.job("mail.send", version=2)(send_all)
        app.upgrade("mail.send", from_=1)(upgrade)
        assert mail(app).read_input('["ana"]', 1) == ["ana", "ana"]


def test_upgrades_that_cannot_work_are_refused() -> None:
    app = with_upgrades()

    async def slow(old: Any) -> Any: ...

    def two(old: Any, more: Any) -> Any: ...

    with pytest.raises(InvalidOption, match="already has an upgrade from version 1"):
        app.upgrade(send, from_=1)(lambda old: old)
    with pytest.raises(InvalidOption, match="nothing is upgraded from version 3"):
        app.upgrade(send, from_=3)(lambda old: old)
    with pytest.raises(HandlerInvalid, match="async"):
        app.upgrade(send, from_=2)(slow)
    with pytest.raises(HandlerInvalid, match="cannot be called"):
        app.upgrade(send, from_=2)(two)  # type: ignore[type-var]
    with pytest.raises(UnknownJobType):
        app.upgrade("mail.snd", from_=1)(lambda old: old)
