"""Every `holdfast` command that is printed anywhere is one that the command line understands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator

import click
import pytest

from holdfast.cli.main import cli
from tests.docs.snippets import ROOT, blocks, written_pages

_BLOCKS = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(?<!`)`(?:[A-Z_]+=\S+ )?(holdfast [a-z][^`]*)`(?!`)")
_ENDS = {"|", "||", "&&", ";", ">", ">>", "<", "&"}


def printed() -> Iterator[tuple[str, str]]:
    """Each page and each of the command lines in its blocks."""
    for page in ("README.md", *written_pages()):
        for block in blocks(page):
            if block.language in ("sh", "console"):
                lines = block.text.replace("\\\n", " ").splitlines()
                yield from ((page, line.strip()) for line in lines if "holdfast " in line)


def mentioned() -> Iterator[tuple[str, str]]:
    """Each page and each of the commands in its sentences and tables."""
    for page in ("README.md", *written_pages()):
        text = _BLOCKS.sub("", (ROOT / page).read_text(encoding="utf-8"))
        yield from ((page, " ".join(each.split())) for each in _SPAN.findall(text))


def arguments(line: str) -> list[list[str]]:
    """The arguments of each `holdfast` on a line, as a shell would see them."""
    found: list[list[str]] = []
    words = shlex.shlex(line.replace("$(", " $( "), posix=True, punctuation_chars=True)
    words.whitespace_split = True
    current: list[str] | None = None
    for word in words:
        if word in _ENDS or word in ("(", ")", "$("):
            current = None
        elif word == "holdfast" and current is None:
            current = []
            found.append(current)
        elif current is not None:
            current.append(word)
    return found


def parse(words: list[str]) -> click.Context:
    """Parse as the command line does, running nothing. Raises: click's and our usage errors."""
    command: click.Command = cli
    ctx = click.Context(cli, info_name="holdfast")
    rest = list(words)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        name, found, rest = command.resolve_command(ctx, rest)
        assert found is not None, name
        command, ctx = found, click.Context(found, parent=ctx, info_name=name)
    return command.make_context(ctx.info_name, rest, parent=ctx.parent)


def misunderstood(
    lines: Iterable[tuple[str, str]], *forgiven: type[Exception]
) -> dict[tuple[str, str], str]:
    """What the command line does not understand, by page and line."""
    found: dict[tuple[str, str], str] = {}
    for page, line in sorted(set(lines)):
        for words in arguments(line):
            try:
                parse(words)
            except click.exceptions.Exit as end:  # --help and --version end well here
                if end.exit_code:
                    found[page, line] = repr(end)
            except forgiven:
                continue
            except Exception as error:
                found[page, line] = str(error)
    return found


def test_every_printed_command_is_understood() -> None:
    assert misunderstood(printed()) == {}


def test_every_command_that_a_sentence_mentions_is_understood() -> None:
    # A sentence may name a command or an option without what follows it.
    found = misunderstood(mentioned(), click.MissingParameter, click.BadOptionUsage)
    # The command of the extension that its page writes.
    assert found.keys() == {("docs/do/extensions.md", "holdfast backlog")}


@pytest.mark.parametrize("line", ["holdfast jobs lst", "holdfast worker app:app --slot 3"])
def test_a_command_that_does_not_exist_would_be_found(line: str) -> None:
    found = misunderstood([("docs/page.md", line)], click.MissingParameter, click.BadOptionUsage)
    assert re.search("lst|slot", found["docs/page.md", line])
