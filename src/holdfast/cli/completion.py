"""`holdfast completion`: shell completion of commands, options and values."""

from __future__ import annotations

import click

from holdfast.cli.lazy import HelpCommand

SHELLS = ("bash", "zsh", "fish")


@click.command(
    "completion",
    cls=HelpCommand,
    examples=(
        'eval "$(holdfast completion bash)"        # in ~/.bashrc',
        'eval "$(holdfast completion zsh)"         # in ~/.zshrc',
        "holdfast completion fish > ~/.config/fish/completions/holdfast.fish",
    ),
)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print a shell completion script."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"this version of click does not support {shell}")
    root = ctx.find_root()
    click.echo(kind(root.command, {}, "holdfast", "_HOLDFAST_COMPLETE").source())
