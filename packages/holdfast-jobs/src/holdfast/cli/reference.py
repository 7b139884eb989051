"""What needs no database: `holdfast explain` (codes and terms), `holdfast config` (settings), `holdfast completion`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

import click

from holdfast.cli.lazy import HelpCommand, HelpGroup
from holdfast.cli.output import Format, columns, output_option, write_records, write_single
from holdfast.cli.session import app_argument, load_app
from holdfast.core.errors import CommandUsage, Explanation, nearest
from holdfast.extensions import explain_codes

_WIDTH = 90
_COLUMNS = columns("code", "name", "title")


@click.command(
    "explain",
    cls=HelpCommand,
    examples=("holdfast explain HF017", "holdfast explain lease", "holdfast explain -o json"),
)
@click.argument("code", metavar="[CODE|TERM]", required=False)
@output_option
def explain(code: str | None, output: Format) -> None:
    """Explain an error code and its fix, or a term.

    Without either, list all codes.
    """
    known = explain_codes()
    if code is None:
        write_records([each._asdict() for each in known.values()], _COLUMNS, output, id="code")
        return
    found = known.get(_normalize(code))
    if found is None:
        _explain_term(code, output, known)
        return
    write_single(found._asdict(), output, lambda: click.echo(_format(found)), id="code")


def _explain_term(given: str, output: Format, codes: Iterable[str]) -> None:
    """Write what a term of the glossary means, in each of its senses."""
    terms = _read_glossary()
    word = given.strip().lower()
    found = terms.get(word) or terms.get(word.removesuffix("s"))
    if found is None:
        known = codes if word.startswith("hf") else terms
        raise CommandUsage(
            f"{given[:40]!r} is neither an error code nor a term of the glossary",
            help=nearest(_normalize(given) if known is codes else word, known)
            or "see `holdfast explain` for all codes",
        )
    records = [{"term": term, "meaning": meaning} for term, meaning in found]
    if output == "table":
        click.echo("\n".join(_wrap(f"{term}: {meaning}.") for term, meaning in found))
    else:
        write_records(records, (), output, id="term")


def _read_glossary() -> dict[str, list[tuple[str, str]]]:
    """Return the rows of the glossary, which the documentation shows too, by each word they explain."""
    from importlib.resources import files

    terms: dict[str, list[tuple[str, str]]] = {}
    text = files("holdfast.cli").joinpath("glossary.md").read_text("utf-8")
    for line in text.splitlines()[2:]:
        _, term, meaning, _ = (each.strip() for each in line.split("|"))
        for word in term.partition(" (")[0].split(", "):
            terms.setdefault(word, []).append((term, meaning.replace("**", "")))
    return terms


def _wrap(text: str) -> str:
    return "\n".join(textwrap.wrap(text, _WIDTH))


def _normalize(code: str) -> str:
    bare = code.strip().upper().removeprefix("HF")
    return f"HF{bare.lstrip('0').zfill(3)}" if bare.isascii() and bare.isdigit() else code.upper()


def _format(each: Explanation) -> str:
    lines = [f"{each.code} · {each.name}", f"{each.title}.", "", *textwrap.wrap(each.text, _WIDTH)]
    return "\n".join([*lines, "", f"Fix: {each.fix}."])


@click.group("config", cls=HelpGroup, examples=("holdfast config show --origin",))
def config() -> None:
    """Show the effective settings."""


@config.command(
    "show",
    examples=(
        "holdfast config show",
        "holdfast config show --origin | grep -v default",
        "holdfast config show shop.jobs:app --origin",
        "OUTBOX_BATCH_SIZE=20 holdfast config show --origin -o json",
    ),
)
@app_argument()
@click.option("--origin", is_flag=True, help="Show where each value comes from.")
@output_option
def show_config(spec: str | None, origin: bool, output: Format) -> None:
    """Show all effective settings, without secrets; validates them first.

    Values come from arguments, the environment, holdfast.toml or pyproject.toml, and defaults, in
    this order. With APP, the variables that its job types and cycles use (from_env) follow.
    """
    from holdfast.app.seal import seal_of
    from holdfast.cli.worker import warn_of_unknown
    from holdfast.settings import effective, effective_options, load_settings

    settings = load_settings()
    seal_of(None, settings.holdfast.seal_keys)
    found = effective(settings)
    if spec is not None:
        app = load_app(spec)
        found += effective_options([*app.registry, *app.cycle_specs.values()])
    warn_of_unknown(settings)
    names = ("name", "value", "origin") if origin else ("name", "value")
    rows = [{name: getattr(each, name) for name in names} for each in found]
    write_records(rows, columns(*names), output, id="name")


@click.command(
    "completion",
    cls=HelpCommand,
    examples=(
        'eval "$(holdfast completion bash)"        # in ~/.bashrc',
        'eval "$(holdfast completion zsh)"         # in ~/.zshrc',
        "holdfast completion fish > ~/.config/fish/completions/holdfast.fish",
    ),
)
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a shell completion script."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"this version of click does not support {shell}")
    root = ctx.find_root()
    click.echo(kind(root.command, {}, "holdfast", "_HOLDFAST_COMPLETE").source())
