"""Durable functions are measured with the worker that people start, and beside code that does the least."""

import json
from contextlib import closing

import msgspec
import psycopg
import pytest

from holdfast_bench.durable_functions import STEPS, append_by_hand, read_by_hand
from holdfast_bench.handwritten import SQL, uuid7
from holdfast_bench.seeding import LoadCondition, seed
from holdfast_bench.servers import BenchServer
from holdfast_bench.subject import WorkerCommand, drain
from holdfast_bench.workload import fill, make_producer, migrate
from tests.bench.test_command import bench
from tests.support.postgres import PostgresServer

FIGURES = {"steps", "step_lone", "step_replay", "parked", "signal_find"}


@pytest.mark.timeout(300)
def test_every_figure_of_durable_functions_is_taken_beside_its_baseline(
    postgres_server: PostgresServer,
) -> None:
    done = bench("--tiny", "--server", postgres_server.url, "--only", "steps", "-o", "json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["failed"] == {}
    found = {each["name"]: each for each in report["results"]}
    assert set(found) == FIGURES
    assert all(each["ours"] > 0 and each["baseline"] > 0 for each in found.values())
    assert set(found["steps"]["beside"]) == {"worker_us", "server_us", "wal_bytes"}


def test_a_drained_function_leaves_a_record_for_each_of_its_steps(postgres_url: str) -> None:
    migrate(postgres_url)
    backlog = fill(postgres_url, "steps", 3, {"steps": STEPS})
    assert drain(WorkerCommand(postgres_url, ("steps",)), backlog, 3).span.jobs == 3
    with psycopg.connect(postgres_url) as connection:
        rows = connection.execute(SQL["step_rows"], [backlog.first]).fetchall()
    assert [msgspec.json.decode(row[4]) for row in rows] == list(range(STEPS))


def test_records_are_written_by_hand_under_the_token_of_a_live_row(postgres_url: str) -> None:
    assert append_by_hand(postgres_url, 1_000) > 0
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        question = "select count(*), count(distinct job_id) from step_limit.step"
        assert connection.execute(question).fetchall() == [(1_000, 50)]
        ids = connection.execute("select job_id from step_limit.queue").fetchall()
        rows = [{"j": id, "t": uuid7(), "n": "late", "k": "", "s": 0} for (id,) in ids]
        given = msgspec.json.encode(rows).decode()
        assert connection.execute(SQL["step_append"], [given]).fetchall() == []


def test_a_replay_is_compared_with_all_of_its_records_or_not_at_all(postgres_url: str) -> None:
    migrate(postgres_url)
    backlog = fill(postgres_url, "steps", 1, {"steps": STEPS})
    drain(WorkerCommand(postgres_url, ("steps",)), backlog, 1)
    with pytest.raises(RuntimeError, match=f"{STEPS} records of 1000 steps and a sleep"):
        read_by_hand(postgres_url, backlog.first)


def test_parked_functions_wait_as_the_worker_parks_them(postgres_server: PostgresServer) -> None:
    with (
        BenchServer("yours", postgres_server.url) as server,
        server.database() as url,
        closing(make_producer(url)) as app,
    ):
        seed(url, LoadCondition("parked", parked=12))
        with app.transaction() as tx:
            app.signal(tx, "approved", key="7")
        woken = app.database.run(app.database.store.signals.route(500))
        assert len(woken) == 1
        waits = app.database.run(app.database.store.signals.waits(100))
        assert len(waits) == 12
        (job,) = woken
        (signal_key,) = [each.signal_key for each in waits if each.job_id == job.id]
        assert signal_key == "7"
