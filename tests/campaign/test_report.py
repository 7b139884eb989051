"""What a campaign leaves for people: its page, its figures, its record, and what a terminal shows meanwhile."""

import json
from pathlib import Path

import pytest
from msgspec import structs
from rich.console import Console

from holdfast.core.errors import CommandUsage
from holdfast_chaos.campaign import Campaign, CampaignPlan, CampaignResult, CampaignSample
from holdfast_chaos.checker import LeftEffect, LeftJob, LeftReap, LeftRows, judge
from holdfast_chaos.journal import FaultRecord, HandlerBegan, HandlerEnded, History, StartsAcked
from holdfast_chaos.record import add_record, read_records
from holdfast_chaos.report import (
    HEIGHT,
    CampaignTimeline,
    figures_of,
    gaps_of,
    law_rows,
    notes_on,
    render_page,
    summarize,
)
from holdfast_chaos.target import SqliteTarget
from holdfast_chaos.view import CampaignView, draw_rates

PAGE_PARTS = ("starts-are-charged", "#1 kill of worker-1 at 0:03", "Not made: cut", "<circle")


def make_result(store: str = "SQLite", seed: int = 7, lost: bool = False) -> CampaignResult:
    history = History(
        acked=[StartsAcked(101.0, {"a": 1})],
        began=[
            HandlerBegan(102.0, "worker-1", "a", "chaos.effect", 1, 1, 102_000_000),
            HandlerBegan(106.0, "worker-2", "a", "chaos.effect", 2, 2, 106_000_000),
        ],
        ended=[HandlerEnded(106.1, "worker-2", "a", 2)],
        faults=[
            FaultRecord(1, "kill", 103.0, 103.0, "worker-1", is_death=True),
            FaultRecord(2, "write_lock", 104.0, 105.0, is_outage=True),
        ],
    )
    left = LeftRows(
        [LeftJob("a", "a", 0, "chaos.effect", "completed", 2)],
        [LeftEffect("a", 2)],
        [LeftReap("a", 1, 105_000_000)],
    )
    return CampaignResult(
        plan=CampaignPlan(10.0, seed),
        store=store,
        version="1.2.3",
        date="2026-01-02",
        verdict=judge(history, LeftRows() if lost else left, 2.0),
        skipped={"cut": "SQLite has <no> server"},
        history=history,
        samples=[],
        began_at=100.0,
        faults_ended_at=110.0,
        ended_at=112.0,
    )


def make_users_result(*states: str) -> CampaignResult:
    """A campaign with a user's application, each of whose jobs ended in one of the states."""
    result = make_result()
    jobs = [
        LeftJob(str(number), str(number), 0, "order.charge", state, number)
        for number, state in enumerate(states, 1)
    ]
    result.history.began[:] = [
        HandlerBegan(102.0, "worker-1", each.id, each.type, 1, each.fence, 102_000_000)
        for each in jobs
    ]
    result.history.acked[:] = [StartsAcked(101.0, {each.id: 0 for each in jobs})]
    left = LeftRows(jobs, reaps=[LeftReap("3", 3, 105_000_000)])
    plan = CampaignPlan(10.0, 7, app="shop:app", unstarted=("mail.send", "order.charge"))
    verdict = judge(result.history, left, 2.0, is_own=False)
    return structs.replace(result, plan=plan, verdict=verdict)


@pytest.mark.parametrize(
    ("states", "said"),
    [
        (("completed",), ""),
        (("failed",), "; 1 job failed by its own handler"),
        (("failed", "failed"), "; 2 jobs failed by their own handlers"),
        (("failed", "completed", "failed"), "; 2 jobs failed, 1 of them by their own handlers"),
    ],
)
def test_the_verdict_names_the_jobs_that_failed(states: tuple[str, ...], said: str) -> None:
    result = make_users_result(*states)
    assert summarize(result) == "green, with seed 7 on SQLite" + said
    page = render_page(result)
    assert f"<p>Green, with seed 7 on SQLite{said}.</p>" in page
    assert (f"<span>order.charge {states.count('failed')}</span>" in page) == bool(said)
    assert dict(figures_of(result))["failed jobs"] == str(states.count("failed"))


def test_what_was_not_started_and_not_judged_is_named_and_not_marked_as_kept() -> None:
    result = make_users_result("completed")
    marks = {each["name"]: each["mark"] for each in law_rows(result)}
    not_judged = ("one-effect", "events-arrive", "events-once", "events-in-order")
    assert marks == dict.fromkeys(marks, "✓") | dict.fromkeys(not_judged, "–")
    figures = dict(figures_of(result))
    assert {figures[each] for each in figures if "events" in each or "consumers" in each} == {"–"}
    # What ran as a continuation has been tried, too.
    assert result.to_json()["not_started"] == ["mail.send"]
    assert list(notes_on(result)) == ["not started: mail.send; give --input TYPE=JSON for each"]
    assert list(gaps_of(result)) == [
        "one-effect, because only our own job types write effects down",
        "events-arrive, events-once, events-in-order, because no events were published",
    ]
    page = render_page(result)
    assert '<td class="">–</td><td>one-effect</td>' in page
    assert "<p>Not started: mail.send; give --input TYPE=JSON for each.</p>" in page
    assert "<p>Not judged: one-effect, because" in page


def test_a_stall_has_no_number(tmp_path: Path) -> None:
    result = make_result()
    stall = FaultRecord(-1, "stall", 103.0, 104.0, is_injected=False)
    result.history.faults.append(stall)
    page = render_page(result)
    assert "<title>stall of the database at 0:03" in page
    assert "#-1" not in page
    campaign = Campaign(CampaignPlan(10.0, 7), SqliteTarget(tmp_path / "c.db"), tmp_path)
    campaign.history.append(stall)
    console = Console(width=100, record=True, file=(tmp_path / "drawn").open("w"))
    console.print(CampaignView(campaign))
    console.file.close()
    assert "\nstall database 1.0 s" in console.export_text()


def test_the_page_has_the_timeline_the_laws_and_no_script() -> None:
    page = render_page(make_result())
    assert all(each in page for each in PAGE_PARTS)
    assert "SQLite has &lt;no&gt; server" in page
    assert "<script" not in page
    assert "http://" not in page
    assert "https://" not in page


def test_the_page_names_what_broke_a_law() -> None:
    page = render_page(make_result(lost=True))
    assert "chain a was acknowledged and does not exist" in page
    assert 'class="verdict red"' in page


def test_figures_and_laws_are_those_of_the_verdict() -> None:
    result = make_result()
    figures = dict(figures_of(result))
    assert figures["started twice"] == "1, 1 explained"
    assert figures["faults"] == "2"
    assert figures["recovery p50"] == "1.00 s"
    assert figures["restart p50"] == "2.00 s"
    assert [each["count"] for each in law_rows(result)] == [0] * 11
    assert {each["name"]: each["count"] for each in law_rows(make_result(lost=True))} == {
        **dict.fromkeys((each["name"] for each in law_rows(result)), 0),
        "acknowledged-ends": 1,
    }


def test_json_has_the_figures_that_scripts_read() -> None:
    found = make_result().to_json()
    assert json.loads(json.dumps(found))["plan"]["workers"] == 3
    assert list(found)[:22] == [
        *("jobs", "failed", "failed_by_handlers", "faults"),
        *("lost", "lost_by_failover", "duplicates", "duplicates_explained"),
        *("fencing_violations", "refused_zombie_writes", "events", "events_lost"),
        *("events_lost_by_failover", "events_twice", "events_out_of_order", "refused_lines"),
        *("recovery_p50_s", "recovery_p99_s"),
        *("restart_p50_s", "restart_p99_s", "free_restart_p99_s", "verdict"),
    ]


def test_a_record_takes_the_place_of_the_last_one_on_the_same_database(tmp_path: Path) -> None:
    file = tmp_path / "campaigns.json"
    assert read_records(file) == []
    for store, seed in (("SQLite", 1), ("PostgreSQL 18", 2), ("SQLite", 3)):
        add_record(file, make_result(store, seed))
    assert [(each["store"], each["seed"]) for each in read_records(file)] == [
        ("PostgreSQL 18", 2),
        ("SQLite", 3),
    ]


@pytest.mark.parametrize("text", ["import os", "", "{}", "[1]", '[{"seed": 1}]', "\udcff"])
def test_a_file_that_holds_no_campaigns_is_refused_and_left_alone(
    tmp_path: Path, text: str
) -> None:
    file = tmp_path / "shop.py"
    file.write_text(text, errors="surrogateescape")
    with pytest.raises(CommandUsage, match=r"shop\.py is no file of campaigns"):
        add_record(file, make_result())
    assert file.read_text(errors="surrogateescape") == text


def test_the_terminal_shows_phase_rates_and_faults(tmp_path: Path) -> None:
    campaign = Campaign(CampaignPlan(10.0, 7), SqliteTarget(tmp_path / "c.db"), tmp_path)
    campaign.phase = "faults"
    campaign.history.append(FaultRecord(1, "kill", 3.0, 3.5, "worker-1"))
    campaign.samples += [
        CampaignSample(1.0, 0, 5, 0, 3),
        CampaignSample(2.0, 50, 7, 30, 4),
        CampaignSample(3.0, None, None, None, None),
    ]
    console = Console(width=100, record=True, file=(tmp_path / "drawn").open("w"))
    console.print(CampaignView(campaign))
    console.file.close()
    drawn = console.export_text()
    assert "seed 7  faults  0/10 s" in drawn
    assert "50 ended, 7 open" in drawn
    assert "events  30 taken, 4 behind" in drawn
    assert "#1 kill worker-1 0.5 s" in drawn


@pytest.mark.parametrize(("rates", "drawn"), [([], ""), ([0.0, 5.0, 10.0], " ▄█")])
def test_rates_are_drawn_beside_the_highest(rates: list[float], drawn: str) -> None:
    assert draw_rates(rates) == drawn


def test_starts_of_a_users_types_are_drawn_though_their_chains_have_no_known_length() -> None:
    result = make_result()
    result.history.acked[:] = [StartsAcked(result.began_at + 0.5, {"a": 0, "b": 0})]
    line = CampaignTimeline(result).throughput()["acked"]
    assert any(float(point.split(",")[1]) < HEIGHT for point in line.split())
