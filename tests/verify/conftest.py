"""The workshops of the worker's tests, whose rows are damaged here."""

from tests.worker.conftest import postgres_workshop, sqlite_workshop, worker_url, workshop

__all__ = ["postgres_workshop", "sqlite_workshop", "worker_url", "workshop"]
