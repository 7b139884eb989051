"""The table of what is covered has all that Celery offers, so that nothing is answered with a guess."""

from __future__ import annotations

import inspect
from typing import Any, get_args

import celery  # type: ignore[import-untyped]
import celery.result  # type: ignore[import-untyped]
import pytest
from celery.app import defaults  # type: ignore[import-untyped]
from celery.app.control import Control, Inspect  # type: ignore[import-untyped]
from celery.app.task import Task  # type: ignore[import-untyped]
from docs._ext.reference import filled
from docs._ext.reference.celery import SECTIONS

from holdfast_celery.coverage import FEATURES, Kind, find_feature, modern_setting
from tests.docs.snippets import ROOT


@pytest.mark.parametrize("name", sorted(defaults.SETTING_KEYS))
def test_every_setting_of_celery_is_known(name: str) -> None:
    assert find_feature("setting", name) is not None


def test_names_of_before_celery_4_are_known_by_their_new_ones() -> None:
    documented = {
        old: new
        for old, new in defaults._TO_NEW_KEY.items()
        if old.startswith(("CELERY", "BROKER")) and find_feature("setting", new) is not None
    }
    assert len(documented) > 100
    assert {old: modern_setting(old) for old in documented} == documented


def names_of(function: Any) -> set[str]:
    """The names of a function's arguments."""
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    found = inspect.signature(function).parameters.values()
    return {each.name for each in found if each.kind not in kinds} - {"self", "name"}


def test_every_argument_of_an_application_and_of_a_call_is_known() -> None:
    arguments = names_of(celery.Celery.__init__)
    assert {
        each for each in arguments if find_feature("application argument", each) is None
    } == set()
    calls = names_of(Task.apply_async)
    assert {each for each in calls if find_feature("call option", each) is None} == set()


NOT_OPTIONS = {"Request", "Strategy", "abstract", "app", "from_config", "request_stack"}
"""What tasks have and decorators do not take."""


def test_every_option_of_a_task_is_known() -> None:
    methods = (classmethod, property, type)
    options = {
        name
        for name, value in vars(Task).items()
        if not name.startswith("_") and not callable(value) and not isinstance(value, methods)
    }
    unknown = {each for each in options if find_feature("task option", each) is None}
    assert unknown - NOT_OPTIONS == set()
    assert {"rate_limit", "ignore_result", "throws"} <= options


INTERNAL = {
    "application attribute": {
        "IS_WINDOWS",
        "IS_macOS",
        "Pickler",
        "SYSTEM",
        "WorkController",
        "close",
    }
    | {"annotations", "builtin_fixups", "create_task_cls", "default_connection", "default_producer"}
    | {
        "either",
        "on_init",
        "prepare_config",
        "start",
        "subclass_with_self",
        "thread_oid",
        "type_checker",
    }
    | {"uses_utc_timezone"},
    "control attribute": {"Mailbox", "app"},
    "result attribute": {"TimeoutError"},
}
"""What Celery's classes have for themselves; `close` and `start` are methods of our own applications."""

CLASSES: dict[Kind, tuple[Any, ...]] = {
    "application attribute": (celery.Celery,),
    "control attribute": (Control, Inspect),
    "result attribute": (celery.result.AsyncResult,),
}


@pytest.mark.parametrize("kind", CLASSES)
def test_what_celery_s_classes_offer_is_known(kind: Kind) -> None:
    offered = {name for each in CLASSES[kind] for name in dir(each) if not name.startswith("_")}
    unknown = {each for each in offered if find_feature(kind, each) is None}
    assert {each for each in unknown - INTERNAL[kind] if not each.endswith("_cls")} == set()


def test_the_reference_has_every_row_of_the_table() -> None:
    assert set(SECTIONS) == set(get_args(Kind))
    page = filled((ROOT / "docs/reference/celery.md").read_text(encoding="utf-8"))
    assert [each.name for each in FEATURES if f"| `{each.name}` |" not in page] == []
    assert page.count("\n| `") == len(FEATURES)
