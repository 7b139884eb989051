"""An option is in its table, and every surface has it from there."""

from __future__ import annotations

import click
import msgspec
import pytest

from holdfast.cli.jobs import start
from holdfast.client.start_options import StartOptions
from holdfast.core.registry import TYPE_OPTIONS, JobOptions, JobType
from holdfast.core.start_table import START_OPTIONS
from holdfast.web.api.chains import NewChain
from holdfast_dashboard.start_form import _OPTIONS as FORM_OPTIONS
from holdfast_django.tasks import DjangoTaskOptions, HoldfastTask

ONLY_PYTHON = {"blockers", "exclude", "id", "on_blocker_failure"}
"""What takes ids of other chains; the command line and HTTP start one chain at a time."""


def test_type_checkers_know_the_options_of_a_start() -> None:
    assert StartOptions.__optional_keys__ == START_OPTIONS.keys() | ONLY_PYTHON


def test_http_takes_every_option_of_the_table() -> None:
    fields = {each.name for each in msgspec.structs.fields(NewChain)}
    assert fields == START_OPTIONS.keys() | {"type", "input", "like", "reason"}


@pytest.mark.parametrize("name", START_OPTIONS)
def test_the_command_line_takes_every_option_of_the_table_with_its_sentence(name: str) -> None:
    (option,) = [each for each in start.params if each.name == name]
    assert isinstance(option, click.Option)
    assert option.help == START_OPTIONS[name].text


def test_the_form_has_what_has_a_label() -> None:
    assert FORM_OPTIONS.keys() == {"key", "after", "expires", "priority", "max_attempts"}


def test_type_checkers_know_the_options_of_a_type() -> None:
    assert JobOptions.__optional_keys__ == TYPE_OPTIONS.keys()


def test_a_job_type_has_a_field_for_what_it_keeps_of_an_option() -> None:
    kept = {each.field or name for name, each in TYPE_OPTIONS.items() if each.keep is not None}
    assert kept <= set(JobType.__dataclass_fields__)


def test_tasks_of_django_have_options_of_types_and_a_key() -> None:
    assert DjangoTaskOptions.__optional_keys__ - {"key"} <= TYPE_OPTIONS.keys()
    assert DjangoTaskOptions.__optional_keys__ <= HoldfastTask.__dataclass_fields__.keys()
