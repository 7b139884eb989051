"""A minute of faults on each database: `make acceptance` runs it; `make torture` an hour of it, with failovers."""

import pytest

from holdfast_chaos.campaign import Campaign, CampaignPlan
from holdfast_chaos.target import CampaignTarget, OwnServer, SqliteTarget
from tests.support.until import SLOWNESS, TEST_TIMEOUT_S

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
