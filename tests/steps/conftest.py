"""The tests of durable functions work where those of the worker do."""

from tests.worker.conftest import postgres_workshop as postgres_workshop
from tests.worker.conftest import sqlite_workshop as sqlite_workshop
from tests.worker.conftest import worker_url as worker_url
from tests.worker.conftest import workshop as workshop
