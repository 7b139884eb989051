"""The application's Holdfast object. Modules with handlers import it; `invoicing.worker` imports them all."""

from __future__ import annotations

from holdfast import Holdfast, Retry
from holdfast.settings import event_retry, load_settings

jobs = Holdfast()  # HOLDFAST_URL, or sqlite:///holdfast.db


def first_line(error: str | None) -> str | None:
    """Return what a tenant is shown of an error; the trace stays with the job."""
    return None if error is None else error.partition("\n")[0]


OUTBOX: Retry = event_retry(load_settings())
"""OUTBOX_MAX_ATTEMPTS and OUTBOX_RETRY_…, also for what is started rather than published."""
