"""The reference of the schema: what each table is for, and the migrations of both dialects as they are run."""

from __future__ import annotations

import re

from docs._ext.reference.markdown import block, code, table
from docs._ext.reference.undocumented import require

from holdfast.storage.migrations import load_migrations

DIALECTS = {"PostgreSQL": "holdfast.storage.postgres", "SQLite": "holdfast.storage.sqlite"}

PURPOSES = {
    "api_token": "Tokens of the HTTP API, as hashes.",
    "archive_manifest": "What the archive exported of which period, where it is, and whether its rows were dropped.",
    "attempt": "Failed attempts: what went wrong, when, and on which worker.",
    "audit": "Manual changes: who changed what, before, after and why.",
    "blocker": "Which chains a job waits for, in order, and what to do if one fails.",
    "chain_key": "The chain of each deduplication key.",
    "charge": "What attempts cost of rates that count costs, in steps of their period.",
    "cycle": "Registered cycles, whether they are paused, and their current position.",
    "cycle_slot": "Each scheduled time of a singleton cycle: which worker runs it, its token and its outcome.",
    "failing": "Why jobs failed whose `on_failed` is to be called, or was. Kept until a redrive or their removal.",
    "gate": "The state of each limit and key: which jobs it let in, and how many started in its period.",
    "identity": "One row that identifies this database, so a copy can be detected.",
    "inbox": "Where messages of other systems arrive: webhooks and streams of brokers.",
    "inbox_line": "How far inboxes that keep the order of keys are in each line, and which process reads it.",
    "inbox_member": "The processes that read an inbox's broker, and why one cannot at the moment.",
    "inbox_parked": "Messages that could not be taken, with the error.",
    "inbox_seen": "The messages that were received, so that one sent again is recognised.",
    "job": "The request: type, input and options. Written once, except a debounced job's input.",
    "job_context": "What jobs were started in, by name and value, so that lists find them.",
    "lease": "Which worker holds which jobs until when: one row per claim, for any number of jobs.",
    "limit_setting": "Limits changed at run time, and keys that pause.",
    "log": "Published events that consumers read, by line and place. Kept for a day, and until all have passed.",
    "log_line": "The last place of each line of the log; on PostgreSQL a sequence per line.",
    "log_member": "The processes that run a reader, among which lines are shared out.",
    "log_parked": "Events that a reader could not take, with the error, and those held behind them.",
    "log_part": "The partitions of the log. A publish takes the newest that was there when its transaction began.",
    "log_pattern": "Which events the readers read.",
    "log_position": "How far a reader is in each line, and the lease of the process that reads it.",
    "log_reader": "Who reads the log, and whether it is paused.",
    "on_failed": "Which types have an `on_failed`, so that it is called whichever process finds the failure.",
    "outcome": "The result of a job. Appended when it finishes.",
    "progress": "The progress that running attempts report.",
    "keep": "How long ended chains of a type are kept, where its code says so, and up to when they were removed.",
    "output": "What handlers emitted for those who follow a chain, in numbered batches, kept as long as the chain.",
    "queue": "Live jobs: one narrow row per blocked, pending or running job, deleted when it finishes.",
    "revision": "Further inputs of debounced jobs that have not started yet.",
    "schema_version": "The applied migrations.",
    "schedule": "Schedules set at run time: what they start, when next, and how they were last decided.",
    "schedule_context": "What schedules were set in, by name and value, so that lists find them.",
    "schedule_slot": "The due times of schedules that were decided, and the jobs they started.",
    "signal": "Signals to durable functions, kept until they are taken or their time is over.",
    "step": "What the steps of durable functions left behind, and what parked ones wait for.",
    "subscription": "Which handlers subscribe to which events, so producers need no handler code.",
    "redrive": "Redrives at a rate that are under way, and when each goes on.",
    "redrive_job": "The dead letters of a redrive that are to be re-queued, or were and have not started.",
    "tally": "Counters, appended and summed, so that no query counts rows.",
    "type_setting": "Run-time overrides per type: pauses, leases, limits and timeouts.",
    "unreadable": "Jobs that wait for code that can read their input, and why.",
    "wakeup": "Limits and keys to look at again: a job was added, freed or ended there.",
    "worker": "Workers and their last heartbeat.",
    "worker_runs": "Runs of ticks and cycles, with counters and errors.",
}

_LEXERS = {"PostgreSQL": "postgresql", "SQLite": "sql"}
_TABLE = re.compile(r"^create table (?:holdfast[._])?(\w+)(?=\s*\()", re.MULTILINE)
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
                block(_LEXERS[dialect], [each.text.strip()]),
            ]
    return "\n".join(parts)
