"""`holdfast types`: job types, and their settings at run time."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.changes import ChangeOptions, change_named, change_options
from holdfast.cli.completion import complete_type
from holdfast.cli.console import print_info, print_warning
from holdfast.cli.exit_codes import Exit
from holdfast.cli.lazy import HelpGroup
from holdfast.cli.output import (
    Column,
    Detail,
    Format,
    Record,
    columns,
    flag_column,
    output_option,
    write_detail,
    write_records,
    write_single,
)
from holdfast.cli.session import (
    CliSession,
    app_argument,
    database_options,
    load_app,
    open_app,
    open_app_or_database,
    with_database,
)
from holdfast.core.duration import format_duration, format_span, milliseconds, pluralize
from holdfast.core.errors import CommandUsage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.admin.types import TypeFacts
    from holdfast.app import Holdfast
    from holdfast.commands.unreadable import ParkedFunction, TypeCheck
    from holdfast.commands.workers import TypeChange
    from holdfast.core.records import TypeSetting
    from holdfast.core.registry import JobType
    from holdfast.worker.attempt import EffectivePolicy

_DEFAULT = "default"

_CHECK_COLUMNS = (
    *columns("type", "waiting", "versions"),
    flag_column("unreadable", "red"),
    *columns("error", "example"),
)
_POLICY_COLUMNS = columns("option", "value", "from")
TYPE_COLUMNS = (
    *columns("type", "live", "due"),
    Column("oldest due", lambda row: row["oldest_due"]),
    *columns("completed"),
    flag_column("failed", "red"),
    Column(
        "workers",
        lambda row: row["workers"],
        lambda row: "red" if row["live"] and not row["workers"] else None,
    ),
    flag_column("paused", "yellow"),
    *columns("limits"),
    flag_column("keys full", "yellow", "full_keys"),
    *columns("settings"),
)


_TIME_COLUMNS = columns("measured", "p50", "p95", "p99")


@click.group(
    "types",
    cls=HelpGroup,
    examples=(
        "holdfast types list",
        "holdfast types pause mail.send --reason 'provider is down'",
        "holdfast types set pdf.render --lease 120s --concurrency 2",
        "holdfast types check shop.jobs:app",
    ),
)
def types() -> None:
    """List, show, check, pause, resume and configure job types."""


@types.command("list", examples=("holdfast types list", "holdfast types list -o json"))
@output_option
@with_database
def list_(session: CliSession, output: Format) -> None:
    """List all job types in the database, with depth, age, handlers and settings."""
    facts = _list_facts(session)
    rows = [each.as_record() if output == "table" else each.as_json() for each in facts]
    write_records(rows, TYPE_COLUMNS, output, id="type", empty="no job types found")


@types.command(
    "show",
    examples=(
        "holdfast types show pdf.render",
        "holdfast types show pdf.render shop.jobs:app",
        "holdfast types show pdf.render shop.jobs:app -o json",
    ),
)
@click.argument("type", shell_complete=complete_type)
@app_argument()
@database_options
@output_option
def show(type: str, spec: str | None, url: str | None, schema: str | None, output: Format) -> None:
    """Show a job type: how long its jobs run and wait, its lease, timeout, concurrency and attempts.

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
        figures = _figures(session, type) if found else None
    record = {} if found is None else found.as_record() if output == "table" else found.as_json()
    shown = (
        *("live", "due", "oldest_due", "completed", "failed"),
        *("workers", "limits", "full_keys", "on_failed", "paused"),
    )
    facts_shown = {name.replace("_", " "): record.get(name) for name in shown}
    kept = {} if found is None else found.kept
    facts_shown["kept"] = ", ".join(f"{state} {span}" for state, span in kept.items()) or None
    times = [] if figures is None else _times(figures)
    detail = Detail(
        type, facts=facts_shown, tables=((times, _TIME_COLUMNS), (options, _POLICY_COLUMNS))
    )
    write_single(
        {"type": type, **record, "options": options, "statistics": figures},
        output,
        lambda: write_detail(detail),
        "type",
    )


def _figures(session: CliSession, type: str) -> Record:
    """Read what the type did within the last hour, and how long its jobs ran and waited."""
    board = session.run(session.admin.type_boards.get(session.caller(), type)).as_json()
    return {name: board[name] for name in ("window", "error_rate", "times_us", "sampled")}


def _times(figures: Record) -> list[Record]:
    return [
        {
            "measured": f"{word} time",
            **{name: None if us is None else format_span(us) for name, us in found.items()},
        }
        for word, found in figures["times_us"].items()
    ]


def _options(
    app: Holdfast, type: str, job_type: JobType | None, facts: TypeFacts | None
) -> list[Record]:
    """Return what holds for a type now, with where it comes from; what only the code knows needs the code."""
    from holdfast.core.records import TypeSetting
    from holdfast.settings import load_settings
    from holdfast.worker.options import TypePolicies, worker_options

    setting = TypeSetting(type) if facts is None else facts.setting
    policy: TypeSetting | EffectivePolicy = setting
    concurrency = setting.concurrency
    if job_type is not None:
        policies = TypePolicies({type: job_type}, worker_options(load_settings()))
        policies.configure({type: setting}, False)
        policy, concurrency = policies.get(type), policies.limit(type)
    values = {
        "lease": _duration(policy.lease_ms),
        "timeout": _duration(policy.timeout_ms),
        "concurrency": concurrency,
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
        return "code (--app module:attribute shows it)"
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
    return None if ms is None else format_duration(ms)


def _add_pause(name: str, text: str, *examples: str) -> None:
    """Add a command that pauses or resumes types, or everything."""

    @types.command(name, help=text, examples=examples)
    @click.argument("types", nargs=-1, metavar="TYPE...", shell_complete=complete_type)
    @click.option("--all", "everything", is_flag=True, help="All types.")
    @change_options
    @with_database
    def set_paused(
        session: CliSession, types: tuple[str, ...], everything: bool, change: ChangeOptions
    ) -> None:
        if everything == bool(types):
            raise CommandUsage("name job types, or use --all")
        _require_known(session, types)
        named = "everything" if everything else ", ".join(types)
        admin, caller = session.admin.types, session.caller(change.reason)
        run: Any = partial(getattr(admin, name), caller)
        if everything:
            types, run = ("*",), lambda _: admin.pause_all(caller, name == "pause")
        words = {"would": f"{name} {named}", "done": f"{name}d {named}", "field": "type"}
        change_named(session, change, types, run, **words)


_add_pause(
    "pause",
    "Pause job types: workers finish running jobs and claim no more of these types.",
    "holdfast types pause mail.send --reason 'provider is down'",
    "holdfast types pause --all --reason 'maintenance until noon'",
)
_add_pause(
    "resume",
    "Resume paused job types.",
    "holdfast types resume mail.send",
    "holdfast types resume --all",
)


def _require_known(session: CliSession, types: Sequence[str]) -> None:
    from holdfast.commands.workers import unknown_type

    known = [each.totals.type for each in _list_facts(session)]
    for type in types:
        if type not in known:
            raise unknown_type(type, known)


def _list_facts(session: CliSession) -> list[TypeFacts]:
    return session.run(session.admin.types.list(session.caller()))


def _setting_option(
    name: str, metavar: str, help: str, read_value: Callable[[str], int]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command an option for a setting; the value `default` removes an override."""

    def read_option(_: click.Context, __: click.Parameter, text: str | None) -> int | None:
        from holdfast.commands.workers import UNSET

        if text is None:
            return None
        return UNSET if text == _DEFAULT else read_value(text)

    field = name.replace("-", "_") + ("_ms" if metavar == "DURATION" else "")
    return click.option(f"--{name}", field, callback=read_option, metavar=metavar, help=help)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10) or int(text) < 1:
        raise click.BadParameter(f"{text[:20]!r} is neither a positive number nor {_DEFAULT!r}")
    return int(text)


@types.command(
    "set",
    examples=(
        "holdfast types set pdf.render --lease 120s --concurrency 2",
        "holdfast types set pdf.render --lease default",
    ),
)
@click.argument("type", shell_complete=complete_type)
@_setting_option(
    "lease",
    "DURATION",
    "Lease duration; without its own timeout, an attempt can run for three leases.",
    milliseconds,
)
@_setting_option("timeout", "DURATION", "Maximum duration of an attempt.", milliseconds)
@_setting_option("concurrency", "N", "Maximum concurrent handlers per worker.", _number)
@_setting_option("max-attempts", "N", "Maximum attempts, including the first.", _number)
@change_options
@with_database
def set_(session: CliSession, type: str, change: ChangeOptions, **values: int | None) -> None:
    """Override settings of a job type while workers run; `default` removes an override.

    Workers pick them up at the next heartbeat; existing leases keep their length.
    """
    from holdfast.commands.workers import TypeChange

    if all(each is None for each in values.values()):
        raise CommandUsage("nothing to set", help="set --lease, --timeout, --concurrency …")
    _set_type(session, type, "set", TypeChange(**values), change)


def _set_type(
    session: CliSession, type: str, verb: str, wanted: TypeChange, change: ChangeOptions
) -> None:
    _require_known(session, [type])
    wanted.check()
    run = partial(session.admin.types.set, session.caller(change.reason), change=wanted)
    words = f"{verb} {type}"
    change_named(session, change, [type], run, would=words, done=words, field="type")


@types.command(
    "check",
    examples=("holdfast types check shop.jobs:app", "holdfast types check shop.jobs:app -o json"),
)
@app_argument(required=True)
@output_option
def check(spec: str, output: Format) -> int:
    """Check that APP's code can read all waiting jobs in the database; exits 6 if not.

    Run it with the new code before you deploy it: the inputs of all waiting jobs are decoded, upgrades included,
    durable functions are replayed up to the first step that is not recorded, and nothing is changed. Jobs written
    after the check are not covered.
    """
    from holdfast.commands.unreadable import TypeCheck, check_page, readers_of

    app = load_app(spec)
    readers, checks = readers_of(app.registry), dict[str, TypeCheck]()
    with open_app(app, f" --app {spec}") as session:
        session.check()
        before: str | None = None
        while True:
            functions: list[ParkedFunction] = []
            page = check_page(session.store, readers, checks, functions, before)
            before = session.read(page)
            _replay(app, readers, checks, functions)
            if before is None:
                break
        totals = session.read(session.store.workers.type_totals())
    found = [_check_row(checks[name]) for name in sorted(checks)]
    write_records(
        found, _CHECK_COLUMNS, output, id="type", empty="no jobs are waiting for this code"
    )
    for each in checks.values():
        for name, jobs in each.unasked.items():
            print_warning(
                f"{each.type} does not ask for {name} before something new, and {pluralize(len(jobs), 'job')}"
                f" recorded it, such as {jobs[0]}; under another name it is done again"
            )
    sealed = sum((Counter(each.keys) for each in checks.values()), Counter[str]())
    for key, count in sorted(sealed.items()):
        print_info(f"{pluralize(count, 'job')} sealed with the key {key}")
    others = sorted(each.type for each in totals if each.live and each.type not in readers)
    if others:
        print_warning(f"{spec} has no handler for {', '.join(others)}, and jobs are waiting")
    unread = sum(each.unreadable for each in checks.values())
    waiting = sum(each.waiting for each in checks.values())
    if unread:
        print_info(f"{pluralize(unread, 'job')} of {waiting} cannot be read by {spec}")
        return Exit.CHECK_NOT_MET
    print_info(f"{spec} can read all {pluralize(waiting, 'waiting job')}")
    return Exit.OK


def _replay(
    app: Holdfast,
    readers: Mapping[str, JobType],
    checks: Mapping[str, TypeCheck],
    functions: Sequence[ParkedFunction],
) -> None:
    """Replay durable functions, which runs the code between their recorded steps."""
    if not functions:
        return
    import asyncio

    from holdfast.client.start_targets import open_targets
    from holdfast.steps.dry_run import replay_dry

    targets = open_targets(app.registry)
    for each in functions:
        check = checks[each.job.type]
        replay = replay_dry(targets, readers[each.job.type], each, check.unasked)
        problem, unasked = asyncio.run(replay)
        if problem is not None:
            check.note_misfit(each.job, problem)
        for name in unasked:
            check.unasked.setdefault(name, []).append(each.job.id)


def _check_row(check: TypeCheck) -> Record:
    versions = ", ".join(map(str, sorted(check.versions)))
    return {
        "type": check.type,
        "waiting": check.waiting,
        "versions": versions,
        "sealed": dict(sorted(check.keys.items())),
        "unreadable": check.unreadable,
        "error": check.error,
        "example": check.example,
        "unasked": {name: len(jobs) for name, jobs in check.unasked.items()},
    }


@types.command("reset", examples=("holdfast types reset pdf.render",))
@click.argument("type", shell_complete=complete_type)
@change_options
@with_database
def reset(session: CliSession, type: str, change: ChangeOptions) -> None:
    """Return lease, timeout, concurrency and attempts of a job type to the values in its code.

    A pause stays; `holdfast types resume` ends it.
    """
    from holdfast.commands.workers import UNSET, TypeChange

    _set_type(session, type, "reset", TypeChange(UNSET, UNSET, UNSET, UNSET), change)
