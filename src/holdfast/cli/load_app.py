"""Loading an application given as `module:attribute`."""

from __future__ import annotations

import sys
import traceback
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import TYPE_CHECKING

from holdfast.core.errors import AppNotLoaded, HoldfastError, nearest

if TYPE_CHECKING:
    from holdfast.app import Holdfast

DEFAULT_ATTRIBUTE = "app"
_SHOWN_FRAMES = 3
_SUFFIX = ".py"


def load_app(spec: str) -> Holdfast:
    """Import the application; the current directory is on the path. Raises: AppNotLoaded."""
    module_name, _, attribute = spec.partition(":")
    if not module_name or not all(part.isidentifier() for part in module_name.split(".")):
        raise AppNotLoaded(f"{spec[:60]!r} is not a module name")
    if module_name.endswith(_SUFFIX) and Path(module_name).exists():
        meant = f"{module_name.removesuffix(_SUFFIX)}:{attribute or DEFAULT_ATTRIBUTE}"
        raise AppNotLoaded(f"{module_name} is a file", help=f"pass its module: {meant}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    module = _import(module_name)
    return _application(module, attribute or DEFAULT_ATTRIBUTE)


def _import(name: str) -> ModuleType:
    _find(name)
    try:
        return import_module(name)
    except HoldfastError:
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)[-_SHOWN_FRAMES:]
        places = [f"{frame.filename}:{frame.lineno}: {frame.line}" for frame in frames]
        reason = traceback.format_exception_only(error)[-1].strip()
        raise AppNotLoaded(
            f"importing {name} failed: {reason}", details=places, help="fix the module first"
        ) from error


def _find(name: str) -> None:
    """Reject a module that does not exist, as opposed to one whose own imports fail."""
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        parent, part = ".".join(parts[: depth - 1]), parts[depth - 1]
        path = getattr(_import(parent), "__path__", []) if parent else None
        if _exists(parent, part, path):
            continue
        near = nearest(part, [each.name for each in iter_modules(_places(path))])
        raise AppNotLoaded(
            f"module {'.'.join(parts[:depth])} not found",
            details=[f"searched from {Path.cwd()}"],
            help=near or None,
        )


def _exists(parent: str, part: str, path: list[str] | None) -> bool:
    name = f"{parent}.{part}" if parent else part
    if name in sys.modules:
        return True
    if path is not None and not path:
        return False
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _places(path: list[str] | None) -> list[str]:
    return [str(Path.cwd())] if path is None else list(path)


def _application(module: ModuleType, attribute: str) -> Holdfast:
    from holdfast.app import Holdfast

    found: object = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if isinstance(found, Holdfast):
        return found
    candidates = [name for name, each in vars(module).items() if isinstance(each, Holdfast)]
    where = f"{module.__name__}:{attribute}"
    if found is None:
        near = nearest(attribute, [*candidates, *vars(module)])
        message = f"{module.__name__} has no {attribute}"
    else:
        near = ""
        message = f"{where} is {type(found).__name__}, not a Holdfast"
    if candidates:
        near = f"did you mean {module.__name__}:{candidates[0]}?"
    raise AppNotLoaded(message, help=near or None)
