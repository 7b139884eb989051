"""How long a request waits, as a parameter of a FastAPI endpoint."""

from __future__ import annotations

from typing import Annotated

from holdfast.core.errors import MissingExtra

try:
    from fastapi import Query
    from pydantic import WithJsonSchema
except ImportError as error:
    raise MissingExtra("WaitMs needs FastAPI", help="pip install fastapi") from error

from holdfast_calls.request_wait import DEFAULT_MS, MAX_MS, PARAMETER

WaitMs = Annotated[
    str | None,
    Query(
        alias=PARAMETER,
        description=f"How long to wait, in milliseconds, by default {DEFAULT_MS:,}; more than {MAX_MS:,} counts as"
        f" {MAX_MS:,}, and 0 looks once.",
    ),
    # No maximum: a client that checks what it sends would refuse what is accepted.
    WithJsonSchema({"type": "integer", "minimum": 0}),
]
"""The type of a parameter that you pass on as `wait_ms`, so that OpenAPI shows it; it is checked there."""
