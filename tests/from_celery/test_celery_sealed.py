"""Celery's look-alikes with sealed=True: arguments and results are in no table in clear, whatever the canvas."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast import Seal
from holdfast.errors import InvalidOption
from holdfast_celery import Celery, chain, chord, group
from holdfast_testing.kit import Kit
from tests.sealed.clinic import SECRET
from tests.sealed.test_secret_life import dump


class Clinic:
    """An application whose tasks are sealed, but for one."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.app = app = Celery("clinic", url=url)

        @app.task(name="letter", sealed=True)
        def letter(name: str, to: str = "") -> str:
            return f"{to or name}, {SECRET}"

        @app.task(name="count", sealed=True)
        def count(letters: list[str]) -> int:
            return len([each for each in letters if SECRET in each])

        @app.task(name="lose", sealed=True, autoretry_for=(KeyError,), default_retry_delay=1)
        def lose(name: str) -> None:
            raise KeyError(f"no letter to {name}")

        @app.task(name="plain")
        def plain(text: str = "") -> str:
            return text

        self.letter, self.count, self.lose, self.plain = letter, count, lose, plain
        self.kit = Kit(app, url)


@pytest.fixture
def clinic(any_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clinic]:
    """The application on each store, with a key from its environment."""
    monkeypatch.setenv("HOLDFAST_SEAL_KEYS", f"2026-11:{Seal.new_key()}")
    made = Clinic(any_url)
    yield made
    made.kit.close()
    made.app.close()


def test_a_sealed_canvas_runs_and_is_nowhere_in_clear(clinic: Clinic) -> None:
    letter, count = clinic.letter, clinic.count
    one = letter.delay(SECRET)
    inner = chain(letter.s(SECRET), group(letter.s(), letter.s(to=SECRET)), count.s())()
    ending = chain(letter.s(SECRET), group(letter.s(), letter.s()))()
    sheet = chord([letter.s(SECRET), chain(letter.s(SECRET), letter.s())], count.s())()
    lost = clinic.lose.delay(SECRET)
    assert SECRET not in dump(clinic.url)
    for _ in range(5):
        clinic.kit.run_until_idle()
        clinic.kit.advance("10s")
    assert one.get() == f"{SECRET}, {SECRET}"
    assert (inner.get(), sheet.get()) == (2, 2)
    assert all(SECRET in each for each in ending.get())
    assert lost.status == "FAILURE"
    assert SECRET not in dump(clinic.url)


def test_a_canvas_is_sealed_as_a_whole(clinic: Clinic) -> None:
    letter, plain = clinic.letter, clinic.plain
    for mixed in (
        chain(plain.s("x"), letter.s(to=SECRET)),
        chain(letter.s(SECRET), plain.s()),
        chord([letter.s(SECRET), plain.s()], clinic.count.s()),
        chain(plain.s("x"), group(chain(plain.s(), letter.s()), plain.s())),
    ):
        with pytest.raises(InvalidOption, match="letter is sealed, and plain of the same canvas"):
            mixed.apply_async()
    twice = chain(group(letter.s("a"), letter.s("b")), group(clinic.count.s(), clinic.count.s()))
    with pytest.raises(InvalidOption, match="a group follows a group"):
        twice.apply_async()
    assert [each.type for each in clinic.app.jobs.list()] == []
    group(letter.s("a"), plain.s("b")).apply_async()
    assert len(clinic.app.jobs.list()) == 2


def test_sealed_takes_a_yes_or_no(clinic: Clinic) -> None:
    with pytest.raises(InvalidOption, match="sealed"):
        clinic.app.task(name="bad", sealed="2026-11")(print)
