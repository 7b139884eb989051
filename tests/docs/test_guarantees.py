"""Every promise names tests that exist."""

from __future__ import annotations

import re
from functools import cache

import pytest
from docs._ext.reference.campaigns import FILE, seeds

from holdfast_chaos.campaign import CampaignPlan
from holdfast_chaos.record import read_records
from tests.docs.snippets import ROOT
from tests.torture.figures import ASYNCHRONOUS, allowed_recovery_s, allowed_restart_s

_NAMED = re.compile(r"`(test_\w+)`")


def named_tests() -> list[str]:
    """The test functions that the page names."""
    return sorted(
        set(_NAMED.findall((ROOT / "docs/why/guarantees.md").read_text(encoding="utf-8")))
    )


@cache
def written_tests() -> set[str]:
    """Every test function of the project, those of the conformance classes included."""
    folders = (ROOT / "tests", ROOT / "packages/holdfast-testing/src/holdfast_testing")
    sources = [
        path.read_text(encoding="utf-8") for folder in folders for path in folder.rglob("*.py")
    ]
    return {name for source in sources for name in re.findall(r"def (test_\w+)\(", source)}


@pytest.mark.parametrize("name", named_tests())
def test_a_promise_is_tied_to_a_test(name: str) -> None:
    assert name in written_tests()


def test_the_last_campaigns_recovered_in_time() -> None:
    campaigns = [each for each in read_records(FILE) if "seeds" not in each]
    lease_s = CampaignPlan(60.0, seed=1).lease_s
    assert len(campaigns) >= 3
    late = [
        each["store"]
        for each in campaigns
        if (each["recovery_p99_s"] or 0) > allowed_recovery_s(lease_s)
        or (
            (each["free_restart_p99_s"] or 0) > allowed_restart_s(lease_s)
            and not each["store"].endswith(ASYNCHRONOUS)
        )
    ]
    assert late == []


def test_the_page_shows_the_last_seeds_and_their_faults() -> None:
    (record,) = (each for each in read_records(FILE) if "seeds" in each)
    assert record["failed"] == 0
    assert f"{record['faults']:,}, {record['fewest_faults']} or more each" in seeds()
    assert "<!-- reference: campaign-seeds -->" in (ROOT / "docs/why/guarantees.md").read_text()
