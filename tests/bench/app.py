"""What `holdfast worker tests.bench.app:app` runs: the types of BENCH_TYPES, on the database of HOLDFAST_URL."""

from __future__ import annotations

import os

from tests.bench.handlers import TYPES_VARIABLE, make_app

app = make_app(os.environ["HOLDFAST_URL"], tuple(os.environ[TYPES_VARIABLE].split(",")))
