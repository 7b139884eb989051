"""Runs of cycles that die at a chosen step: `python -m apps.tenders.tests.dying` forks one per line it reads.

The hooks are here, not in the application.
"""

from datetime import timedelta

from apps.tenders.tests.pushing import NOON, HandClock, make_run
from tests.support.dying import Death, Steps, fork_for_each_line

from holdfast.contrib.sqlalchemy_url import open_async_engine
from holdfast_leases import AsyncLeasedTable
from tenders.database import Session
from tenders.deliveries import Work
from tenders.dispatch import send_due
from tenders.expo import ExpoPush
from tenders.ingest import Ingest
from tenders.jobs import jobs
from tenders.receipts import fetch_due
from tenders.settings import read_settings
from tenders.sources.api import ApiSource
from tenders.sources.opening import open_sources
from tenders.sources.pages import PageSource
from tenders.trust import trusted_authorities

CYCLES = {"dispatch": send_due, "receipt": fetch_due}


async def work(death: Death) -> int:
    """Run a cycle once, or until death; its clock is that far ahead of noon."""
    jobs.bind(death.url, lambda: None)
    engine = open_async_engine(death.url)
    Session.configure(bind=engine)
    steps = Steps(death)
    steps.watch(engine.sync_engine)
    for name in ("claim", "finish", "retry", "reap"):
        steps.wrap(AsyncLeasedTable, name)
    for name in ("send", "fetch_receipts"):
        steps.wrap(ExpoPush, name)
    for source in (ApiSource, PageSource):
        for name in ("find", "complete"):
            steps.wrap(source, name)
    if death.work == "ingest":
        await take_in()
    else:
        await push(death)
    await engine.dispose()
    await jobs.aclose()
    return 0


async def push(death: Death) -> None:
    """Run dispatch or receipt."""
    settings = read_settings()
    provider = ExpoPush.of(settings)
    clock = HandClock(NOON + timedelta(microseconds=death.ahead_us))
    await CYCLES[death.work](Work(make_run(death.work, "w-9"), settings, clock), provider)
    await provider.aclose()


async def take_in() -> None:
    """Run ingest."""
    async with open_sources(read_settings()) as sources:
        await Ingest(sources, 200).run(NOON, lambda: None)


if __name__ == "__main__":
    trusted_authorities()  # read before the first fork
    fork_for_each_line(work)
