"""Archiving many jobs takes bounded memory; the bench measures it with a million."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from holdfast import Holdfast
from tests.support.until import TEST_TIMEOUT_S

# Few and large: rows cost time, bytes cost memory. Together they are more than may be in memory at a time.
JOBS = 3_000
INPUT_BYTES = 10_000
MAX_MIB = 115
"""Reading and writing in bounded steps takes 85 MiB, all at once 150."""


def test_memory_does_not_grow_with_the_jobs(postgres_url: str, tmp_path: Path) -> None:
    Holdfast(postgres_url).migrate()
    with psycopg.connect(postgres_url) as connection:
        connection.execute(
            """
with made as (
  insert into holdfast.job (id, chain_id, chain_index, type, input, priority, blockers, created_at)
  select id, id, 0, 'done', repeat('x', %s), 5, 0, now()
    from (select gen_random_uuid() as id from generate_series(1, %s)) made
  returning id, type)
insert into holdfast.outcome (job_id, type, state, attempts, crashes, fence, token, worker, started_at, finished_at)
select id, type, 'completed', 1, 0, 1, id, 'elsewhere', now(), now() from made""",
            (INPUT_BYTES, JOBS),
        )
    command = [sys.executable, "-X", "faulthandler", "-m", "holdfast_bench.archive_figures"]
    process = subprocess.Popen(
        [*command, postgres_url, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=TEST_TIMEOUT_S / 2)
    except subprocess.TimeoutExpired:
        pytest.fail(f"it hangs: {_sessions(postgres_url)}\n{_stacks(process)}")
    assert process.returncode == 0, stderr
    found = json.loads(stdout)
    assert found["is_whole"]
    assert found["mib"] < MAX_MIB


def _sessions(url: str) -> str:
    """What the server does for the database."""
    with psycopg.connect(url, autocommit=True) as connection:
        asked = connection.execute(
            "select application_name, state, wait_event_type, wait_event, now() - xact_start, query"
            " from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
        )
        return "\n".join(map(str, asked))


def _stacks(process: subprocess.Popen[str]) -> str:
    """Where the threads of a process are, which ends with that."""
    process.send_signal(signal.SIGABRT)
    return process.communicate()[1]
