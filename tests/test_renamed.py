"""Paths and names that documentation of earlier versions has."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

from holdfast.renamed import MODULES

DOCUMENTED = [
    ("admin.app", "create", "web.app", "create"),
    ("notify.callback", "guarded", "notify.base", "safe_callback"),
    ("notify.line", "Purpose", "notify.server_notifier", "Purpose"),
    ("notify.listener", "Patience", "notify.server_notifier", "ListenerTimings"),
    ("notify.outlet", "OutletNotifier", "notify.sender", "BufferedNotifier"),
    ("notify.port", "Hint", "notify.base", "Hint"),
    ("notify.port", "LOOK_EVERYWHERE", "notify.base", "LOOK_EVERYWHERE"),
    ("notify.port", "OnHint", "notify.base", "OnHint"),
    ("notify.remote", "LineNotifier", "notify.server_notifier", "LineNotifier"),
    ("notify.wire", "encode", "notify.encoding", "encode"),
    ("notify.wire", "decode", "notify.encoding", "decode"),
    ("runtime.cycle_run", "CycleRun", "scheduler.cycle_run", "CycleRun"),
    ("service.access", "Principal", "admin.access", "Principal"),
]


@pytest.fixture(autouse=True)
def _not_imported_before(monkeypatch: pytest.MonkeyPatch) -> None:
    for old in MODULES:
        monkeypatch.delitem(sys.modules, f"holdfast.{old}", raising=False)


@pytest.mark.parametrize(("old", "old_name", "new", "new_name"), DOCUMENTED)
def test_a_documented_name_of_an_earlier_version_is_the_same_object_under_its_old_path(
    old: str, old_name: str, new: str, new_name: str
) -> None:
    with pytest.warns(DeprecationWarning, match=rf"holdfast\.{old} is now holdfast\.{new}"):
        found = getattr(import_module(f"holdfast.{old}"), old_name)
    assert found is getattr(import_module(f"holdfast.{new}"), new_name)


def test_every_renamed_module_is_tried() -> None:
    assert {old for old, *_ in DOCUMENTED} == {old for old, new in MODULES.items() if new}


def test_a_renamed_name_warns_with_its_new_path() -> None:
    with pytest.warns(
        DeprecationWarning, match=r"Patience is now holdfast\.notify\.server_notifier"
    ):
        found = import_module(f"holdfast.{'notify.listener'}").Patience
    assert found().close_s == 5.0


def test_the_warning_points_at_the_line_that_imports() -> None:
    code = f"x = 1\nfrom holdfast.{'notify.wire'} import encode\n"
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", code], capture_output=True, text=True, check=True
    )
    assert f"<string>:2: DeprecationWarning: holdfast.{'notify.wire'} is now" in done.stderr


def test_what_never_existed_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        import_module("holdfast.notify.ports")
    with pytest.warns(DeprecationWarning, match="base"), pytest.raises(AttributeError):
        _ = import_module(f"holdfast.{'notify.port'}").Hints


def test_the_old_server_notifier_takes_its_old_arguments() -> None:
    from holdfast.notify.server_notifier import (
        LineNotifier,
        Purpose,
        ServerConnection,
        ServerNotifier,
    )

    async def dial(purpose: Purpose) -> ServerConnection:
        raise NotImplementedError

    with pytest.warns(DeprecationWarning, match="ServerNotifier"):
        notifier = LineNotifier(dial, patience=None)
    assert isinstance(notifier, ServerNotifier)
    notifier.close()
