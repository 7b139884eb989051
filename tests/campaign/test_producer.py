"""A producer of a campaign keeps the rate it is told."""

import threading
from contextlib import closing
from pathlib import Path

import pytest

from holdfast_chaos.journal import Journal, read_journals
from holdfast_chaos.producer import ProducerOptions, SteadyProducer
from holdfast_chaos.subject import SUBJECT_VARIABLE, SubjectOptions, make_subject

RATE = 50.0
SECONDS = 1.0


@pytest.mark.parametrize("starts", [[("order.charge", {"order": 7})], []], ids=["given", "own"])
def test_a_producer_starts_as_many_jobs_a_second_as_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, starts: list[tuple[str, object]]
) -> None:
    told = SubjectOptions(f"sqlite:///{tmp_path}/jobs.db", "holdfast", "p", str(tmp_path), 3_000)
    monkeypatch.setenv(SUBJECT_VARIABLE, told.to_environment()[SUBJECT_VARIABLE])
    with closing(make_subject(told)) as app:
        app.migrate()
        app.job("order.charge")(lambda job: None)
        producer = SteadyProducer(app, Journal(tmp_path, "p"), ProducerOptions(1, RATE, starts))
        timer = threading.Timer(SECONDS, producer.end)
        timer.start()
        producer.run()
        timer.join()
    acked = read_journals(tmp_path).acked
    count = sum(length or 1 for each in acked for length in each.chains.values())
    assert 0 < count < RATE * SECONDS * 3
