"""`holdfast types`: listing and pausing job types, and overriding their settings at run time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.confirmation import ChangeOptions, change_options
from holdfast.cli.console import print_info
from holdfast.cli.lazy import HelpGroup
from holdfast.cli.output import (
    Column,
    Detail,
    Format,
    Record,
    columns,
    output_option,
    write_detail,
    write_json,
    write_records,
)
from holdfast.cli.session import CliSession, database_options, open_app_or_database, with_database
from holdfast.core.errors import CommandUsage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


_UNSET = -1
_DEFAULT = "default"

_COLUMNS = (
    *columns("type", "live"),
    Column("oldest due", lambda row: row["oldest_due"]),
    Column("completed", lambda row: row["completed"]),
    Column("failed", lambda row: row["failed"], lambda row: "red" if row["failed"] else None),
    Column("workers", lambda row: row["workers"], lambda row: _workers_colour(row)),
    Column("paused", lambda row: row["paused"], lambda row: "yellow" if row["paused"] else None),
    Column("settings", lambda row: row["settings"]),
)


def _workers_colour(row: Record) -> str | None:
    return "red" if row["live"] and not row["workers"] else None


@click.group(
    "types",
    cls=HelpGroup,
    examples=(
        "holdfast types list",
        "holdfast types pause mail.send --reason 'provider is down'",
        "holdfast types set pdf.render --lease 120s --concurrency 2",
    ),
)
def command() -> None:
    """List, show, pause, resume and configure job types."""


@command.command("list", examples=("holdfast types list", "holdfast types list -o json"))
@output_option
@with_database
def list_(session: CliSession, output: Format) -> None:
    """List all job types in the database, with depth, age, handlers and settings."""
    facts = session.run(session.admin.types.list(session.caller()))
    rows = [each.as_record() if output == "table" else each.as_json() for each in facts]
    write_records(rows, _COLUMNS, output, id="type")
    if not rows:
        print_info("no job types found")


_POLICY_COLUMNS = columns("option", "value", "from")


@command.command(
    "show",
    examples=(
        "holdfast types show pdf.render",
        "holdfast types show pdf.render shop.jobs:app",
        "holdfast types show pdf.render shop.jobs:app -o json",
    ),
)
@click.argument("type")
@click.argument("spec", metavar="[APP]", required=False)
@database_options
@output_option
def show(type: str, spec: str | None, url: str | None, schema: str | None, output: Format) -> None:
    """Show a job type, its lease, timeout, concurrency and attempts, and where each comes from.

    Without APP, only what was set at run time is known.
    """
    from holdfast.commands.workers import unknown_type

    with open_app_or_database(spec, url, schema) as session:
        session.check()
        facts = {each.totals.type: each for each in _list_facts(session)}
        job_type = session.app.registry.find(type)
        if type not in facts and job_type is None:
            raise unknown_type(type, facts)
        found = facts.get(type)
        options = _options(session.app, type, job_type, found)
    record = {} if found is None else found.as_record() if output == "table" else found.as_json()
    if output == "table":
        shown = ("live", "oldest_due", "completed", "failed", "workers", "paused")
        facts_shown = {name.replace("_", " "): record.get(name) for name in shown}
        write_detail(Detail(type, facts=facts_shown, tables=((options, _POLICY_COLUMNS),)))
    elif output == "id":
        click.echo(type)
    else:
        write_json(
            {"type": type, **record, "options": options}, indent=2 if output == "json" else None
        )


def _options(
    app: Holdfast, type: str, job_type: JobType | None, facts: TypeFacts | None
) -> list[Record]:
    """Return what holds for a type now, with where it comes from; what only the code knows needs the code."""
    from holdfast.core.records import TypeSetting
    from holdfast.settings import load_settings, worker_options
    from holdfast.worker.options import TypePolicies, WorkerOptions

    setting = TypeSetting(type) if facts is None else facts.setting
    values: dict[str, object] = {
        "lease": _duration(setting.lease_ms),
        "timeout": _duration(setting.timeout_ms),
        "concurrency": setting.concurrency,
        "max_attempts": setting.max_attempts,
    }
    if job_type is not None:
        policies = TypePolicies({type: job_type}, WorkerOptions(**worker_options(load_settings())))
        policies.configure({type: setting}, False)
        policy = policies.get(type)
        values = {
            "lease": _duration(policy.lease_ms),
            "timeout": _duration(policy.timeout_ms),
            "concurrency": policies.limit(type),
            "max_attempts": policy.max_attempts,
        }
    return [
        {"option": option, "value": value, "from": _source(option, job_type, setting)}
        for option, value in values.items()
    ]


def _source(option: str, job_type: JobType | None, setting: TypeSetting) -> str:
    field = option if option in ("concurrency", "max_attempts") else f"{option}_ms"
    if getattr(setting, field) is not None:
        return "holdfast types set"
    if job_type is None:
        return "code (pass APP to see it)"
    if option in job_type.variables:
        given = job_type.variables[option]
        return f"{given.variable} ({given.origin})"
    in_code = {
        "lease": job_type.lease,
        "timeout": job_type.timeout_ms,
        "concurrency": job_type.concurrency,
        "max_attempts": job_type.retry,
    }
    return "default" if in_code[option] is None else "code"


def _duration(ms: int | None) -> str | None:
    from holdfast.core.duration import format_duration

    return None if ms is None else format_duration(ms)


_types_argument = click.argument("types", nargs=-1, metavar="TYPE...")
_all_option = click.option("--all", "everything", is_flag=True, help="All types.")


@command.command(
    "pause",
    examples=(
        "holdfast types pause mail.send --reason 'provider is down'",
        "holdfast types pause --all --reason 'maintenance until noon'",
    ),
)
@_types_argument
@_all_option
@change_options
@with_database
def pause(
    session: CliSession, types: tuple[str, ...], everything: bool, change: ChangeOptions
) -> None:
    """Pause job types: workers finish running jobs and claim no more of these types."""
    _set_paused(session, types, everything, change, paused=True)


@command.command(
    "resume", examples=("holdfast types resume mail.send", "holdfast types resume --all")
)
@_types_argument
@_all_option
@change_options
@with_database
def resume(
    session: CliSession, types: tuple[str, ...], everything: bool, change: ChangeOptions
) -> None:
    """Resume paused job types."""
    _set_paused(session, types, everything, change, paused=False)


def _set_paused(
    session: CliSession,
    types: tuple[str, ...],
    everything: bool,
    change: ChangeOptions,
    *,
    paused: bool,
) -> None:
    if everything == bool(types):
        raise CommandUsage("name job types, or use --all")
    word = "pause" if paused else "resume"
    _require_known(session, types)
    if change.dry_run:
        print_info(
            f"would {word} {'everything' if everything else ', '.join(types)}; nothing was changed"
        )
        return
    admin, caller = session.admin.types, session.caller(change.reason)
    if everything:
        session.run(admin.pause_all(caller, paused))
    for type in types:
        session.run(admin.pause(caller, type) if paused else admin.resume(caller, type))
    print_info(f"{word}d {'everything' if everything else ', '.join(types)}")


def _require_known(session: CliSession, types: Sequence[str]) -> None:
    from holdfast.commands.workers import unknown_type

    facts = session.run(session.admin.types.list(session.caller()))
    known = [each.totals.type for each in facts]
    for type in types:
        if type not in known:
            raise unknown_type(type, known)


def _or_default(read_value: Callable[[str], int]) -> Callable[..., int | None]:
    """Read an option's value; `default` removes an override."""

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
        raise click.BadParameter(f"{text[:20]!r} is neither a positive number nor {_DEFAULT!r}")
    return int(text)


@command.command(
    "set",
    examples=(
        "holdfast types set pdf.render --lease 120s --concurrency 2",
        "holdfast types set pdf.render --lease default",
    ),
)
@click.argument("type")
@click.option(
    "--lease",
    "lease_ms",
    callback=_or_default(_milliseconds),
    metavar="DURATION",
    help="Lease duration.",
)
@click.option(
    "--timeout",
    "timeout_ms",
    callback=_or_default(_milliseconds),
    metavar="DURATION",
    help="Maximum duration of an attempt.",
)
@click.option(
    "--concurrency",
    callback=_or_default(_number),
    metavar="N",
    help="Maximum concurrent handlers per worker.",
)
@click.option(
    "--max-attempts",
    callback=_or_default(_number),
    metavar="N",
    help="Maximum attempts, including the first.",
)
@change_options
@with_database
def set_(session: CliSession, type: str, change: ChangeOptions, **values: int | None) -> None:
    """Override settings of a job type while workers run; `default` removes an override.

    Workers pick them up at the next heartbeat; existing leases keep their length.
    """
    from holdfast.commands.workers import TypeChange

    if all(each is None for each in values.values()):
        raise CommandUsage("nothing to set", help="give --lease, --timeout, --concurrency …")
    _require_known(session, [type])
    if change.dry_run:
        print_info(f"would set {type}; nothing was changed")
        return
    session.run(session.admin.types.set(session.caller(change.reason), type, TypeChange(**values)))
    print_info(f"set {type}")


@command.command("reset", examples=("holdfast types reset pdf.render",))
@click.argument("type")
@change_options
@with_database
def reset(session: CliSession, type: str, change: ChangeOptions) -> None:
    """Return lease, timeout, concurrency and attempts of a job type to the values in its code.

    A pause stays; `holdfast types resume` ends it.
    """
    from holdfast.commands.workers import TypeChange

    _require_known(session, [type])
    if change.dry_run:
        print_info(f"would reset {type}; nothing was changed")
        return
    everything = TypeChange(_UNSET, _UNSET, _UNSET, _UNSET)
    session.run(_admin(session).set(session.caller(change.reason), type, everything))
    print_info(f"reset {type}")
