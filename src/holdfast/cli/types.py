"""`holdfast types`: what is known of job types, pausing them, and settings changed at run time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.acting import Act, actor, change, change_options
from holdfast.cli.database import read, with_database
from holdfast.cli.lazy import Group
from holdfast.cli.nearest import nearest
from holdfast.cli.output import Column, Format, output_option, write_records
from holdfast.cli.talk import say
from holdfast.core.errors import CommandUsage, UnknownJobType
from holdfast.service.type_facts import type_facts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.app import Holdfast
    from holdfast.storage.statement import Op

_UNSET = -1
_DEFAULT = "default"
_DONE = {"pause": "paused", "resume": "resumed", "set": "set"}

_COLUMNS = (
    Column("type", lambda row: row["type"]),
    Column("live", lambda row: row["live"]),
    Column("oldest due", lambda row: row["oldest_due"]),
    Column("completed", lambda row: row["completed"]),
    Column("dead", lambda row: row["failed"], lambda row: "red" if row["failed"] else None),
    Column("workers", lambda row: row["workers"], lambda row: _unhandled(row)),
    Column("paused", lambda row: row["paused"], lambda row: "yellow" if row["paused"] else None),
    Column("settings", lambda row: row["settings"]),
)


def _unhandled(row: Any) -> str | None:
    return "red" if row["live"] and not row["workers"] else None


@click.group(
    "types",
    cls=Group,
    examples=(
        "holdfast types list",
        "holdfast types pause mail.send --reason 'provider is down'",
        "holdfast types set pdf.render --lease 120s --concurrency 2",
    ),
)
def command() -> None:
    """List, pause, resume and set job types."""


@command.command("list", examples=("holdfast types list", "holdfast types list -o json"))
@output_option
@with_database
def list_(app: Holdfast, output: Format) -> None:
    """List the job types that the database has seen, with depth, age, handlers and settings."""
    facts = read(app, type_facts(app.database.store))
    rows = [each.as_record() if output == "table" else each.as_json() for each in facts.values()]
    write_records(rows, _COLUMNS, output, id="type")
    if not rows:
        say("no job types found")


_types_argument = click.argument("types", nargs=-1, metavar="TYPE...")
_new_type_option = click.option(
    "--new-type", is_flag=True, help="Accept a type that the database has not seen."
)
_all_option = click.option("--all", "everything", is_flag=True, help="Everything at once.")


@command.command(
    "pause",
    examples=(
        "holdfast types pause mail.send --reason 'provider is down'",
        "holdfast types pause --all --reason 'maintenance until noon'",
    ),
)
@_types_argument
@_all_option
@_new_type_option
@change_options
@with_database
def pause(
    app: Holdfast, types: tuple[str, ...], everything: bool, new_type: bool, act: Act
) -> None:
    """Pause job types: workers finish what they run and take no more of them."""
    _switch(app, types, everything, new_type, act, paused=True)


@command.command(
    "resume", examples=("holdfast types resume mail.send", "holdfast types resume --all")
)
@_types_argument
@_all_option
@_new_type_option
@change_options
@with_database
def resume(
    app: Holdfast, types: tuple[str, ...], everything: bool, new_type: bool, act: Act
) -> None:
    """Resume what was paused."""
    _switch(app, types, everything, new_type, act, paused=False)


def _switch(
    app: Holdfast,
    types: tuple[str, ...],
    everything: bool,
    new_type: bool,
    act: Act,
    *,
    paused: bool,
) -> None:
    from holdfast.notify.port import LOOK_EVERYWHERE, Hint

    if everything == bool(types):
        raise CommandUsage("name job types, or say --all")
    verb, store, who = "pause" if paused else "resume", app.database.store, actor()
    if everything:
        op = store.schema.pause(paused, who)
        _set(app, op, ["everything"], verb, act, [LOOK_EVERYWHERE])
        return
    _refuse_unknown(app, types, new_type)
    for type in types:
        op = store.workers.set_type(type, paused=paused, by=who)
        _set(app, op, [f"type {type}"], verb, act, [Hint("look", type)])


def _set(
    app: Holdfast,
    op: Op[None],
    targets: Sequence[str],
    verb: str,
    act: Act,
    hints: Sequence[Any] = (),
) -> None:
    name = ", ".join(targets)
    if act.dry_run:
        op.close()
        say(f"would {verb} {name}; nothing was changed")
        return
    change(
        app,
        op,
        action=f"type.{verb}",
        targets=lambda _: targets,
        reason=act.reason,
        hints=lambda _: hints,
    )
    say(f"{_DONE[verb]} {name}")


def _refuse_unknown(app: Holdfast, types: Sequence[str], new_type: bool) -> None:
    known = read(app, type_facts(app.database.store))
    for type in types:
        if type not in known and not new_type:
            near = nearest(type, known)
            raise UnknownJobType(
                f"the database has never seen a job type {type[:60]!r}",
                help=near or "see `holdfast types list`, or add --new-type",
            )


def _or_default(read_value: Callable[[str], int]) -> Callable[..., int | None]:
    """Read an option's value, or take `default` for the code's own."""

    def read_option(_: click.Context, __: click.Parameter, text: str | None) -> int | None:
        if text is None:
            return None
        return _UNSET if text == _DEFAULT else read_value(text)

    return read_option


def _milliseconds(text: str) -> int:
    from holdfast.core.duration import milliseconds

    return max(1, milliseconds(text))


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise click.BadParameter(f"{text[:20]!r} is neither a number from 1 on nor {_DEFAULT!r}")
    return int(text)


@command.command(
    "set",
    examples=(
        "holdfast types set pdf.render --lease 120s --concurrency 2",
        "holdfast types set pdf.render --lease default",
    ),
)
@click.argument("type")
@click.option("--lease", "lease_ms", callback=_or_default(_milliseconds), metavar="DURATION")
@click.option("--timeout", "timeout_ms", callback=_or_default(_milliseconds), metavar="DURATION")
@click.option("--concurrency", callback=_or_default(_number), metavar="N")
@click.option("--max-attempts", callback=_or_default(_number), metavar="N")
@_new_type_option
@change_options
@with_database
def set_(
    app: Holdfast,
    type: str,
    lease_ms: int | None,
    timeout_ms: int | None,
    concurrency: int | None,
    max_attempts: int | None,
    new_type: bool,
    act: Act,
) -> None:
    """Change settings of a job type while workers run; `default` takes one back to the code's own.

    Workers read them at their next heartbeat; leases already taken keep their length.
    """
    if lease_ms is timeout_ms is concurrency is max_attempts is None:
        raise CommandUsage("nothing is to be set", help="give --lease, --timeout, --concurrency …")
    _refuse_unknown(app, [type], new_type)
    op = app.database.store.workers.set_type(
        type,
        lease_ms=lease_ms,
        timeout_ms=timeout_ms,
        concurrency=concurrency,
        max_attempts=max_attempts,
    )
    _set(app, op, [f"type {type}"], "set", act)
