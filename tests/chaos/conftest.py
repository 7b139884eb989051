"""The workshops of the worker's tests, here with processes and servers that die, and a primary with its standby."""

from tests.chaos.standby import app, pair
from tests.worker.conftest import postgres_workshop, sqlite_workshop, worker_url, workshop

__all__ = ["app", "pair", "postgres_workshop", "sqlite_workshop", "worker_url", "workshop"]
