"""Records as every surface shows them: JSON with RFC 3339 instants, payloads redacted, and versions (ETags)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from holdfast.client.views import Chain
from holdfast.commands.health import Health, summarize
from holdfast.core.codec import decode_any
from holdfast.core.errors import Changed, SealError
from holdfast.core.filters import Term, format_filter
from holdfast.core.instants import Instant, to_datetime
from holdfast.core.job_context import decode_context
from holdfast.core.records import (
    AttemptRecord,
    BlockerRecord,
    ChainRecord,
    JobRecord,
    ProgressRecord,
)
from holdfast.core.redaction import redact, redact_value
from holdfast.core.sealing import Sealer, is_large, key_id, open_input, open_output, sealed_marker
from holdfast.core.statistics import STEPS_MS, DeadGroup, Window


def rfc3339(instant: Instant | None) -> str | None:
    """Write an instant in UTC with microseconds, as in 2026-01-31T12:00:00.000000Z."""
    if instant is None:
        return None
    moment = to_datetime(instant)
    # A page writes hundreds of these, and strftime takes five times as long.
    return f"{moment.isoformat(timespec='microseconds')[:26]}Z"


def step_starts(now: Instant, window: Window) -> range:
    """Return where the steps of a window begin, the last of them with the current one."""
    span_us, step_us = (each * 1000 for each in STEPS_MS[window])
    last = now // step_us * step_us
    return range(last - span_us + step_us, last + 1, step_us)


def health_json(health: Health) -> dict[str, Any]:
    """Return the queue's health as every JSON surface shows it."""
    return {"at": rfc3339(health.now), "summary": summarize(health), **health.figures()}


def plain(record: msgspec.Struct) -> dict[str, Any]:
    """Return a record's fields; `at` and those that end in `_at` or `_until` are instants."""
    fields = msgspec.structs.asdict(record)
    return {
        name: rfc3339(value) if name == "at" or name.endswith(("_at", "_until")) else value
        for name, value in fields.items()
    }


def without_payloads(record: JobRecord | ChainRecord) -> dict[str, Any]:
    """Return a job or a chain without its payloads."""
    fields = plain(record)
    del fields["input"], fields["output"]
    if isinstance(record, JobRecord):
        fields["context"] = decode_context(record.context)
    return fields | {"error": redact_text(record.error)}


def payloads_of(
    record: JobRecord | ChainRecord,
    sealer: Sealer | None,
    raw: bool = False,
    withheld: bool = False,
) -> dict[str, Any]:
    """Return input and output, redacted unless they are wanted raw, or that they are withheld or sealed."""
    chain_id = record.chain_id if isinstance(record, JobRecord) else record.id
    open_own = partial(open_input, sealer, id=record.id, type=record.type)
    open_last = partial(open_output, sealer, chain_id=chain_id)
    input, is_input_shut = shown_payload(record.input, raw, open_own)
    output, is_output_shut = shown_payload(record.output, raw, open_last)
    return {
        "input": None if withheld else input,
        "output": None if withheld else output,
        "payloads_withheld": withheld,
        "payloads_sealed": is_input_shut or is_output_shut,
        "sealed_with": key_id(record.input) or key_id(record.output),
    }


def shown_payload(text: str | None, raw: bool, open: Callable[[str], str]) -> tuple[Any, bool]:
    """Return a payload as it is shown, and whether it is sealed and this process cannot open it."""
    if text is None:
        return None, False
    if is_large(text):
        return {"large": decode_any(text)["$large"]}, False
    try:
        value = decode_any(open(text))
    except SealError:
        return sealed_marker(text), True
    return value if raw else redact_value(value), False


def shown_output(chain: Chain) -> Any:
    """Return what came of a chain, or that it is sealed and this process does not have the key."""
    try:
        return chain.output
    except SealError as error:
        return {"sealed": {"key": error.key}}


def shown_attempt(attempt: AttemptRecord) -> dict[str, Any]:
    """Return an attempt that did not complete its job."""
    fields = plain(attempt)
    del fields["job_id"]
    return fields | {"error": redact_text(attempt.error)}


def shown_blocker(blocker: BlockerRecord) -> dict[str, Any]:
    """Return a chain that a job waits or waited for, because it was started so or because its function called it."""
    return {
        "chain_id": blocker.chain_id,
        "called": blocker.step is not None,
        "open": blocker.open,
        "on_failure": blocker.on_failure,
        "state": blocker.state,
    }


def redact_text(text: str | None) -> str | None:
    """Return an error or a reason without secrets."""
    return None if text is None else redact(text)


def shown_progress(progress: ProgressRecord) -> dict[str, Any]:
    """Return the progress of a running job."""
    return {
        "fraction": progress.fraction,
        "note": redact(progress.note),
        "at": rfc3339(progress.at),
    }


def shown_dead_group(group: DeadGroup) -> dict[str, Any]:
    """Return dead letters of one kind, with the filter that finds them."""
    terms = [Term("type", ":", (group.type,))]
    if group.fingerprint:
        terms.append(Term("fingerprint", ":", (group.fingerprint,)))
    return {**plain(group), "error": redact_text(group.error), "filter": format_filter(terms)}


def version_of(value: Any) -> str:
    """Return the version of anything that JSON can show."""
    raw = msgspec.json.encode(value, order="sorted")
    return hashlib.blake2b(raw, digest_size=8).hexdigest()


def job_version(job: JobRecord) -> str:
    """Return a job's version: it changes with each attempt and each move, not with a renewal."""
    return version_of([job.state, job.attempt, job.fence, job.available_at, job.finished_at])


def chain_version(chain: ChainRecord) -> str:
    """Return a chain's version."""
    return version_of([chain.state, chain.jobs, chain.finished_at])


def require(expected: Sequence[str] | None, version: str) -> None:
    """Refuse unless one of the expected versions is current, or none is expected. Raises: Changed."""
    if expected is not None and "*" not in expected and version not in expected:
        raise Changed("it has changed since it was read")
