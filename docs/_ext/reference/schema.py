"""The reference of the schema: what each table is for, and the migrations of both dialects as they are run."""

from __future__ import annotations

import re

from docs._ext.reference.markdown import block, code, table
from docs._ext.reference.undocumented import require

from holdfast.storage.migrate import load_migrations

DIALECTS = {"PostgreSQL": "holdfast.storage.postgres", "SQLite": "holdfast.storage.sqlite"}

PURPOSES = {
    "api_token": "Tokens of the HTTP API, as hashes.",
    "attempt": "Attempts that did not complete their job: what went wrong, when, on which worker.",
    "audit": "Who changed what by hand, before, after and why.",
    "blocker": "Which chains a job waits for, in order, and what their failure means to it.",
    "chain_key": "Which chain stands for a deduplication key.",
    "cycle": "Cycles that workers have registered, whether they are paused, and how far they are.",
    "cycle_slot": "Each due instant of a singleton cycle: who runs it, under which token, how it ended.",
    "identity": "One row that says which database this is, so that a copy is recognised.",
    "job": "What was asked. Written once, never updated.",
    "lease": "Who holds what until when: one row per claim, however many jobs it names.",
    "outcome": "What came of a job. Appended when it ends.",
    "progress": "How far a running attempt says it is.",
    "queue": "What is live: one narrow row per blocked, pending or running job, gone when it ends.",
    "schema_version": "Which migrations have been run.",
    "subscription": "Which handlers want which events, so that producers need no handler code.",
    "tally": "Counts that are appended and summed, so that nobody counts rows.",
    "type_setting": "What was changed at run time: paused types, other leases, limits and timeouts.",
    "worker": "Workers and when they last gave a sign.",
    "worker_runs": "Runs of ticks and cycles, with counters and errors.",
}

_TABLE = re.compile(r"^create table (?:holdfast[._])?(\w+)", re.MULTILINE)
_VIEW = re.compile(r"^create view (holdfast[._]\w+)", re.MULTILINE)


def page() -> str:
    """Return the tables and the migrations. Raises: Undocumented."""
    texts = [m.text for package in DIALECTS.values() for m in load_migrations(package)]
    return f"{purposes(chr(10).join(texts))}\n{_migrations()}"


def purposes(sql: str) -> str:
    """Return what each table that is made here is for. Raises: Undocumented."""
    names = sorted(set(_TABLE.findall(sql)))
    require("tables without a purpose", (name for name in names if name not in PURPOSES))
    require("purposes of tables that are not made", (n for n in PURPOSES if n not in names))
    views = ", ".join(map(code, sorted(set(_VIEW.findall(sql)))))
    rows = ((code(name), PURPOSES[name]) for name in names)
    return f"## Tables\n\n{table(('table', 'what it holds'), rows)}\nViews: {views}.\n"


def _migrations() -> str:
    parts = []
    for dialect, package in DIALECTS.items():
        parts.append(f"## Migrations for {dialect}\n")
        for each in load_migrations(package):
            parts += [
                f"### {dialect} {each.version:04}: {each.name}\n",
                block("sql", [each.text.strip()]),
            ]
    return "\n".join(parts)
