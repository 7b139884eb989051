"""`holdfast jobs`: listing, showing, retrying, cancelling, starting and following jobs."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from functools import partial
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any, NamedTuple, assert_never, cast

import click

from holdfast.cli.changes import BulkAction, ChangeOptions, add_bulk_command, change_options
from holdfast.cli.completion import complete_type
from holdfast.cli.console import print_info, wants_colour
from holdfast.cli.interrupts import take_interrupts
from holdfast.cli.lazy import HelpGroup
from holdfast.cli.output import (
    JOB_COLUMNS,
    STATE_COLOURS,
    Column,
    Detail,
    Format,
    clean,
    columns,
    filter_argument,
    first_line,
    limit_option,
    list_options,
    output_option,
    parse_pairs,
    state_colour,
    to_seconds,
    truncate,
    write_detail,
    write_page,
    write_records,
    write_single,
    write_table,
)
from holdfast.cli.session import (
    CliSession,
    app_option,
    database_options,
    open_app_or_database,
    with_database,
)
from holdfast.core import lifecycle
from holdfast.core.duration import format_span
from holdfast.core.errors import CommandUsage, UnknownJobType, nearest
from holdfast.core.ids import short_id
from holdfast.core.instants import parse_time
from holdfast.core.start_table import START_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.admin.jobs import JobDetail, Moved
    from holdfast.app import Holdfast
    from holdfast.client.start_options import StartOptions
    from holdfast.client.views import Chain

_TAIL_INTERVAL_S = 1.0

_ATTEMPT_COLUMNS = (
    Column("attempt", lambda row: row["attempt"]),
    Column("ended as", lambda row: row["kind"]),
    Column("ended", lambda row: to_seconds(row["ended_at"])),
    Column("worker", lambda row: row["worker"]),
    Column("error", lambda row: first_line(row["error"])),
)
_STARTED_COLUMNS = (
    *columns("id", "type"),
    Column("state", lambda row: row["state"], state_colour),
    Column("deduplicated", lambda row: "yes" if row["deduplicated"] else "no"),
)
_MAX_RESULT = 60
_STEP_STATES = {"done": "completed", "open": "pending", "failed": "failed", "timed_out": "failed"}


def _step_colour(step: Mapping[str, Any]) -> str | None:
    """Return the colour of a step's state."""
    return STATE_COLOURS[_STEP_STATES[str(step["state"])]]


def _step_result(step: Mapping[str, Any]) -> str | None:
    """Return what came of a step in one line: its error, its result, or the chains it called."""
    if step["error"] or step["sealed"]:
        return first_line(step["error"]) or "sealed"
    if step["output"] is None and step["chains"]:
        return ", ".join(map(short_id, step["chains"]))
    value = None if step["output"] is None else json.dumps(step["output"], ensure_ascii=False)
    return value and truncate(value, _MAX_RESULT)


def _step_state(step: Mapping[str, Any]) -> str:
    return str(step["state"]).replace("_", " ") + (", not used" if step["unused"] else "")


def _took(step: Mapping[str, Any]) -> str | None:
    return None if step["took_ms"] is None else format_span(step["took_ms"] * 1000)


_STEP_COLUMNS = (
    *columns("step", "kind"),
    Column("state", _step_state, _step_colour),
    Column("took", _took),
    *columns("tries"),
    Column("until", lambda row: to_seconds(row["until"]) if row["state"] == "open" else None),
    Column("result", _step_result),
)
_BLOCKER_COLUMNS = (
    Column("waits for chain", lambda row: row["chain_id"]),
    Column("state", lambda row: row["state"], state_colour),
    Column("open", lambda row: "yes" if row["open"] else "no"),
    Column("called", lambda row: "yes" if row["called"] else "no"),
)


@click.group(
    "jobs",
    cls=HelpGroup,
    examples=(
        "holdfast jobs list state:failed type:mail.*",
        "holdfast jobs show 0193a6f0-7c00-7000-8000-000000000000",
        "holdfast jobs retry 'state:failed age<1h' --dry-run",
    ),
    synonyms={"why": "show", "explain": "show", "get": "show", "redrive": "retry"},
)
def jobs() -> None:
    """List, show, start, retry, cancel and follow jobs, and list their steps."""


@jobs.command(
    "list",
    examples=(
        "holdfast jobs list",
        "holdfast jobs list state:failed type:mail.* 'age>5m'",
        "holdfast jobs list 'error:\"timed out\"' -o json",
        "holdfast jobs list state:pending -o id --limit 500",
    ),
)
@list_options
@with_database
def list_(
    session: CliSession, filter: tuple[str, ...], limit: int, after: str | None, output: Format
) -> None:
    """List jobs, newest first; all terms of a filter must match."""
    page = session.run(session.admin.jobs.page(session.caller(), " ".join(filter), limit, after))
    write_page("jobs", page, JOB_COLUMNS, output, after)
    state = next((each for each in filter if each in lifecycle.STATES), None)
    if state is not None and not page.items:
        print_info(f"{state!r} was searched as text; for jobs in this state, write state:{state}")


def show_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the argument and options of showing one job."""
    raw = click.option("--raw", is_flag=True, help="Show payloads unredacted, including secrets.")
    return click.argument("id")(raw(output_option(command)))


@jobs.command(
    "show",
    examples=(
        "holdfast jobs show 0193a6f0-7c00-7000-8000-000000000000",
        "holdfast jobs show 0193a6f0-7c00-7000-8000-000000000000 -o json",
    ),
)
@show_options
@with_database
def show(session: CliSession, id: str, raw: bool, output: Format) -> None:
    """Show a job in full, and why it isn't running.

    A unique beginning or end of the id is enough, such as …7c00a1b2; this works in every command that takes an id.
    Ids of jobs started together begin alike.
    """
    wanted = session.find_id("job", id)
    write_job(session.run(session.admin.jobs.get(session.caller(), wanted, raw)), output)


def write_job(found: JobDetail, output: Format) -> None:
    """Write everything about a job."""
    shown = ("why", "waits_for", "next_permit_at", "progress", "attempts", "blockers")
    rest = {name: getattr(found, name) for name in (*shown, "steps", "steps_cut")}
    write_single({**found.job, **rest}, output, lambda: write_detail(job_in_full(found)))


def job_in_full(found: JobDetail) -> Detail:
    """Return a job as people read it, here and in `top`."""
    job, progress = found.job, found.progress
    max_attempts = job["max_attempts"]
    return Detail(
        title=f"{job['type']} · {job['state']}",
        sentence=found.why,
        colour=state_colour(job),
        facts={
            "id": job["id"],
            "chain": f"{job['chain_id']}, job {job['chain_index'] + 1}",
            "key": job["key"],
            "version": job["version"] if job["version"] > 1 else None,
            "sealed with": job["sealed_with"],
            "priority": job["priority"],
            "attempt": f"{job['attempt']} of {max_attempts}" if max_attempts else job["attempt"],
            "crashes": job["crashes"] or None,
            "created": job["created_at"],
            "planned": job["planned_at"],
            "available": job["available_at"],
            "expires": job["expires_at"],
            "waits for": ", ".join(found.waits_for) or None,
            "next permit": found.next_permit_at,
            "started": job["started_at"],
            "finished": job["finished_at"],
            "worker": job["worker"],
            "lease until": job["lease_expires_at"],
            "progress": progress and f"{progress['fraction']:.0%} {progress['note']}",
            "context": ", ".join(f"{name}={value}" for name, value in job["context"].items())
            or None,
            "trace": job["trace"],
        },
        payloads={"input": job["input"], "output": job["output"]},
        text=job["error"],
        tables=(
            (found.steps, _STEP_COLUMNS),
            (found.blockers, _BLOCKER_COLUMNS),
            (found.attempts, _ATTEMPT_COLUMNS),
        ),
    )


@jobs.command(
    "steps",
    examples=(
        "holdfast jobs steps 0193a6f0-7c00-7000-8000-000000000000",
        "holdfast jobs steps 0193a6f0-7c00-7000-8000-000000000000 -o json",
    ),
)
@limit_option(1_000, 10_000)
@show_options
@with_database
def steps(session: CliSession, id: str, raw: bool, limit: int, output: Format) -> None:
    """List the steps of a durable function: what it did, and what it waits for.

    A step's tries are those that failed and the last; of more steps than --limit, the last are listed.
    """
    wanted = session.find_id("job", id)
    found = session.run(session.admin.jobs.steps(session.caller(), wanted, limit, raw))
    empty = "no steps: it is no durable function, or has not run yet"
    write_records(found, _STEP_COLUMNS, output, id="step", empty=empty)


def _move(name: str, done: str) -> BulkAction:
    """Return a command of the lifecycle, for several jobs."""

    def run_batch(session: CliSession, ids: Sequence[str], change: ChangeOptions) -> list[str]:
        run = getattr(session.admin.jobs, name)
        report: Moved = session.run(run(session.caller(change.reason, change.bulk), ids))
        return report.moved

    return BulkAction(lifecycle.JOB_COMMANDS[name], done, "job", run_batch)


add_bulk_command(
    jobs,
    "retry",
    """Re-queue failed jobs with a fresh set of attempts.

    Without a state in the filter, only failed jobs match.
    """,
    _move("retry", "retried"),
    "holdfast jobs retry 0193a6f0-7c00-7000-8000-000000000000",
    "holdfast jobs retry type:mail.* 'error:\"timed out\"' --dry-run",
    "holdfast jobs retry type:mail.* 'age<1h' --yes --reason 'provider is back'",
)
add_bulk_command(
    jobs,
    "cancel",
    """Cancel unfinished jobs; running handlers are aborted.

    Without a state in the filter, blocked, pending and running jobs match.
    """,
    _move("cancel", "cancelled"),
    "holdfast jobs cancel 0193a6f0-7c00-7000-8000-000000000000 --reason 'sent manually'",
    "holdfast jobs cancel state:pending type:report.* --dry-run",
)
add_bulk_command(
    jobs,
    "run-now",
    """Make pending jobs due now.

    Without a state in the filter, only pending jobs match.
    """,
    _move("run_now", "made due"),
    "holdfast jobs run-now 0193a6f0-7c00-7000-8000-000000000000",
    "holdfast jobs run-now type:mail.* 'attempt>=1' --yes",
)


class _DryRun(Exception):
    """Rolls a transaction back."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain


def _parse_time(_: click.Context, __: click.Parameter, text: str | None) -> datetime | None:
    return None if text is None else parse_time(text)


def _start_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of a start."""
    for name, option in reversed(list(START_OPTIONS.items())):
        flag, text = f"--{name.replace('_', '-')}", option.text
        match option.kind:
            case "number":
                kind = click.IntRange(option.lowest, option.highest)
                command = click.option(flag, type=kind, help=text)(command)
            case "choice":
                command = click.option(flag, type=click.Choice(option.choices), help=text)(command)
            case "flag":
                command = click.option(flag, is_flag=True, default=None, help=text)(command)
            case "time":
                command = click.option(flag, callback=_parse_time, metavar="TIME", help=text)(
                    command
                )
            case "duration":
                command = click.option(flag, metavar="DURATION", help=text)(command)
            case "text":
                command = click.option(flag, help=text)(command)
            case "pairs":
                pairs: dict[str, Any] = {"multiple": True, "metavar": "NAME=VALUE"}
                command = click.option(flag, callback=parse_pairs, help=text, **pairs)(command)
            case _ as never:
                assert_never(never)
    return command


@jobs.command(
    "start",
    examples=(
        """holdfast jobs start mail.send '{"to": "ana@example.org"}'""",
        """holdfast jobs start mail.send @mail.json --key mail:17 --after 10m""",
        """holdfast jobs start mail.send - --app shop:app < mail.json""",
        """holdfast jobs start --like 7c00a1b2 --set to=bob@example.org --set retries=3""",
    ),
)
@click.argument("type", required=False, shell_complete=complete_type)
@click.argument("input", required=False)
@click.option(
    "--like", metavar="ID", help="Copy type, input and options of this job, but not its key."
)
@click.option(
    "--set",
    "edits",
    multiple=True,
    metavar="NAME=VALUE",
    help="Change a field of the input, as in to=ana or items.0.count=3; values are JSON or text.",
)
@app_option
@click.option("--new-type", is_flag=True, help="Allow a type that is not in the database yet.")
@_start_options
@database_options
@change_options
def start(
    type: str | None,
    input: str | None,
    like: str | None,
    edits: tuple[str, ...],
    spec: str | None,
    new_type: bool,
    url: str | None,
    schema: str | None,
    change: ChangeOptions,
    **options: Any,
) -> None:
    """Start a chain, or one like an earlier job.

    INPUT is JSON; @FILE reads it from a file, - from stdin. Without --app, the type must already
    exist in the database, so a typo does not wait forever.
    """
    if type is None and like is None:
        raise CommandUsage("neither TYPE nor --like was given", help="name the type to start")
    given = {name: value for name, value in options.items() if value is not None}
    value = None if input is None else read_json(input)
    with open_app_or_database(spec, url, schema) as session:
        session.check()
        if like is not None:
            wanted = session.find_id("job", like)
            # What is edited has to be read, and so has what is to be sealed.
            kept_over = None if edits or "sealed" in given else 0
            template = session.admin.chains.template
            earlier = session.run(template(session.caller(), wanted, type, kept_over))
            type = type or earlier.type
            value = earlier.input if input is None else value
            given, like = {**earlier.options_of(type), **given}, earlier.id
        if spec is None and not new_type:
            _require_known_type(session, str(type))
        for each in edits:
            value = _edit_field(value, each)
        start = NewStart(str(type), value, cast("StartOptions", given), like)
        if change.dry_run:
            chain = _dry_run_start(session.app, start)
        else:
            caller = session.caller(change.reason)
            chain = session.run(session.admin.chains.start(caller, *start))
    row = {name: getattr(chain, name) for name in ("type", "state", "key", "deduplicated")}
    row = {"id": str(chain.id), **row}
    write_single(row, change.output, lambda: write_table([row], _STARTED_COLUMNS))
    print_info(_sentence(chain, change.dry_run, "debounce" in given))


class NewStart(NamedTuple):
    """A chain to start, and the job it was made from."""

    type: str
    input: Any
    options: StartOptions
    like: str | None


def _edit_field(value: Any, edit: str) -> Any:
    """Return an input with one field changed. Raises: CommandUsage."""
    name, sign, text = edit.partition("=")
    if not name or not sign:
        raise CommandUsage(f"{edit[:40]!r} is not an edit", help="write it like name=value")
    try:
        new = json.loads(text)
    except ValueError:
        new = text
    except RecursionError:
        raise CommandUsage(f"{edit[:40]!r} is nested too deep") from None
    return _with_field({} if value is None else value, name.split("."), new, edit)


def _with_field(value: Any, path: list[str], new: Any, edit: str) -> Any:
    if not path:
        return new
    name, *rest = path
    if isinstance(value, dict):
        return {**value, name: _with_field(value.get(name, {}), rest, new, edit)}
    if isinstance(value, list) and name.isdecimal() and int(name) < len(value):
        place = int(name)
        return [*value[:place], _with_field(value[place], rest, new, edit), *value[place + 1 :]]
    raise CommandUsage(
        f"the input has no field for {edit[:60]!r}",
        help="see the input with `holdfast jobs show ID`",
    )


def _dry_run_start(app: Holdfast, start: NewStart) -> Chain:
    """Start a chain and roll it back, so that everything is validated."""
    try:
        with app.transaction() as tx:
            raise _DryRun(app.start(tx, start.type, start.input, **start.options))
    except _DryRun as rolled_back:
        return rolled_back.chain


def _sentence(chain: Chain, dry_run: bool, debounced: bool) -> str:
    if chain.deduplicated and debounced:
        replaced = "would replace" if dry_run else "replaced"
        return f"{replaced} the input of the chain that has the key {chain.key}"
    if chain.deduplicated:
        return f"not started: an open chain already has the key {chain.key}"
    if dry_run:
        return f"would start {chain.type}; nothing was started"
    return f"started {chain.type}"


def read_json(text: str, what: str = "input") -> Any:
    """Read JSON from an argument, @FILE or - for stdin. Raises: CommandUsage."""
    if text == "-":
        try:
            # JSON is UTF-8, whatever the locale's encoding is.
            text = sys.stdin.buffer.read().decode()
        except UnicodeDecodeError:
            raise CommandUsage(f"cannot read the {what} from stdin: it is not UTF-8") from None
    elif text.startswith("@"):
        try:
            text = Path(text[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise CommandUsage(f"cannot read {text[1:61]}: {why}") from None
    try:
        return json.loads(text)
    except ValueError as error:
        raise CommandUsage(
            f"the {what} is not JSON: {error}", help="""quote it for the shell, as in '{"id": 1}'"""
        ) from None
    except RecursionError:
        raise CommandUsage(f"the {what} is nested too deep") from None


def _require_known_type(session: CliSession, type: str) -> None:
    from holdfast.admin.types import type_facts

    known = session.read(type_facts(session.store))
    if type in known:
        return
    near = nearest(type, known)
    raise UnknownJobType(
        f"no job type {type[:60]!r} in this database",
        help=f"{f'{near} If not, ' if near else ''}start a new type with --new-type or --app",
    )


@jobs.command(
    "tail",
    examples=(
        "holdfast jobs tail",
        "holdfast jobs tail type:mail.* --lines 0",
        "holdfast jobs tail state:failed -o ndjson",
    ),
)
@filter_argument
@click.option(
    "--lines",
    type=click.IntRange(0, 500),
    default=10,
    show_default=True,
    help="Show this many past lines first.",
)
@output_option
@with_database
def tail(session: CliSession, filter: tuple[str, ...], lines: int, output: Format) -> None:
    """Follow jobs: print each new job and change of state.

    Checks the newest 2,000 jobs every second and follows the newest 500 that match; -o json prints
    one object per line.
    """
    from holdfast.admin.jobs import TAILED, Watch

    take_interrupts()
    watch, admin, caller = Watch(), session.admin.jobs, session.caller()
    wanted = " ".join(filter)
    earlier = session.run(admin.changes(caller, wanted, watch, TAILED))
    for job in earlier[len(earlier) - lines :]:
        _write(job, output)
    while True:
        sys.stdout.flush()
        sleep(_TAIL_INTERVAL_S)
        for job in session.run(admin.changes(caller, wanted, watch, TAILED)):
            _write(job, output)


def _write(job: dict[str, Any], output: Format) -> None:
    line = partial(click.echo, _line(job), color=wants_colour(sys.stdout))
    write_single(job, "ndjson" if output == "json" else output, line)


def _line(job: dict[str, Any]) -> str:
    when = job["finished_at"] or job["started_at"] or job["created_at"]
    state = click.style(f"{job['state']:<9}", fg=state_colour(job))
    attempt = f" attempt {job['attempt']}" if job["attempt"] > 1 else ""
    error = f" {clean(first_line(job['error']))}" if job["error"] else ""
    return f"{when}  {state}  {clean(job['type'])}  {job['id']}{attempt}{error}"
