"""Module paths and names of earlier versions: they still import, with a DeprecationWarning that names the new ones."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

MODULES: Mapping[str, str | None] = {
    "admin.app": "web.app",
    "notify.callback": "notify.base",
    "notify.line": "notify.server_notifier",
    "notify.listener": "notify.server_notifier",
    "notify.outlet": "notify.sender",
    "notify.port": "notify.base",
    "notify.remote": "notify.server_notifier",
    "notify.wire": "notify.encoding",
    "runtime": None,
    "runtime.cycle_run": "scheduler.cycle_run",
    "service": None,
    "service.access": "admin.access",
}
"""The documented modules that moved, without `holdfast.`; None is a package of which nothing else is left."""

NAMES: Mapping[str, str] = {
    "OutletNotifier": "BufferedNotifier",
    "Patience": "ListenerTimings",
    "guarded": "safe_callback",
}
"""The documented names that changed within those modules."""


class RenamedModules:
    """Finds modules by the path they had; asked last, only for modules that do not exist."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, old = name.partition(".")
        if package != "holdfast" or old not in MODULES:
            return None
        from importlib.machinery import ModuleSpec

        return ModuleSpec(name, cls, is_package=MODULES[old] is None)  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: ModuleSpec) -> ModuleType | None:
        return None

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        new = MODULES[module.__name__.partition(".")[2]]
        if new is None:
            return
        path = f"holdfast.{new}"
        warnings.warn(f"{module.__name__} is now {path}", DeprecationWarning, stacklevel=2)
        module.__getattr__ = lambda name: _get(path, name)  # type: ignore[method-assign]


def _get(path: str, name: str) -> Any:
    if name in NAMES:
        text = f"{name} is now {path}.{NAMES[name]}"
        warnings.warn(text, DeprecationWarning, stacklevel=3)
    return getattr(import_module(path), NAMES.get(name, name))
