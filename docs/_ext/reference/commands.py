"""The reference of the command line: the whole tree, with the words of `--help`."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import cleandoc

import click
from docs._ext.reference.markdown import block, code, table
from docs._ext.reference.undocumented import require

from holdfast.cli.main import cli


def page() -> str:
    """Return every command. Raises: Undocumented."""
    return tree(cli, "holdfast")


def tree(root: click.Command, name: str) -> str:
    """Return a command and all below it. Raises: Undocumented."""
    found = list(walk(root, click.Context(root, info_name=name)))
    require("commands without help", (ctx.command_path for ctx in found if not ctx.command.help))
    require("commands without examples", (c.command_path for c in found if not _examples(c)))
    require(
        "options without help",
        (
            f"{ctx.command_path} {each.opts[0]}"
            for ctx in found
            for each in ctx.command.params
            if isinstance(each, click.Option) and not each.help
        ),
    )
    return "\n".join(_entry(ctx) for ctx in found)


def walk(command: click.Command, ctx: click.Context) -> Iterator[click.Context]:
    """Go through a command and all below it, in the order of the help."""
    yield ctx
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            child = command.get_command(ctx, name)
            if child is not None and not child.hidden:
                yield from walk(child, click.Context(child, parent=ctx, info_name=name))


def _examples(ctx: click.Context) -> tuple[str, ...]:
    examples: tuple[str, ...] = getattr(ctx.command, "examples", ())
    return examples


def _entry(ctx: click.Context) -> str:
    depth = "##" if ctx.parent is None or ctx.parent.parent is None else "###"
    usage = " ".join([ctx.command_path, *ctx.command.collect_usage_pieces(ctx)])
    options = [
        each for each in ctx.command.params if isinstance(each, click.Option) and not each.hidden
    ]
    parts = [
        f"{depth} {ctx.command_path}\n",
        cleandoc(ctx.command.help or "") + "\n",
        block("text", [usage]),
        block("sh", _examples(ctx)),
    ]
    if options:
        parts.append(table(("option", "meaning"), (_option(ctx, each) for each in options)))
    return "\n".join(parts)


def _option(ctx: click.Context, option: click.Option) -> tuple[str, str]:
    shown, text = option.get_help_record(ctx) or ("", "")
    return code(shown.replace(" INTEGER RANGE", " N").replace(" FLOAT RANGE", " N")), text
