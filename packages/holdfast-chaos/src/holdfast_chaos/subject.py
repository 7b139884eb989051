"""The application that a campaign's processes run: our own job types, or those of a user, with a journal around them.

What it is told comes by environment variables: `holdfast worker holdfast_chaos.subject:app` is the real command.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import msgspec

from holdfast.app import Holdfast
from holdfast.cli.session import load_app
from holdfast.core.events import Event
from holdfast.core.outcome import Continue
from holdfast.core.retry import Retry
from holdfast.worker.job import Job, Next, SyncJob
from holdfast_chaos.event_log import refuse_events
from holdfast_chaos.journal import (
    HandlerBegan,
    HandlerEnded,
    Journal,
    LineRefused,
    WorkerBegan,
    WriteRefused,
    now,
)
from holdfast_chaos.statements import statement_of

SUBJECT_VARIABLE = "CHAOS_SUBJECT"
AT_ONCE = Retry(base="100ms", cap="1s", max_attempts=1_000)


class SubjectOptions(msgspec.Struct, frozen=True):
    """What a process is told: its database, its name, where its journal is, and whose job types it runs."""

    url: str
    schema: str
    actor: str
    journals: str
    lease_ms: int
    app: str | None = None

    def to_environment(self) -> dict[str, str]:
        """Return the variables that tell it.

        An application that reads where its database is finds the campaign's, whatever a file of settings says.
        """
        return {
            SUBJECT_VARIABLE: msgspec.json.encode(self).decode(),
            "HOLDFAST_URL": self.url,
            "HOLDFAST_SCHEMA": self.schema,
        }


class SubjectWork(msgspec.Struct):
    """The input of our own jobs: how long the handler takes, and what follows it in its chain."""

    ms: int
    next: list[str] = []


def continue_chain(job: Job[SubjectWork]) -> Continue | None:
    """Return what a handler returns: the next job of its chain, or nothing."""
    if not job.input.next:
        return None
    first, *others = job.input.next
    return Continue(first, SubjectWork(job.input.ms, others))


def add_types(app: Holdfast, lease_ms: int) -> None:
    """Register our own job types: one for each way in which an attempt is written to its end."""
    options: dict[str, Any] = {"retry": AT_ONCE, "lease": lease_ms / 1_000, "timeout": "1h"}

    def effect_of(job: Job[SubjectWork]) -> tuple[str, dict[str, Any]]:
        return statement_of(app, "effect_add"), {"job": str(job.id), "fence": job.fence}

    @app.job("chaos.plain", **options)
    async def plain(job: Job[SubjectWork]) -> Any:
        await asyncio.sleep(job.input.ms / 1_000)
        return continue_chain(job)

    @app.job("chaos.effect", **options)
    async def effect(job: Job[SubjectWork]) -> Any:
        await asyncio.sleep(job.input.ms / 1_000)
        async with job.complete() as done:
            await done.tx.execute(*effect_of(job))
        return continue_chain(job)

    @app.job("chaos.thread", **options)
    def thread(job: SyncJob[SubjectWork]) -> Any:
        # Deaf to its abort signal: a process that was stopped goes on and tries to write.
        time.sleep(job.input.ms / 1_000)
        with job.complete() as done:
            done.tx.execute(*effect_of(job))
        return continue_chain(job)

    @app.job("chaos.atomic", atomic=True, **options)
    async def atomic(job: Job[SubjectWork]) -> Any:
        await job.tx.execute(*effect_of(job))
        return continue_chain(job)


class JournalingObserver:
    """Writes into the journal when a worker is up, and what the database refused."""

    def __init__(self, journal: Journal, actor: str) -> None:
        self._journal = journal
        self._actor = actor

    def observe(self, event: Event) -> None:
        """Take an event of a worker."""
        if event.name == "write_refused":
            job, fence = str(event.fields["job_id"]), int(event.fields["fence"])
            reason = str(event.fields["reason"])
            self._journal.write(WriteRefused(now(), self._actor, job, fence, reason))
        elif event.name == "worker_started":
            self._journal.write(WorkerBegan(now(), self._actor))
        elif event.name == "stream_refused":
            reader, line = str(event.fields["reader"]), int(event.fields["line"])
            self._journal.write(LineRefused(now(), self._actor, reader, line))


def write_journal(app: Holdfast, journal: Journal, actor: str) -> None:
    """Have every attempt of an application's jobs noted outside the database, before its handler is called."""

    async def note_attempt(job: Job[Any], next: Next) -> Any:
        id, fence = str(job.id), job.fence
        began = HandlerBegan(
            now(), actor, id, job.type, job.attempt, fence, int(job.claimed.claimed_at)
        )
        journal.write(began)
        result = await next()
        journal.write(HandlerEnded(now(), actor, id, fence))
        return result

    app.middleware(note_attempt)
    app.observe(JournalingObserver(journal, actor))


def make_subject(options: SubjectOptions) -> Holdfast:
    """Return the application of a process, on the campaign's database."""
    if options.app is None:
        app = Holdfast(options.url, schema=options.schema)
        add_types(app, options.lease_ms)
        if refuse_events(options.app) is None:
            from holdfast_chaos.event_consumer import add_consumer

            add_consumer(app, AT_ONCE)
        return app
    app = load_app(options.app)
    app.bind(options.url, schema=options.schema)
    return app


def read_options() -> SubjectOptions:
    """Return what this process was told."""
    return msgspec.json.decode(os.environ[SUBJECT_VARIABLE], type=SubjectOptions)


def open_subject() -> Holdfast:
    """Return the application that this process was told to run, with its journal."""
    options = read_options()
    app = make_subject(options)
    write_journal(app, Journal(Path(options.journals), options.actor), options.actor)
    return app


def __getattr__(name: str) -> Holdfast:
    """Make the application when the command asks for it."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    app = globals()["app"] = open_subject()
    return app
