"""Runs of cycles and jobs that die at a chosen step: `python -m apps.tenders.tests.dying` forks one per line it reads.

The hooks are here, not in the application.
"""

from datetime import timedelta

from apps.tenders.tests.pushing import NOON, HandClock, HandKit, make_run
from tests.support.dying import Death, Steps, fork_for_each_line

from holdfast.contrib.sqlalchemy_url import open_async_engine
from holdfast_leases import AsyncLeasedTable
from tenders import sending
from tenders.database import Session
from tenders.dispatch import dispatch
from tenders.expo import ExpoPush
from tenders.ingest import Ingest
from tenders.jobs import jobs
from tenders.receipts import fetch_due
from tenders.settings import read_settings
from tenders.sources.api import ApiSource
from tenders.sources.opening import open_sources
from tenders.sources.pages import PageSource
from tenders.trust import trusted_authorities


async def work(death: Death) -> int:
    """Run a cycle once, or until death; its clock is that far ahead of noon."""
    kit = HandKit(jobs, death.url, HandClock(NOON + timedelta(microseconds=death.ahead_us)))
    engine = open_async_engine(death.url)
    Session.configure(bind=engine)
    steps = Steps(death)
    steps.watch(engine.sync_engine)
    for name in ("claim", "finish", "retry", "reap"):
        steps.wrap(AsyncLeasedTable, name)
    for name in ("_claim", "_write"):
        steps.wrap(sending, name)
    for name in ("send", "fetch_receipts"):
        steps.wrap(ExpoPush, name)
    for source in (ApiSource, PageSource):
        for name in ("find", "complete"):
            steps.wrap(source, name)
    if death.work == "ingest":
        await take_in()
    elif death.work == "dispatch":
        await dispatch(make_run("dispatch", "w-9"))
        await kit.run_until_idle_async()
    else:
        await receive()
    await engine.dispose()
    await jobs.aclose()
    return 0


async def receive() -> None:
    """Run receipt."""
    settings = read_settings()
    provider = ExpoPush.of(settings)
    await fetch_due(make_run("receipt", "w-9"), settings, provider)
    await provider.aclose()


async def take_in() -> None:
    """Run ingest."""
    async with open_sources(read_settings()) as sources:
        await Ingest(sources, 200).run(NOON, lambda: None)


if __name__ == "__main__":
    trusted_authorities()  # read before the first fork
    fork_for_each_line(work)
