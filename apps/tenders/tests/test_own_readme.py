"""The application's README names what exists, and every variable has its effect."""

import json
import re
from pathlib import Path

import pytest
from apps.tenders.tests.conftest import SOURCE, run_command
from tests.docs.snippets import ROOT

from holdfast.errors import ConfigError
from tenders.settings import read_settings

HOME = Path(__file__).parents[1]
README = (HOME / "README.md").read_text(encoding="utf-8")
SCHEDULES = {
    "WORKER_INTERVAL_MINUTES": "3",
    "DISPATCH_INTERVAL_MINUTES": "2",
    "RECEIPT_INTERVAL_MINUTES": "4",
    "CLEANUP_CRON": "18 3 * * *",
    "ARCHIVE_EXPORT_CRON": "48 3 * * *",
    "INGEST_MAX_ITEMS": "201",
}


async def test_the_cycles_take_their_schedules_from_the_seeds_variables(
    sqlite_url: str, tmp_path: Path
) -> None:
    command = ("holdfast", "config", "show", "tenders.worker:jobs", "--origin", "-o", "json")
    code, out, err = await run_command(tmp_path, sqlite_url, *command, **SCHEDULES)
    assert code == 0, err
    shown = {each["name"]: each for each in json.loads(out)}
    for name, value in SCHEDULES.items():
        assert str(shown[name]["value"]) == value
        assert shown[name]["origin"].startswith("env")


async def test_the_cycles_have_the_seeds_schedules_unless_told_otherwise(
    sqlite_url: str, tmp_path: Path
) -> None:
    (tmp_path / "look.py").write_text(
        "from tenders.worker import jobs\n"
        "for name, spec in sorted(jobs.cycle_specs.items()):\n"
        "    print(name, spec.schedule, spec.singleton, sep='|')\n"
    )
    code, out, err = await run_command(tmp_path, sqlite_url, "look")
    assert code == 0, err
    shown = {line.split("|")[0]: line for line in out.splitlines()}
    assert set(shown) == {"archiveExport", "cleanup", "dispatch", "ingest", "receipt"}
    for name, has in {
        "ingest": ("120000", "True"),
        "dispatch": ("60000", "True"),
        "receipt": ("60000", "False"),
        "cleanup": ("17 3 * * *", "America/Santiago", "True"),
        "archiveExport": ("47 3 * * *", "America/Santiago", "True"),
    }.items():
        assert [each for each in has if each not in shown[name]] == [], shown[name]


@pytest.mark.parametrize(
    ("name", "value", "attribute", "expected"),
    [
        ("TENDERS_PAGES", "3", "pages", 3),
        ("TENDERS_SOURCE_TIMEOUT", "2s", "source_timeout_s", 2.0),
        ("EXPO_TIMEOUT", "3s", "push_timeout_s", 3.0),
        ("HOT_MONTHS", "6", "hot_months", 6),
        ("DELIVERY_RETENTION_DAYS", "30", "retention_days", 30),
        ("EXPO_URL", "http://127.0.0.1:9", "expo_url", "http://127.0.0.1:9"),
    ],
)
def test_a_variable_becomes_a_setting(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, attribute: str, expected: object
) -> None:
    monkeypatch.setenv(name, value)
    assert getattr(read_settings(), attribute) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TENDERS_PAGES", "none"),
        ("TENDERS_PAGES", "0"),
        ("HOT_MONTHS", "-1"),
        ("ARCHIVE_KEEP", "soon"),
        ("PUSH_LEASE", "60"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_with_its_name(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=name):
        read_settings()


def test_every_variable_of_the_application_is_in_the_readme() -> None:
    text = "".join(each.read_text(encoding="utf-8") for each in SOURCE.rglob("*.py"))
    read = set(re.findall(r'(?:_text|_number|_span|from_env)\(\s*"([A-Z_]+)"', text))
    assert len(read) > 15
    assert {name for name in read if f"`{name}`" not in README} == set()


async def test_the_command_that_runs_it_all_has_the_options_shown(tmp_path: Path) -> None:
    shown = re.findall(r'^make tenders ARGS="(.*)"', README, re.MULTILINE)
    code, options, _ = await run_command(
        tmp_path, "sqlite:///unused.db", "apps.tenders.local", "--help"
    )
    assert code == 0
    assert len(shown) == 2
    assert [each for each in " ".join(shown).split() if each not in options] == []
    assert "\ntenders: " in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_every_link_leads_somewhere() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert len(links) > 10
    assert [each for each in links if not (HOME / each).exists()] == []


def test_what_a_pattern_names_is_where_it_says() -> None:
    rows = re.findall(r"`(\w+)`(?: and `(\w+)`)? in \[\w+\.py\]\(([\w/.]+)\)", README)
    assert len(rows) > 7
    for *names, file in rows:
        text = (HOME / file).read_text(encoding="utf-8")
        found = [each for each in names if f"def {each}(" in text or f"class {each}(" in text]
        found += [each for each in names if f"class {each}:" in text]
        assert [each for each in names if each and each not in found] == []
