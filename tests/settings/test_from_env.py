"""Options of job types and cycles from environment variables: read, checked under the variable's name, shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Holdfast, Job, Lease, from_env
from holdfast.core.errors import ConfigError, InvalidOption
from holdfast.core.partitions import BatchRule
from holdfast.core.schedule import Cron, Interval
from holdfast.settings import effective_options, read_settings, unknown_variables

Seen = Callable[[Holdfast], object]


@pytest.fixture
def app() -> Holdfast:
    """An application of nothing yet."""
    return Holdfast("sqlite:///unused.db")


def register_job(app: Holdfast, **options: Any) -> None:
    @app.job("pdf", **options)
    async def pdf(job: Job[Any]) -> None: ...


def register_cycle(app: Holdfast, **options: Any) -> None:
    @app.cycle("reminders", **options)
    async def reminders(run: Any) -> None: ...


JOB_OPTIONS: list[tuple[str, Any, str, Any, str, str]] = [
    ("concurrency", 2, "7", 7, "0", "a whole number from 1"),
    ("concurrency", 2, "0000000007", 7, "00000000199999999999", "a whole number from 1"),
    ("batch", 2, " 3 ", 3, "-1", "a whole number from 1"),
    ("timeout_ms", "30s", "2m", 120_000, "0s", "a duration with a unit"),
    ("lease", "60s", "90s", Lease("90s"), "1ms", "a duration with a unit"),
]


@pytest.mark.parametrize(("field", "default", "text", "value", "wrong", "expected"), JOB_OPTIONS)
def test_a_job_types_option_comes_from_a_variable(
    app: Holdfast,
    monkeypatch: pytest.MonkeyPatch,
    field: str,
    default: Any,
    text: str,
    value: Any,
    wrong: str,
    expected: str,
) -> None:
    option = field.removesuffix("_ms")
    monkeypatch.setenv("PDF_OPTION", text)
    register_job(app, **{option: from_env("PDF_OPTION", default)})
    assert getattr(app.registry.get("pdf"), field) == value
    monkeypatch.setenv("PDF_OPTION", wrong)
    with pytest.raises(ConfigError) as caught:
        register_job(Holdfast("sqlite:///unused.db"), **{option: from_env("PDF_OPTION", default)})
    said = caught.value.render()
    assert f"error[HF010]: PDF_OPTION cannot be used as {option} of job type pdf" in said
    assert f"PDF_OPTION={wrong!r} (env)" in said
    assert f"help: set PDF_OPTION to {expected}" in said
    assert f"or unset it for {default!r}" in said


def test_the_wait_for_a_batch_comes_from_a_variable(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PDF_WAIT", "20s")
    register_job(app, batch=10, batch_wait=from_env("PDF_WAIT", "5s"))
    flow = app.registry.get("pdf").flow
    assert flow is not None
    assert flow.batch == BatchRule(10, 20_000)


CYCLE_OPTIONS: list[tuple[str, Any, str, Seen, object, str]] = [
    ("cron", "0 9 * * mon-fri", "0 8 * * sat", lambda app: schedule(app).expression, "0 8 * * sat", "0 9 * *"),
    ("tz", "UTC", "America/Santiago", lambda app: schedule(app).zone.key, "America/Santiago", "Chile"),
    ("missed", "last", "all(3)", lambda app: str(spec(app).missed), "all(3)", "some"),
    ("jitter", "0s", "5s", lambda app: spec(app).jitter_ms, 5_000, "5"),
    ("timeout", "30s", "1m", lambda app: spec(app).timeout_ms, 60_000, "soon"),
    ("attempts", 3, "5", lambda app: spec(app).attempts, 5, "1.5"),
]  # fmt: skip


def spec(app: Holdfast) -> Any:
    return app.cycle_specs["reminders"]


def schedule(app: Holdfast) -> Cron:
    found: Cron = spec(app).schedule
    return found


@pytest.mark.parametrize(("option", "default", "text", "look", "value", "wrong"), CYCLE_OPTIONS)
def test_a_cycles_option_comes_from_a_variable(
    app: Holdfast,
    monkeypatch: pytest.MonkeyPatch,
    option: str,
    default: Any,
    text: str,
    look: Seen,
    value: object,
    wrong: str,
) -> None:
    def options() -> dict[str, Any]:
        return {"cron": "0 9 * * *"} | {option: from_env("REMINDERS_OPTION", default)}

    monkeypatch.setenv("REMINDERS_OPTION", text)
    register_cycle(app, **options())
    assert look(app) == value
    monkeypatch.setenv("REMINDERS_OPTION", wrong)
    with pytest.raises(ConfigError, match="REMINDERS_OPTION") as caught:
        register_cycle(Holdfast("sqlite:///unused.db"), **options())
    assert caught.value.message == f"REMINDERS_OPTION cannot be used as {option} of cycle reminders"
    assert f"REMINDERS_OPTION={wrong!r} (env)" in caught.value.details
    assert "set REMINDERS_OPTION to " in caught.value.help


@pytest.mark.parametrize(
    ("unit", "number"), [("MS", "7200000"), ("SECONDS", "7200"), ("MINUTES", "120"), ("HOURS", "2")]
)
def test_an_interval_comes_from_a_variable_with_a_unit_or_a_name_that_says_it(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch, unit: str, number: str
) -> None:
    monkeypatch.setenv(f"SWEEP_EVERY_{unit}", number)
    register_cycle(app, every=from_env(f"SWEEP_EVERY_{unit}", "5m"))
    assert spec(app).schedule == Interval("2h")
    monkeypatch.setenv("SWEEP_EVERY", "90000")
    with pytest.raises(ConfigError, match="a duration of at least 1s, such as 5m"):
        register_cycle(Holdfast("sqlite:///x.db"), every=from_env("SWEEP_EVERY", "5m"))


@pytest.mark.parametrize("text", [None, "", "  "])
def test_an_unset_or_empty_variable_leaves_the_default(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    monkeypatch.delenv("PDF_RENDER_CONCURRENCY", raising=False)
    if text is not None:
        monkeypatch.setenv("PDF_RENDER_CONCURRENCY", text)
    register_job(app, concurrency=from_env("PDF_RENDER_CONCURRENCY", 2))
    assert app.registry.get("pdf").concurrency == 2
    register_cycle(app, cron="0 9 * * *", tz=from_env("REMINDERS_ZONE", None))
    assert schedule(app).zone.key == "UTC"


def test_a_default_is_checked_like_any_option(app: Holdfast) -> None:
    with pytest.raises(InvalidOption, match="concurrency=0 is too small"):
        register_job(app, concurrency=from_env("PDF_RENDER_CONCURRENCY", 0))


@pytest.mark.parametrize("option", ["atomic", "executor", "retry"])
def test_an_option_without_a_form_for_texts_refuses_a_variable(app: Holdfast, option: str) -> None:
    with pytest.raises(
        InvalidOption,
        match="from_env works for lease, timeout, expires, concurrency, batch, batch_wait",
    ):
        register_job(app, **{option: from_env("PDF_OPTION", True)})


@pytest.mark.parametrize("name", ["", "pdf.render", "PDF RENDER", "2PDF", "PDF=3"])
def test_a_name_that_no_environment_has_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="not the name of an environment variable"):
        from_env(name, 2)


def test_the_variables_of_an_application_are_listed_with_their_origin(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PDF_RENDER_CONCURRENCY", "4")
    register_job(app, concurrency=from_env("PDF_RENDER_CONCURRENCY", 2))
    register_cycle(app, cron=from_env("REMINDERS_CRON", "0 9 * * *"))
    found = effective_options([*app.registry, *app.cycle_specs.values()])
    assert [(each.name, each.value, each.origin) for each in found] == [
        ("PDF_RENDER_CONCURRENCY", "4", "env: concurrency of pdf"),
        ("REMINDERS_CRON", "0 9 * * *", "default: cron of reminders"),
    ]


def test_a_used_name_with_a_prefix_of_ours_is_no_misspelling() -> None:
    environ = {"WORKER_REPORTS_CRON": "0 9 * * *", "WORKER_REPORTS_CRAN": "0 9 * * *"}
    from_env("WORKER_REPORTS_CRON", "@daily")
    (found,) = unknown_variables(read_settings(environ))
    assert "WORKER_REPORTS_CRAN" in found.message
