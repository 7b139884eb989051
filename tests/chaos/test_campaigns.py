"""A minute of faults on each database: `make acceptance` runs it; `make torture` an hour of it, with failovers."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast_chaos.campaign import Campaign, CampaignPlan
from holdfast_chaos.journal import now
from holdfast_chaos.target import CampaignTarget, GivenServer, OwnServer, SqliteTarget
from tests.support.postgres import StartPostgres
from tests.support.until import SLOWNESS, TEST_TIMEOUT_S, wait_until

MINUTE_S = 60.0
LEASE_S = 3.0 * SLOWNESS


def open_target(store: str, folder: pytest.TempPathFactory) -> CampaignTarget:
    if store == "sqlite":
        return SqliteTarget(folder.mktemp("database") / "campaign.db")
    return OwnServer()


@pytest.mark.timeout(4 * TEST_TIMEOUT_S + MINUTE_S)
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_minute_of_faults_breaks_no_law(
    store: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    plan = CampaignPlan(MINUTE_S, seed=17, lease_s=LEASE_S)
    with open_target(store, tmp_path_factory) as target:
        result = Campaign(plan, target, tmp_path_factory.mktemp("journals")).run()
    verdict = result.verdict
    assert [(each.law, each.named) for each in verdict.broken] == []
    assert (verdict.verdict, verdict.reasons) == ("green", [])
    assert (verdict.lost, verdict.lost_by_failover) == (0, 0)
    assert len(verdict.faults) >= (5 if store == "sqlite" else 8)
    assert verdict.refused_zombie_writes > 0


def test_a_server_that_is_away_for_a_moment_by_itself_is_noted_as_a_stall(
    private_postgres: StartPostgres, tmp_path: Path
) -> None:
    server = private_postgres()
    plan = CampaignPlan(600.0, seed=1, workers=1, lease_s=LEASE_S / 3, interval_s=6_000.0)
    with GivenServer(server.url) as target, ThreadPoolExecutor(1) as pool:
        campaign = Campaign(plan, target, tmp_path)
        running = pool.submit(campaign.run)
        try:
            wait_until(lambda: campaign.phase == "faults" or running.done())
            server.stop("immediate")
            stopped_at = now()
            wait_until(lambda: campaign.samples[-1].ended is None or running.done())
            server.start()
            wait_until(
                lambda: (
                    running.done()
                    or any(each.began_at < stopped_at < each.ended_at for each in campaign.history)
                )
            )
        finally:
            campaign.is_stopping.set()
        result = running.result()
    stalls = [each for each in result.history.faults if each.began_at < stopped_at < each.ended_at]
    assert {(each.kind, each.is_injected) for each in stalls} == {("stall", False)}
    assert result.away_since is None
    assert "starts-are-charged" not in {each.law for each in result.verdict.broken}
