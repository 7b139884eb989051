"""Archiving many jobs takes bounded memory; the bench measures it with a million."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psycopg

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
    command = [sys.executable, "-m", "holdfast_bench.archive_figures", postgres_url, str(tmp_path)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TEST_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["is_whole"]
    assert found["mib"] < MAX_MIB
