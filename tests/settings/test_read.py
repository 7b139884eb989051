"""Reading settings: which source wins, what is refused, and what is only pointed out."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.core.errors import ConfigError
from holdfast.settings import GROUPS, SettingsFile, load_settings, read_settings, variables_of
from holdfast.settings.load import PREFIXES

OWN = SettingsFile("holdfast.toml", "[outbox]\nbatch_size = 20\n")


def _refused(environ: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as caught:
        read_settings(environ)
    return caught.value.render()


def test_arguments_win_over_the_environment_over_the_file_over_the_default() -> None:
    environ = {"OUTBOX_BATCH_SIZE": "30"}
    cases = [
        (read_settings({}), None, "default"),
        (read_settings({}, OWN), 20, "holdfast.toml"),
        (read_settings(environ, OWN), 30, "env"),
        (read_settings(environ, OWN, {"OUTBOX_BATCH_SIZE": 40}), 40, "argument"),
        (read_settings(environ, OWN, {"OUTBOX_BATCH_SIZE": None}), 30, "env"),
    ]
    for settings, value, origin in cases:
        assert (settings.outbox.batch_size, settings.origin("OUTBOX_BATCH_SIZE")) == (value, origin)


def test_an_empty_variable_counts_as_unset() -> None:
    assert read_settings({"OUTBOX_BATCH_SIZE": " "}).origin("OUTBOX_BATCH_SIZE") == "default"


@pytest.mark.parametrize(
    "text",
    [
        'url = "sqlite:///a.db"\nOUTBOX_BATCH_SIZE = 7',
        'holdfast_url = "sqlite:///a.db"\noutbox-batch-size = "7"',
        '[holdfast]\nurl = "sqlite:///a.db"\n[outbox.batch]\nsize = 7',
    ],
)
def test_a_file_may_write_names_flat_or_nested_and_leave_our_prefix_out(text: str) -> None:
    settings = read_settings({}, SettingsFile("holdfast.toml", text))
    assert settings.holdfast.url == "sqlite:///a.db"
    assert settings.outbox.batch_size == 7
    assert settings.warnings == ()


def test_only_our_table_of_pyproject_counts() -> None:
    text = '[project]\nname = "x"\n[tool.holdfast.worker.tick]\nrunners = ["outbox", "billing"]\n'
    settings = read_settings({}, SettingsFile("pyproject.toml", text))
    assert settings.worker.tick_runners == ("outbox", "billing")
    assert settings.origin("WORKER_TICK_RUNNERS") == "pyproject.toml"


def test_a_broken_file_is_refused_with_its_name_and_line() -> None:
    with pytest.raises(ConfigError, match=r"holdfast\.toml is not valid TOML.*line 1"):
        read_settings({}, SettingsFile("holdfast.toml", "url = ,"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OUTBOX_BATCH_SIZE", "many"),
        ("OUTBOX_BATCH_SIZE", "0"),
        ("OUTBOX_BATCH_SIZE", "1e3"),
        ("OUTBOX_BATCH_SIZE", "-5"),
        ("OUTBOX_BATCH_SIZE", "9" * 400),
        ("OUTBOX_BATCH_SIZE", "\x00"),
        ("OUTBOX_BATCH_SIZE", "٣"),
        ("OUTBOX_WORKER_ENABLED", "maybe"),
        ("WORKER_TICK_RUNNERS", "outbox,outbox"),
        ("WORKER_API_BASE_URL", "localhost:3000"),
        ("WORKER_API_BASE_URL", "ftp://host/"),
        ("WORKER_TIME_ZONE", "Mars/Olympus"),
        ("HOLDFAST_SYNCHRONOUS", "off"),
        ("HOLDFAST_DEAD_LETTER_DAYS", "0"),
        ("HOLDFAST_TRACE_URL", "https://traces.example/"),
        ("HOLDFAST_TRACE_URL", "traces.example/{trace_id}"),
        ("HOLDFAST_TRACE_URL", "https://traces.example/{trace_id.__class__}"),
        ("HOLDFAST_TRACE_URL", "https://traces.example/{trace_id}/{job}"),
        ("HOLDFAST_TRACE_URL", "https://traces.example/{trace_id"),
    ],
)
def test_garbage_is_refused_with_its_name_origin_and_fix(name: str, value: str) -> None:
    text = _refused({name: value})
    assert text.startswith(f"error[HF010]: {name} is invalid\n  {name}=")
    assert "(env)" in text
    assert f"help: set {name} to " in text or f"help: {name}: " in text


def test_all_unusable_values_are_told_at_once() -> None:
    text = _refused({"OUTBOX_BATCH_SIZE": "x", "OUTBOX_CONCURRENCY": "y"})
    assert "2 settings are invalid" in text
    assert "OUTBOX_BATCH_SIZE=x (env)" in text
    assert "OUTBOX_CONCURRENCY=y (env)" in text


def test_a_duration_where_milliseconds_belong_is_translated() -> None:
    assert "write it in milliseconds: 90000" in _refused({"OUTBOX_LEASE_DURATION_MS": "1m30s"})


def test_a_secret_that_cannot_be_used_is_not_shown() -> None:
    assert "hunter2" not in _refused({"WORKER_API_SERVICE_TOKEN": "hunter2\nx"})


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("OUTBOX_BATCHSIZE", "OUTBOX_BATCH_SIZE"),
        ("WORKER_TICK_RUNNER", "WORKER_TICK_RUNNERS"),
        ("HOLDFAST_SLOT", "HOLDFAST_SLOTS"),
        ("HOLDFAST_LEASE_MS", "OUTBOX_LEASE_DURATION_MS"),
    ],
)
def test_an_unknown_variable_of_ours_is_pointed_out_with_the_nearest_name(
    name: str, near: str
) -> None:
    (warning,) = read_settings({name: "1"}).warnings
    assert warning.message == f"{name} (env) is not a setting"
    assert warning.help == f"did you mean {near}?"


def test_an_unknown_name_in_the_file_is_pointed_out() -> None:
    settings = read_settings({}, SettingsFile("holdfast.toml", "batchsize = 3\nfoo.bar = 1"))
    assert [each.message.split()[0] for each in settings.warnings] == ["BATCHSIZE", "FOO_BAR"]


def test_variables_of_others_are_none_of_our_business() -> None:
    foreign = {"PATH": "/bin", "POSTGRES_WORKER_X": "1", "HOLDFAST_TEST_URL": "x"}
    # Every scheduler and backup tool has a variable of such a name, with words of its own.
    foreign |= {"CLEANUP_CRON": "@daily", "ARCHIVE_BUCKET": "b", "PDF_RENDER_CONCURRENCY": "many"}
    assert read_settings(foreign).warnings == ()


def test_every_setting_is_recognised_as_ours_by_its_name() -> None:
    assert all(
        each.name.startswith(PREFIXES) for group in GROUPS.values() for each in variables_of(group)
    )


def test_an_unknown_argument_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ConfigError, match="unknown setting OUTBOX_BATCHSIZE"):
        read_settings({}, None, {"OUTBOX_BATCHSIZE": 3})


def test_the_process_reads_the_file_of_its_directory(tmp_path: Path) -> None:
    assert load_settings(environ={}, directory=tmp_path).outbox.batch_size is None
    (tmp_path / "pyproject.toml").write_text("[tool.holdfast.outbox]\nbatch_size = 6\n")
    assert load_settings(environ={}, directory=tmp_path).outbox.batch_size == 6
    (tmp_path / OWN.name).write_text(OWN.text)
    assert load_settings(environ={}, directory=tmp_path).outbox.batch_size == 20


def test_another_file_may_be_named_and_must_then_exist(tmp_path: Path) -> None:
    path = tmp_path / "other.toml"
    with pytest.raises(ConfigError, match="there is no file"):
        load_settings(environ={"HOLDFAST_CONFIG": str(path)}, directory=tmp_path)
    path.write_text("[outbox]\nbatch_size = 8\n")
    settings = load_settings(environ={"HOLDFAST_CONFIG": str(path)}, directory=tmp_path)
    assert settings.outbox.batch_size == 8
    assert settings.origin("OUTBOX_BATCH_SIZE") == "other.toml"
    assert (
        load_settings(environ={"HOLDFAST_CONFIG": " "}, directory=tmp_path).outbox.batch_size
        is None
    )


def test_settings_of_a_project_are_a_table() -> None:
    with pytest.raises(ConfigError, match="not a table"):
        read_settings({}, SettingsFile("pyproject.toml", '[tool]\nholdfast = "sqlite:///jobs.db"'))


def test_a_file_cannot_name_the_file_to_read() -> None:
    with pytest.raises(ConfigError, match="cannot name the file") as caught:
        read_settings({}, SettingsFile("holdfast.toml", 'config = "other.toml"'))
    assert "HOLDFAST_CONFIG in the environment" in caught.value.help
