"""`holdfast jobs start`: a chain from the command line, checked by the application or by what the database knows."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from holdfast.cli.acting import Act, change_options
from holdfast.cli.lazy import Command
from holdfast.cli.output import Column, write_records
from holdfast.cli.session import Session, chosen, database_options
from holdfast.cli.talk import say
from holdfast.cli.views import state_colour
from holdfast.core.errors import CommandUsage, UnknownJobType
from holdfast.core.nearest import nearest

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.client.options import StartOptions
    from holdfast.client.views import Chain

_COLUMNS = (
    Column("id", lambda row: row["id"]),
    Column("type", lambda row: row["type"]),
    Column("state", lambda row: row["state"], state_colour),
    Column("deduplicated", lambda row: "yes" if row["deduplicated"] else "no"),
)


class _Undone(Exception):
    """Leaves a transaction without keeping what was written in it."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain


def _instant(_: click.Context, __: click.Parameter, text: str | None) -> datetime | None:
    """Read a point in time; one without a zone could mean any of two dozen."""
    if text is None:
        return None
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        instant = None
    if instant is None or instant.tzinfo is None:
        raise click.BadParameter(f"{text[:40]!r} is not a time like 2030-01-31T09:00:00Z")
    return instant


@click.command(
    "start",
    cls=Command,
    examples=(
        """holdfast jobs start mail.send '{"to": "ana@example.org"}'""",
        """holdfast jobs start mail.send @mail.json --key mail:17 --after 10m""",
        """holdfast jobs start mail.send - --app shop:app < mail.json""",
    ),
)
@click.argument("type")
@click.argument("input", default="null")
@click.option("--app", "spec", metavar="APP", help="module:attribute; checks the input's type.")
@click.option("--new-type", is_flag=True, help="Start a type that no worker has handled yet.")
@click.option("--key", help="Deduplication key: an open chain of the same key stands for this one.")
@click.option("--after", metavar="DURATION", help="Start not before this much later.")
@click.option("--at", callback=_instant, metavar="TIME", help="Start not before then.")
@click.option("--priority", type=click.IntRange(0, 9), default=5, help="0 is the most urgent.")
@click.option("--max-attempts", type=click.IntRange(min=1), help="Attempts in all.")
@database_options
@change_options
def start(
    type: str,
    input: str,
    spec: str | None,
    new_type: bool,
    url: str | None,
    schema: str | None,
    act: Act,
    **options: Any,
) -> None:
    """Start a chain of one job type.

    INPUT is JSON, @FILE reads it from a file and - from stdin. Without --app the type must be one
    that the database has seen, so that a mistyped name does not wait for ever.
    """
    value = _value(input)
    with chosen(spec, url, schema) as session:
        session.check()
        if spec is None and not new_type:
            _refuse_unknown(session, type)
        chain = _started(session, type, value, _given(options), act)
    write_records([_row(chain)], _COLUMNS, act.output, single=True)
    say(_sentence(chain, act.dry_run))


def _started(session: Session, type: str, value: Any, options: StartOptions, act: Act) -> Chain:
    from holdfast.service.chains import ChainDesk

    if act.dry_run:
        return _started_in_vain(session.app, type, value, options)
    desk = ChainDesk(session.desk)
    return session.run(desk.start(session.caller(act.reason), type, value, options))


def _started_in_vain(app: Holdfast, type: str, value: Any, options: StartOptions) -> Chain:
    """Start a chain and undo it, so that everything is checked as it would be."""
    try:
        with app.transaction() as tx:
            raise _Undone(app.start(tx, type, value, **options))
    except _Undone as undone:
        return undone.chain


def _sentence(chain: Chain, dry_run: bool) -> str:
    if chain.deduplicated:
        return f"nothing was started: an earlier chain has the key {chain.key}"
    if dry_run:
        return "this is what would be started; nothing was"
    return f"started {chain.type}"


def _given(options: dict[str, Any]) -> StartOptions:
    given = {name: value for name, value in options.items() if value is not None}
    return cast("StartOptions", given)


def _value(text: str) -> Any:
    if text == "-":
        text = sys.stdin.read()
    elif text.startswith("@"):
        try:
            text = Path(text[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise CommandUsage(f"{text[1:61]} cannot be read: {why}") from None
    try:
        return json.loads(text)
    except ValueError as error:
        raise CommandUsage(
            f"the input is not JSON: {error}",
            help="""quote it for the shell, as in '{"id": 1}'""",
        ) from None


def _refuse_unknown(session: Session, type: str) -> None:
    from holdfast.service.type_facts import type_facts

    known = session.read(type_facts(session.store))
    if type in known:
        return
    near = nearest(type, known)
    raise UnknownJobType(
        f"the database has never seen a job type {type[:60]!r}",
        help=f"{f'{near} If not, ' if near else ''}start a new type with --new-type or --app",
    )


def _row(chain: Chain) -> dict[str, Any]:
    return {
        "id": str(chain.id),
        "type": chain.type,
        "state": chain.state,
        "key": chain.key,
        "deduplicated": chain.deduplicated,
    }
