"""Dashboard and alerts speak only of metrics that exist, and every metric is looked at somewhere."""

import json
import re
from importlib.resources import files

import pytest

from holdfast.observe.metrics import METRICS

FILES = files("holdfast.observe.grafana")
SUFFIXES = ("_bucket", "_count", "_sum")


def known() -> set[str]:
    return {each.prometheus for each in METRICS}


def named(text: str) -> set[str]:
    found = set(re.findall(r"\bholdfast_[a-z_]+", text))
    for suffix in SUFFIXES:
        found = {name.removesuffix(suffix) for name in found}
    return found


@pytest.mark.parametrize("file", ["dashboard.json", "alerts.yml"])
def test_a_file_names_only_metrics_that_exist(file: str) -> None:
    used = named((FILES / file).read_text())
    assert used
    assert used <= known()


def test_every_metric_has_a_panel_or_an_alert() -> None:
    used = named((FILES / "dashboard.json").read_text()) | named((FILES / "alerts.yml").read_text())
    assert used == known()


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    panels = json.loads((FILES / "dashboard.json").read_text())["panels"]
    assert len({each["id"] for each in panels}) == len(panels)
    places = [(each["gridPos"]["x"], each["gridPos"]["y"]) for each in panels]
    assert len(set(places)) == len(places)


def test_that_nobody_reaps_is_told_when_no_series_are_left() -> None:
    """Without series a comparison has no result and no alert; each side needs a zero of its own."""
    rules = (FILES / "alerts.yml").read_text()
    _, _, rule = rules.partition("alert: HoldfastNobodyReaps")
    expression, _, _ = rule.partition("for: 5m")
    sides = expression.partition("expr:")[2].split("\n          and ")
    assert len(sides) == 2
    for side in sides:
        assert re.search(r"\((max|sum)\(.*\) or vector\(0\)\) == 0", side)
