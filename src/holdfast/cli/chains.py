"""`holdfast chains`: looking at chains, waiting for them, cancelling and deleting them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from holdfast.cli.acting import Act, change, change_options
from holdfast.cli.chain_tree import write_tree
from holdfast.cli.choosing import choose, filter_argument, limit_option, targets_argument
from holdfast.cli.database import read, with_database
from holdfast.cli.lazy import Group
from holdfast.cli.listing import after_option, page_length_option, write_page
from holdfast.cli.moving import Move, move
from holdfast.cli.output import Format, output_option, write_json
from holdfast.cli.talk import warn
from holdfast.cli.views import CHAIN_COLUMNS
from holdfast.core.errors import ChainNotFound, StillReferenced, WrongState
from holdfast.core.ids import parse_id
from holdfast.service.chain_tree import read_tree
from holdfast.service.shown import payload, shown_chain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.app import Holdfast

_LIVE = ("blocked", "pending", "running")
_ANY = (*_LIVE, "completed", "failed", "cancelled")
_CANCEL = Move("cancel", "cancelled", "chain", _LIVE, shown_chain, CHAIN_COLUMNS)
_DELETE = Move("delete", "deleted", "chain", _ANY, shown_chain, CHAIN_COLUMNS)


@click.group(
    "chains",
    cls=Group,
    examples=(
        "holdfast chains list state:running",
        "holdfast chains show 0193a6f0-7c00-7000-8000-000000000000",
        "holdfast chains wait 0193a6f0-7c00-7000-8000-000000000000 --timeout 30s",
    ),
)
def command() -> None:
    """List, show, await, cancel and delete chains."""


@command.command(
    "list",
    examples=(
        "holdfast chains list",
        "holdfast chains list state:running type:order.*",
        "holdfast chains list key:charge:17 -o json",
    ),
)
@filter_argument
@page_length_option
@after_option
@output_option
@with_database
def list_(
    app: Holdfast, filter: tuple[str, ...], limit: int, after: str | None, output: Format
) -> None:
    """List chains, the newest first; the filter is that of jobs."""
    page = app.database.store.chains.page
    write_page(app, "chains", filter, limit, after, page, shown_chain, CHAIN_COLUMNS, output)


@command.command(
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
    help="How far to follow what jobs wait for.",
)
@output_option
@with_database
def show(app: Holdfast, id: str, depth: int, output: Format) -> None:
    """Show a chain as a tree: its jobs in order, and the chains they wait for."""
    tree = read(app, read_tree(app.database.store, str(parse_id(id)), depth))
    if output == "table":
        write_tree(tree)
    elif output == "id":
        click.echo(tree["id"])
    else:
        write_json(tree, indent=2 if output == "json" else None)


@command.command(
    "wait",
    examples=(
        "holdfast chains wait 0193a6f0-7c00-7000-8000-000000000000 --timeout 30s",
        "holdfast chains wait $(holdfast jobs start pdf.render -o id) | jq .url",
    ),
)
@click.argument("id")
@click.option("--timeout", default="60s", show_default=True, help="Give up after this long.")
@click.option("--raw", is_flag=True, help="Show the output as it is, secrets included.")
@with_database
def wait(app: Holdfast, id: str, timeout: str, raw: bool) -> None:
    """Wait until a chain has ended and write its output as JSON.

    Exits 1 when it failed or was cancelled, 124 when the time is over; it goes on then.
    """
    from holdfast.cli.waiting import wait_for_chain

    chain = wait_for_chain(app, str(parse_id(id)), timeout)
    write_json(payload(chain.output, raw))


@command.command(
    "cancel",
    examples=(
        "holdfast chains cancel 0193a6f0-7c00-7000-8000-000000000000 --reason 'order withdrawn'",
        "holdfast chains cancel type:report.* --dry-run",
    ),
)
@targets_argument
@limit_option
@change_options
@with_database
def cancel(app: Holdfast, targets: tuple[str, ...], limit: int, act: Act) -> int:
    """Cancel chains that have not ended, whichever of their jobs is live by then."""
    store = app.database.store.chains
    choice = choose(app, targets, limit, f"state:{','.join(_LIVE)}", store.get, store.page)
    return move(app, choice, act, _CANCEL, _cancelled)


def _cancelled(app: Holdfast, ids: Sequence[str], act: Act) -> list[str]:
    from holdfast.ops.end import cancel_chain
    from holdfast.service.hints import of_ended

    done = []
    for id in ids:
        try:
            change(
                app,
                cancel_chain(app.database.store, id, act.reason or ""),
                action="chain.cancel",
                targets=lambda report: [f"chain {each.chain_id}" for each in report.ended],
                reason=act.reason,
                hints=of_ended,
            )
        except (WrongState, ChainNotFound):
            continue
        done.append(id)
    return done


@command.command(
    "delete",
    examples=(
        "holdfast chains delete 0193a6f0-7c00-7000-8000-000000000000",
        "holdfast chains delete state:completed 'age>30d' --yes",
        "holdfast chains delete 0193a6f0-7c00-7000-8000-000000000000 --cascade --dry-run",
    ),
)
@targets_argument
@click.option("--cascade", is_flag=True, help="Delete the chains that they waited for too.")
@limit_option
@change_options
@with_database
def delete(app: Holdfast, targets: tuple[str, ...], cascade: bool, limit: int, act: Act) -> int:
    """Delete chains with everything that belongs to them; a running handler is told to stop.

    Chains that other jobs wait for are refused, with the list of those jobs.
    """
    store = app.database.store.chains
    choice = choose(app, targets, limit, "", store.get, store.page)
    if not choice.by_filter and len(choice.found) == 1:
        return move(app, choice, act, _DELETE, partial(_deleted, cascade=cascade))
    return move(app, choice, act, _DELETE, partial(_deleted_each, cascade=cascade))


def _deleted(app: Holdfast, ids: Sequence[str], act: Act, cascade: bool) -> Sequence[str]:
    from holdfast.notify.port import Hint
    from holdfast.ops.delete import delete_chains

    change(
        app,
        delete_chains(app.database.store, ids, cascade),
        action="chain.delete",
        targets=lambda _: [f"chain {each}" for each in ids],
        reason=act.reason,
        hints=lambda _: [Hint("ended", ids=tuple(ids))],
    )
    return ids


def _deleted_each(app: Holdfast, ids: Sequence[str], act: Act, cascade: bool) -> list[str]:
    """Delete together what can go together; what others wait for stays, and is told."""
    try:
        return list(_deleted(app, ids, act, cascade))
    except (StillReferenced, ChainNotFound):
        pass
    done = []
    for id in ids:
        try:
            _deleted(app, [id], act, cascade)
        except (StillReferenced, ChainNotFound) as error:
            warn(f"chain {id}: {error.message}")
            continue
        done.append(id)
    return done
