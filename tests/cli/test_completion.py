"""A shell completes the terms of a filter and the job types of the database, on both stores."""

import pytest
from click.shell_completion import ShellComplete

from holdfast.cli.main import cli
from tests.cli.scene import Scene


def completed(*words: str) -> list[str]:
    """Complete the last of these words of a command line."""
    shell = ShellComplete(cli, {}, "holdfast", "_HOLDFAST_COMPLETE")
    *before, last = words
    return [each.value for each in shell.get_completions(before, last)]


def test_keys_of_a_filter_are_completed() -> None:
    assert "state:" in completed("jobs", "list", "")
    assert completed("jobs", "list", "sta") == ["state:"]


def test_states_are_completed_one_after_the_other() -> None:
    assert completed("jobs", "list", "state:f") == ["state:failed"]
    assert completed("jobs", "cancel", "state:pending,f") == ["state:pending,failed"]
    assert "state:pending,pending" not in completed("jobs", "list", "state:pending,p")


def test_a_term_that_bash_hands_over_in_three_words_is_completed() -> None:
    assert completed("jobs", "list", "state", ":", "f") == ["failed"]
    assert "failed" in completed("jobs", "list", "state", ":")


def test_types_of_the_database_are_completed(scene: Scene) -> None:
    scene.start("mail.send")
    scene.start("pdf")
    assert completed("jobs", "list", "type:m") == ["type:mail.send"]
    assert completed("types", "pause", "") == ["mail.send", "pdf"]
    assert completed("types", "show", "p") == ["pdf"]


def test_a_database_that_cannot_be_read_completes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_URL", "sqlite:////nowhere/at/all.db")
    assert completed("types", "show", "p") == []
