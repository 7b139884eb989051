"""Schedules in the tests of an application: they fire when the clock is moved, and go with the test's transaction."""

from __future__ import annotations

from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from holdfast import Holdfast, Job
from holdfast_schedules import Schedules, add_schedules
from holdfast_testing.kit import Kit


def make_app(url: str | None = None) -> tuple[Holdfast, Schedules, list[int]]:
    app, ran = Holdfast(url), list[int]()

    @app.job("report.send")
    def send(job: Job[int]) -> None:
        ran.append(job.input)

    return app, add_schedules(app), ran


def test_schedules_fire_when_the_clock_is_moved_and_a_fresh_test_has_none(
    holdfast_url: str,
) -> None:
    app, schedules, ran = make_app()
    for _ in range(2):
        ran.clear()
        kit = Kit.fresh(app, holdfast_url)
        assert schedules.list() == []
        with app.transaction() as tx:
            schedules.set(tx, "report:7", "report.send", 7, every="1h")
        kit.run_until_idle()
        assert ran == []
        kit.advance("1h")
        kit.run_until_idle()
        assert ran == [7]
        kit.close()
    app.close()


def test_schedules_fire_in_the_transaction_of_a_test_and_go_with_it(holdfast_url: str) -> None:
    app, schedules, ran = make_app(holdfast_url)
    app.migrate()
    address = holdfast_url.replace("postgresql://", "postgresql+psycopg://")
    engine = create_engine(address, poolclass=NullPool)
    with engine.connect() as connection:
        transaction = connection.begin()
        kit = Kit.joined(app, connection)
        schedules.set(connection, "report:7", "report.send", 7, every="1h")
        kit.advance("1h")
        kit.run_until_idle()
        assert ran == [7]
        assert [each.job_state for each in schedules.history("report:7")] == ["completed"]
        kit.close()
        transaction.rollback()
    engine.dispose()
    assert schedules.list() == []
    app.close()
