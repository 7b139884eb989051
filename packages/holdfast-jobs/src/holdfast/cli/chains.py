"""`holdfast chains`: listing, showing, waiting for, cancelling and deleting chains."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.changes import (
    BulkAction,
    ChangeOptions,
    add_bulk_command,
    bulk_options,
    change_options,
    run_bulk_action,
    select,
)
from holdfast.cli.console import print_info, print_warning, wants_colour
from holdfast.cli.lazy import HelpGroup
from holdfast.cli.output import (
    CHAIN_COLUMNS,
    Format,
    clean,
    columns,
    first_line,
    list_options,
    output_option,
    state_colour,
    write_json,
    write_page,
    write_single,
    write_table,
)
from holdfast.cli.session import CliSession, with_database
from holdfast.core import lifecycle
from holdfast.core.duration import pluralize
from holdfast.core.errors import ChainNotFound, StillReferenced, WrongState

if TYPE_CHECKING:
    from collections.abc import Sequence


def write_tree(tree: dict[str, Any]) -> None:
    """Write a chain's tree."""
    colour = wants_colour(sys.stdout)
    click.echo(_chain_line(tree), color=colour)
    for line in _jobs(tree, ""):
        click.echo(line, color=colour)


def _jobs(chain: dict[str, Any], margin: str) -> Iterator[str]:
    if chain["earlier_jobs"]:
        earlier = pluralize(chain["earlier_jobs"], "earlier job")
        yield f"{margin}├─ {earlier}: holdfast jobs list chain:{chain['id']}"
    for job, branch, below in _branches(chain["jobs"], margin):
        yield f"{branch} {_job_line(job)}"
        yield from _blockers(job, below)


def _blockers(job: dict[str, Any], margin: str) -> Iterator[str]:
    for edge, branch, below in _branches(job["waits_for"], margin):
        word = "waits for" if edge["open"] else "waited for"
        chain = edge["chain"]
        shown = _chain_line(chain) if chain else f"{edge['chain_id']}  {_state(edge)}"
        yield f"{branch} {word} {shown}"
        if chain:
            yield from _jobs(chain, below)


def _branches(
    items: Sequence[dict[str, Any]], margin: str
) -> Iterator[tuple[dict[str, Any], str, str]]:
    """Go through items with the branch that leads to each, and the margin of what is below it."""
    for item in items:
        last = item is items[-1]
        yield item, f"{margin}{'└─' if last else '├─'}", f"{margin}{'   ' if last else '│  '}"


def _chain_line(chain: dict[str, Any]) -> str:
    key = f"  key {clean(chain['key'])}" if chain["key"] else ""
    return f"{chain['id']}  {click.style(clean(chain['type']), bold=True)}  {_state(chain)}{key}"


def _job_line(job: dict[str, Any]) -> str:
    attempt = f"  attempt {job['attempt']}" if job["attempt"] > 1 else ""
    error = f"  {clean(first_line(job['error']))}" if job["error"] else ""
    line = f"{job['chain_index'] + 1}  {clean(job['type'])}  {_state(job)}{attempt}{error}"
    return line if job["chain_index"] == 0 else f"{line}  {job['id']}"


def _state(record: dict[str, Any]) -> str:
    state = str(record["state"] or "gone")
    return click.style(state, fg=state_colour(record))


@click.group(
    "chains",
    cls=HelpGroup,
    examples=(
        "holdfast chains list state:running",
        "holdfast chains show 0193a6f0-7c00-7000-8000-000000000000",
        "holdfast chains wait 0193a6f0-7c00-7000-8000-000000000000 --timeout 30s",
    ),
)
def chains() -> None:
    """List, show, wait for, run again, cancel and delete chains."""


@chains.command(
    "list",
    examples=(
        "holdfast chains list",
        "holdfast chains list state:running type:order.*",
        "holdfast chains list key:charge:17 -o json",
    ),
)
@list_options
@with_database
def list_(
    session: CliSession, filter: tuple[str, ...], limit: int, after: str | None, output: Format
) -> None:
    """List chains, newest first."""
    page = session.run(session.admin.chains.page(session.caller(), " ".join(filter), limit, after))
    write_page("chains", page, CHAIN_COLUMNS, output, after)


@chains.command(
    "show",
    examples=(
        "holdfast chains show 0193a6f0-7c00-7000-8000-000000000000",
        "holdfast chains show 0193a6f0-7c00-7000-8000-000000000000 --depth 1 -o json",
    ),
)
@click.argument("id")
@click.option(
    "--depth",
    type=click.IntRange(0, 20),
    default=5,
    show_default=True,
    help="How many levels of blocking chains to follow.",
)
@output_option
@with_database
def show(session: CliSession, id: str, depth: int, output: Format) -> None:
    """Show a chain as a tree of its jobs and blockers."""
    from holdfast.admin.chains import read_tree

    tree = session.read(read_tree(session.store, session.find_id("chain", id), depth))
    write_single(tree, output, lambda: write_tree(tree))


@chains.command(
    "wait",
    examples=(
        "holdfast chains wait 0193a6f0-7c00-7000-8000-000000000000 --timeout 30s",
        "holdfast chains wait $(holdfast jobs start pdf.render -o id) | jq .url",
    ),
)
@click.argument("id")
@click.option("--timeout", default="60s", show_default=True, help="Give up after this long.")
@click.option("--raw", is_flag=True, help="Show the output unredacted, including secrets.")
@with_database
def wait(session: CliSession, id: str, timeout: str, raw: bool) -> None:
    """Wait for a chain to finish and print its output as JSON.

    Exits 1 if it failed or was cancelled, 124 on timeout (the chain continues).
    """
    from holdfast.admin.serializers import shown_output
    from holdfast.core.redaction import redact_value

    output = shown_output(session.app.chains.wait(session.find_id("chain", id), timeout))
    write_json(output if raw else redact_value(output))


@chains.command(
    "rerun",
    examples=(
        "holdfast chains rerun 0193a6f0-7c00-7000-8000-000000000000 --from charge",
        "holdfast chains rerun 7c00a1b2 --from 'mail[ana@example.org]' --dry-run",
    ),
)
@click.argument("id")
@click.option("--from", "step", required=True, metavar="STEP", help="The first step to run again.")
@change_options
@with_database
def rerun(session: CliSession, id: str, step: str, change: ChangeOptions) -> None:
    """Run a durable function again from a step, as a new chain with the same input.

    What was recorded before that step is copied, so it is not done again; the first chain stays as it is.
    """
    from holdfast.commands.rerun import find_step

    wanted = session.find_id("chain", id)
    if change.dry_run:
        session.run(session.admin.chains.state(session.caller(), wanted))
        job, records = session.read(find_step(session.store, wanted, step))
        copied = pluralize(len(records), "record")
        print_info(f"would start {job.type} with {copied} from before {step}; nothing was started")
        return
    chain = session.run(session.admin.chains.rerun(session.caller(change.reason), wanted, step))
    row = {"id": str(chain.id), "type": chain.type, "state": chain.state}
    write_single(row, change.output, lambda: write_table([row], columns("id", "type", "state")))
    print_info(f"started {chain.type} from {step}")


def _cancel_chains(session: CliSession, ids: Sequence[str], change: ChangeOptions) -> list[str]:
    admin, caller = session.admin.chains, session.caller(change.reason, change.bulk)
    done = []
    for id in ids:
        with suppress(WrongState, ChainNotFound):
            done.append(session.run(admin.cancel(caller, id)))
    return done


add_bulk_command(
    chains,
    "cancel",
    "Cancel unfinished chains.",
    BulkAction(lifecycle.CANCEL, "cancelled", "chain", _cancel_chains),
    "holdfast chains cancel 0193a6f0-7c00-7000-8000-000000000000 --reason 'order withdrawn'",
    "holdfast chains cancel type:report.* --dry-run",
)


@chains.command(
    "delete",
    examples=(
        "holdfast chains delete 0193a6f0-7c00-7000-8000-000000000000",
        "holdfast chains delete state:completed 'age>30d' --yes",
        "holdfast chains delete 0193a6f0-7c00-7000-8000-000000000000 --cascade --dry-run",
    ),
)
@click.option("--cascade", is_flag=True, help="Also delete the chains they waited for.")
@bulk_options
def delete(
    session: CliSession, targets: tuple[str, ...], cascade: bool, limit: int, change: ChangeOptions
) -> int:
    """Delete chains and all their jobs; running handlers are aborted.

    Chains that other jobs wait for are not deleted; those jobs are listed.
    """
    selection = select(session, "chain", targets, limit, lifecycle.STATES)
    is_single = not selection.by_filter and len(selection.found) == 1
    run = partial(_delete_chains if is_single else _delete_possible, cascade=cascade)
    action = BulkAction(lifecycle.DELETE, "deleted", "chain", run)
    return run_bulk_action(session, selection, change, action)


def _delete_chains(
    session: CliSession, ids: Sequence[str], change: ChangeOptions, cascade: bool
) -> Sequence[str]:
    caller = session.caller(change.reason, change.bulk)
    session.run(session.admin.chains.delete(caller, ids, cascade))
    return ids


def _delete_possible(
    session: CliSession, ids: Sequence[str], change: ChangeOptions, cascade: bool
) -> list[str]:
    """Delete all at once, or else those that no other job waits for, with a warning for each of the rest."""
    try:
        return list(_delete_chains(session, ids, change, cascade))
    except (StillReferenced, ChainNotFound):
        pass
    done = []
    for id in ids:
        try:
            _delete_chains(session, [id], change, cascade)
        except (StillReferenced, ChainNotFound) as error:
            print_warning(f"chain {id}: {error.message}")
            continue
        done.append(id)
    return done
