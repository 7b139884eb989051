"""Whatever is typed, no command ends in a traceback: it works, or says what is wrong and exits with a code of ours."""

import random
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from holdfast.cli.exit_codes import Exit
from tests.cli.conftest import Run
from tests.cli.scene import Scene
from tests.cli.test_root import commands
from tests.support.limited_scene import MAIL, LimitedScene

LINES = 6
ENDLESS = {"demo", "dev", "bench", "chaos", "top", "tail", "worker", "serve", "wait", "tick"}
"""Commands that run until told otherwise, or need an application."""

NASTY = (
    *("", "-", "--", "@", "'", '"', ":", "é", "日本", "a" * 5_000, "\n", "\x1b[31m", "%s%n"),
    *("-1", "0", "1e9", "nan", "inf", "9" * 20, "5/s", "1h", "{}", "[1", "null", "json", "a:b"),
    *("state:", "state:failed,", "type:*", "age>", "age>1s", "attempt>=-1", 'error:"', "x:y"),
    *("0193a6f0-7c00-7000-8000-000000000000", "0000-01-01T00:00:00Z", "9999-12-31T23:59:59Z"),
    *("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00", "\udcff"),
    *("sqlite:///", "sqlite://", "postgresql://", "postgresql://[::1"),
)
TYPED = [
    pytest.param(path, command, id=" ".join(path[1:]))
    for path, command in commands()
    if not isinstance(command, click.Group) and path[-1] not in ENDLESS
]


@pytest.fixture
def url(sqlite_url: str) -> str:
    return sqlite_url


def typed(command: click.Command, chance: random.Random) -> Iterator[str]:
    """Give some of a command's options and most of its arguments, each with a value that is probably wrong."""
    for each in command.params:
        if isinstance(each, click.Option) and chance.random() < 0.35 and each.name != "watch":
            yield chance.choice(each.opts)
            if not each.is_flag:
                yield chance.choice(NASTY)
        elif isinstance(each, click.Argument) and chance.random() < 0.9:
            yield chance.choice(NASTY)


@pytest.mark.parametrize(("path", "command"), TYPED)
def test_nasty_input_is_answered_in_words(
    path: tuple[str, ...],
    command: click.Command,
    run: Run,
    scene: Scene,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    scene.start()
    for line in range(LINES):
        words = list(typed(command, random.Random(f"{path} {line}")))
        result = run(*path[1:], *words)
        assert result.exit_code in set(Exit), words
        if result.exit_code not in (Exit.OK, Exit.PARTLY):
            assert result.stderr.startswith(("error[HF", "about to ", "warning: ")), words


@pytest.mark.parametrize(("path", "command"), TYPED)
def test_an_argument_that_is_not_utf8_is_answered_in_words(
    path: tuple[str, ...],
    command: click.Command,
    run: Run,
    scene: Scene,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    LimitedScene(scene).declare(MAIL)
    for wrong in texts(command):
        words = []
        for each in command.params:
            value = "mail.send" if each.name == "type" else "5m" if each.name == "duration" else "1"
            if each is wrong or each.required:
                words += [*each.opts[:1]] if isinstance(each, click.Option) else []
                words += ["\udcff" if each is wrong else value]
        result = run(*path[1:], *words)
        assert result.exit_code in set(Exit), words
        assert result.exit_code in (Exit.OK, Exit.PARTLY) or "error[HF" in result.stderr, words


@pytest.mark.parametrize(
    "words", [("jobs", "start", "mail.send", "-"), ("signal", "x", "--data", "-")]
)
def test_an_input_that_is_not_utf8_is_answered_in_words(
    words: tuple[str, ...], run: Run, scene: Scene
) -> None:
    scene.start()
    result = run(*words, input=b'{"name": "Jos\xe9"}')
    assert result.exit_code == Exit.USAGE
    assert "from stdin: it is not UTF-8" in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("jobs", "start", "mail.send", "[" * 5_000),
        ("jobs", "start", "mail.send", "--set", f"to={'[' * 5_000}"),
        ("signal", "x", "--data", "[" * 5_000),
    ],
    ids=["start", "set", "signal"],
)
def test_json_that_is_nested_too_deep_is_answered_in_words(
    words: tuple[str, ...], run: Run, scene: Scene
) -> None:
    scene.start()
    result = run(*words)
    assert result.exit_code == Exit.USAGE
    assert "nested too deep" in result.stderr


def texts(command: click.Command) -> Iterator[click.Parameter]:
    """Return the parameters that take any text."""
    for each in command.params:
        if each.type.name == "text" and not getattr(each, "is_flag", False):
            yield each
