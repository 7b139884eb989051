"""Pictures say what the data says, and every text in them is escaped."""

from typing import Any
from xml.etree import ElementTree

import pytest

from holdfast_dashboard.chains import draw_graph, draw_timeline, lay_out_graph, timeline_rows
from holdfast_dashboard.drawing import (
    Bar,
    Point,
    draw_bars,
    draw_curve,
    round_up,
    round_up_span,
    step_bars,
    time_breakdown,
)

CREATED = "2026-01-31T12:00:00.000000Z"
STARTED = "2026-01-31T12:00:06.000000Z"
FINISHED = "2026-01-31T12:00:10.000000Z"
NOW = 1769860860000000


def job(id: str, type: str = "mail.send", state: str = "completed", **more: Any) -> dict[str, Any]:
    """A job as the service shows it."""
    times = {"created_at": CREATED, "started_at": STARTED, "finished_at": FINISHED}
    return {"id": id, "type": type, "state": state, "attempt": 1, "waits_for": [], **times, **more}


def chain(id: str, *jobs: dict[str, Any]) -> dict[str, Any]:
    """A chain as the service shows it."""
    return {"id": id, "type": jobs[0]["type"], "jobs": list(jobs)}


def edge(below: dict[str, Any] | None, id: str = "c", open: bool = False) -> dict[str, Any]:
    """What a job waits for."""
    state = below["jobs"][-1]["state"] if below else None
    return {"chain_id": id, "open": open, "state": state, "chain": below}


def test_a_chain_runs_to_the_right() -> None:
    graph = lay_out_graph(chain("a", job("1"), job("2"), job("3")))
    assert [(each.column, each.row) for each in graph.nodes] == [(0, 0), (1, 0), (2, 0)]
    assert [(each.source.job_id, each.target.job_id) for each in graph.edges] == [
        ("1", "2"),
        ("2", "3"),
    ]


def test_what_a_job_waits_for_stands_before_it() -> None:
    below = chain("b", job("b1"), job("b2", state="running"))
    graph = lay_out_graph(
        chain("a", job("a1", state="blocked", waits_for=[edge(below, open=True)]))
    )
    columns = {each.job_id: each.column for each in graph.nodes}
    assert columns == {"b1": 0, "b2": 1, "a1": 2}
    assert [each.waits for each in graph.edges] == [False, True]


def test_siblings_of_one_type_are_drawn_as_one() -> None:
    pages = [edge(chain(f"p{n}", job(f"p{n}", "report.page")), f"p{n}") for n in range(5)]
    graph = lay_out_graph(chain("a", job("a1", waits_for=[*pages, edge(None, "gone-chain")])))
    assert [each.title for each in graph.nodes] == [
        "5 × report.page",
        "chain …ne-chain",
        "mail.send",
    ]


def test_many_blockers_that_the_tree_left_out_are_drawn_as_one() -> None:
    left_out = [edge(None, f"chain-{number:03d}") for number in range(101)]
    graph = lay_out_graph(chain("a", job("a1", waits_for=left_out)))
    assert [each.title for each in graph.nodes] == ["101 × other chain", "mail.send"]


def test_charts_say_in_which_zone_their_times_are() -> None:
    assert "<span>08:38 UTC</span>" in draw_bars((Bar("08:38", 1, 0), Bar("08:39", 1, 0)))


def test_the_job_that_the_chain_has_come_to_is_marked() -> None:
    below = chain("b", job("b1"), job("b2"))
    graph = lay_out_graph(chain("a", job("a1"), job("a2", waits_for=[edge(below, open=True)])))
    assert graph.current is not None
    assert graph.current.job_id == "a2"
    drawn = str(draw_graph(graph, str))
    assert drawn.count("node current") == 1
    assert lay_out_graph({"jobs": []}).current is None


def test_hostile_names_are_escaped_in_graphs_and_time_lines() -> None:
    tree = chain("a", job("1", type='<script>"&'), job("2"))
    for drawn in (
        draw_graph(lay_out_graph(tree), lambda path: f"/x{path}"),
        draw_timeline(timeline_rows(tree, NOW), lambda path: path),
    ):
        assert "<script>" not in drawn
        assert ElementTree.fromstring(str(drawn)) is not None


def test_charts_scale_to_their_largest_value() -> None:
    drawn = str(draw_bars((Bar("12:00", 10, 0), Bar("12:01", 0, 5), Bar("12:02", 0, 0))))
    assert "12:01 UTC: 0 completed, 5 failed" in drawn
    assert 'height="125"' in drawn
    assert 'height="62.5"' in drawn


def test_a_curve_has_gaps_where_nothing_was_measured() -> None:
    points = (Point("a", 1_000), Point("b", None), Point("c", 2_000), Point("d", 2_500))
    assert str(draw_curve(points)).count('class="curve"') == 2
    assert "nothing measured" in str(draw_curve((Point("a", None),)))


@pytest.mark.parametrize("value", [0, 1, 9, 10, 13, 99, 100, 101, 999, 12_345, 10**9])
def test_the_top_of_a_chart_is_round_and_above_its_values(value: int) -> None:
    assert value <= round_up(value) <= max(3, value * 2)
    assert round_up_span(value) >= value


def test_a_life_is_divided_into_waiting_and_running() -> None:
    life = time_breakdown(job("1"), [], NOW)
    assert [(each.kind, each.span) for each in life.shares] == [
        ("waited", "6 s"),
        ("running", "4 s"),
    ]
    blocked = time_breakdown(job("1", state="blocked", started_at=None, finished_at=None), [], NOW)
    assert [each.kind for each in blocked.shares] == ["blocked"]


def test_the_steps_of_a_function_are_bars_after_one_another_up_to_now() -> None:
    done = {"step": "<charge>", "kind": "step", "state": "done"}
    times = {"started_at": CREATED, "finished_at": STARTED}
    wait = {"step": "wait:approved", "kind": "wait", "state": "open"}
    open_ = {"started_at": None, "finished_at": None}
    failed = {**done, "state": "failed", "started_at": STARTED, "finished_at": FINISHED}
    begun = NOW - 60_000_000
    bars = step_bars([done | times, wait | open_, failed], begun, NOW)
    drawn = [(ElementTree.fromstring(each), each) for each in bars]
    rects = [svg.find("rect") for svg, _ in drawn]
    assert [each.get("class") for each in rects if each is not None] == [
        "completed",
        "waited",
        "failed",
    ]
    first, second, _ = [each for each in rects if each is not None]
    assert (float(first.get("x", "")), float(first.get("width", ""))) == (0, 64)
    assert (float(second.get("x", "")), float(second.get("width", ""))) == (64, 576)
    assert "&lt;charge&gt;: 6 s, after 0 ms" in drawn[0][1]
