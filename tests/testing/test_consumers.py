"""Consumers of the event log in the tests of an application."""

from typing import Any

from holdfast import Holdfast, Job
from holdfast_streams import StreamEvent, add_streams
from holdfast_testing.kit import Kit


def test_consumers_read_what_was_published_and_what_they_start_runs(holdfast_url: str) -> None:
    app, seen, done = Holdfast(), [], []
    streams = add_streams(app)

    @app.job("receipt.send")
    def send(job: Job[int]) -> None:
        done.append(job.input)
        with app.transaction() as tx:
            app.publish(tx, "receipt.sent", job.input)

    @streams.consumer("order.*", "receipt.*")
    def project(event: StreamEvent[int], tx: Any) -> None:
        seen.append((event.name, event.data))
        if event.name == "order.paid":
            app.start(tx, send, event.data)

    for _ in range(2):
        seen.clear()
        done.clear()
        kit = Kit.fresh(app, holdfast_url)
        with app.transaction() as tx:
            app.publish(tx, "order.paid", 7, key="order 7")
        kit.run_until_idle()
        assert seen == [("order.paid", 7), ("receipt.sent", 7)]
        assert done == [7]
        kit.close()
