"""Instants as programs read them.

Records as every surface shows them: JSON objects with RFC 3339 instants, payloads redacted.

Versions of things, as ETags: a write may name the one it was decided on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.commands.health import Health, summarize
from holdfast.core.codec import decode_any
from holdfast.core.errors import Changed
from holdfast.core.filters import Term, format_filter
from holdfast.core.records import (
    AttemptRecord,
    BlockerRecord,
    ChainRecord,
    DeadGroup,
    Instant,
    JobRecord,
    ProgressRecord,
    to_datetime,
)
from holdfast.core.redaction import redact, redact_value


def rfc3339(instant: Instant | None) -> str | None:
    """Write an instant in UTC with microseconds, as in 2026-01-31T12:00:00.000000Z."""
    if instant is None:
        return None
    moment = to_datetime(instant)
    # A page writes hundreds of these, and strftime takes five times as long.
    return f"{moment.isoformat(timespec='microseconds')[:26]}Z"


def health_json(health: Health) -> dict[str, Any]:
    """Return the queue's health as every JSON surface shows it."""
    return {"at": rfc3339(health.now), "summary": summarize(health), **health.figures()}


def plain(record: msgspec.Struct) -> dict[str, Any]:
    """Return a record's fields; those that end in `_at` are instants."""
    fields = msgspec.structs.asdict(record)
    return {
        name: rfc3339(value) if name.endswith("_at") else value for name, value in fields.items()
    }


def shown_job(job: JobRecord) -> dict[str, Any]:
    """Show a job without its payloads."""
    fields = plain(job)
    del fields["input"], fields["output"]
    return fields | {"error": shown_error(job.error)}


def shown_chain(chain: ChainRecord) -> dict[str, Any]:
    """Show a chain without its payloads."""
    fields = plain(chain)
    del fields["input"], fields["output"]
    return fields | {"error": shown_error(chain.error)}


def shown_attempt(attempt: AttemptRecord) -> dict[str, Any]:
    """Show an attempt that did not complete its job."""
    fields = plain(attempt)
    del fields["job_id"]
    return fields | {"error": shown_error(attempt.error)}


def shown_blocker(blocker: BlockerRecord) -> dict[str, Any]:
    """Show a chain that a job waits or waited for."""
    return {
        "chain_id": blocker.chain_id,
        "open": blocker.open,
        "on_failure": blocker.on_failure,
        "state": blocker.state,
    }


def shown_error(error: str | None) -> str | None:
    """Return an error without secrets."""
    return None if error is None else redact(error)


def payload(text: str | None, raw: bool = False) -> Any:
    """Return a payload's value, redacted unless it is wanted raw."""
    if text is None:
        return None
    value = decode_any(text)
    return value if raw else redact_value(value)


def shown_progress(progress: ProgressRecord) -> dict[str, Any]:
    """Return the progress of a running job."""
    return {
        "fraction": progress.fraction,
        "note": redact(progress.note),
        "at": rfc3339(progress.at),
    }


def shown_dead_group(group: DeadGroup) -> dict[str, Any]:
    """Show dead letters of one kind, with the filter that finds them."""
    terms = [Term("type", ":", (group.type,))]
    if group.fingerprint:
        terms.append(Term("fingerprint", ":", (group.fingerprint,)))
    return {
        **plain(group),
        "error": shown_error(group.error),
        "filter": format_filter(terms),
    }


_BYTES = 8


def version_of(value: Any) -> str:
    """Return the version of anything that JSON can show."""
    raw = msgspec.json.encode(value, order="sorted")
    return hashlib.blake2b(raw, digest_size=_BYTES).hexdigest()


def job_version(job: JobRecord) -> str:
    """Return a job's version: it changes with each attempt and each move, not with a renewal."""
    return version_of([job.state, job.attempt, job.fence, job.available_at, job.finished_at])


def chain_version(chain: ChainRecord) -> str:
    """Return a chain's version."""
    return version_of([chain.state, chain.jobs, chain.finished_at])


def require(expected: Sequence[str] | None, version: str) -> None:
    """Refuse unless one of the expected versions is current, or none is expected. Raises: Changed."""
    if expected is not None and "*" not in expected and version not in expected:
        raise Changed("it is not what it was when it was read")
