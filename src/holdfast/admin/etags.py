"""Versions of things, as ETags: a write may name the one it was decided on."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.core.errors import Changed
from holdfast.core.records import ChainRecord, JobRecord

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
    """Go on only if one of the expected versions stands, or none is expected. Raises: Changed."""
    if expected is not None and "*" not in expected and version not in expected:
        raise Changed("it is not what it was when it was read")
