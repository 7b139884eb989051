"""A producer of a campaign keeps the rate it is told."""

import sqlite3
import threading
from collections import defaultdict
from contextlib import closing
from pathlib import Path

import pytest

from holdfast_chaos.event_log import EVENT
from holdfast_chaos.journal import Journal, read_journals
from holdfast_chaos.producer import ProducerOptions, SteadyProducer
from holdfast_chaos.statements import statement
from holdfast_chaos.subject import SUBJECT_VARIABLE, SubjectOptions, make_subject

RATE = 50.0
SECONDS = 1.0


def make_tables(told: SubjectOptions) -> None:
    """Make those that a campaign has beside Holdfast's own."""
    file = told.url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(statement("keys_create", "sqlite", told.schema))


@pytest.mark.parametrize("starts", [[("order.charge", {"order": 7})], []], ids=["given", "own"])
def test_a_producer_starts_as_many_jobs_a_second_as_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, starts: list[tuple[str, object]]
) -> None:
    told = SubjectOptions(f"sqlite:///{tmp_path}/jobs.db", "holdfast", "p", str(tmp_path), 3_000)
    monkeypatch.setenv(SUBJECT_VARIABLE, told.to_environment()[SUBJECT_VARIABLE])
    with closing(make_subject(told)) as app:
        app.migrate()
        make_tables(told)
        app.job("order.charge")(lambda job: None)
        producer = SteadyProducer(app, Journal(tmp_path, "p"), ProducerOptions(1, RATE, starts))
        timer = threading.Timer(SECONDS, producer.end)
        timer.start()
        producer.run()
        timer.join()
    acked = read_journals(tmp_path).acked
    count = sum(length or 1 for each in acked for length in each.chains.values())
    assert 0 < count < RATE * SECONDS * 3


def test_a_producer_notes_the_events_it_published_and_those_it_rolled_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = SubjectOptions(f"sqlite:///{tmp_path}/jobs.db", "holdfast", "p", str(tmp_path), 3_000)
    monkeypatch.setenv(SUBJECT_VARIABLE, told.to_environment()[SUBJECT_VARIABLE])
    with closing(make_subject(told)) as app:
        app.migrate()
        make_tables(told)
        journal = Journal(tmp_path, "p")
        producer = SteadyProducer(app, journal, ProducerOptions(1, 100_000.0))
        timer = threading.Timer(SECONDS, producer.end)
        timer.start()
        producer.run()
        timer.join()
    found = read_journals(tmp_path)
    published = [each for acked in found.events for each in acked.events]
    undone = {tag for each in found.events_undone for tag in each.tags}
    numbers: dict[str, list[int]] = defaultdict(list)
    for each in published:
        numbers[each.key].append(each.n)
    assert all(each == list(range(1, len(each) + 1)) for each in numbers.values())
    assert undone
    with closing(sqlite3.connect(f"{tmp_path}/jobs.db")) as connection:
        logged = connection.execute("select data ->> 'tag' from holdfast_log").fetchall()
        jobs = connection.execute("select count(*) from holdfast_job where type = ?", [EVENT])
        assert jobs.fetchone() == (0,)
    assert {tag for (tag,) in logged} == {each.tag for each in published}
    assert undone.isdisjoint(each.tag for each in published)
