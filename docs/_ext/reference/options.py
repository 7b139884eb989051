"""The reference of options: of decorators, starts and events, with the text below each in the code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any, Literal, get_args, get_origin

from docs._ext.reference.markdown import code, table
from docs._ext.reference.undocumented import require
from sphinx.pycode import ModuleAnalyzer

from holdfast.app import CycleOptions
from holdfast.client.enqueue import PublishOptions, SignalOptions
from holdfast.client.start_options import SharedOptions, StartOptions
from holdfast.core.registry import TypeOptions

SECTIONS: Mapping[str, tuple[str, Iterable[Any]]] = {
    "@app.job and @app.on": (
        "`@app.job(name, …)` registers the handler of a job type. `@app.on(event, …)` subscribes a handler to an "
        "event; it also takes `name=`, by default the function's own name.",
        (TypeOptions,),
    ),
    "@app.cycle": (
        "`@app.cycle(name, …)` runs a function on a [schedule](../understand/cycles.md).",
        (CycleOptions,),
    ),
    "app.start": (
        "`app.start(tx, handler, input, …)`, and `Start(handler, input, …)` for `app.start_all`. `app.start_many` "
        "takes `keys=` instead of `key`, and no `id`.",
        (StartOptions, SharedOptions),
    ),
    "app.publish": ("`app.publish(tx, event, input, …)`.", (PublishOptions,)),
    "app.signal": (
        "`app.signal(tx, name, key=…, data=…, …)` sends a signal to a "
        "[durable function](../understand/durable-functions.md).",
        (SignalOptions,),
    ),
}

_FROM_ENV = re.compile(r"FromEnv\[[^\]]*\]")


def page() -> str:
    """Return every option by what takes it. Raises: Undocumented."""
    return "\n".join(
        f"## {title}\n\n{text}\n\n{_table(kinds)}" for title, (text, kinds) in SECTIONS.items()
    )


def options_of(kind: Any) -> dict[str, tuple[str, str]]:
    """Return the type and the text of each option that a TypedDict itself has. Raises: Undocumented."""
    analyzer = ModuleAnalyzer.for_module(kind.__module__)
    analyzer.analyze()
    own = {
        field: annotation
        for (owner, field), annotation in analyzer.annotations.items()
        if owner == kind.__name__
    }
    texts = {field: " ".join(analyzer.attr_docs.get((kind.__name__, field), ())) for field in own}
    require(
        f"options of {kind.__name__} without text", (f for f, t in texts.items() if not t.strip())
    )
    return {field: (_spelled(own[field], kind.__module__), texts[field]) for field in own}


def _spelled(annotation: str, module: str) -> str:
    """A type as it is written, or its values if it is a name for a few of them."""
    named = getattr(import_module(module), annotation, None)
    if get_origin(named) is Literal:
        return " | ".join(f'"{each}"' for each in get_args(named))
    return annotation


def _table(kinds: Iterable[Any]) -> str:
    options = {field: found for kind in kinds for field, found in options_of(kind).items()}
    return table(
        ("option", "value", "meaning"),
        ((code(field), *_described(*found)) for field, found in options.items()),
    )


def _described(annotation: str, text: str) -> tuple[str, str]:
    """A type without what every option may be, and whether it can come from the environment."""
    plain = " | ".join(
        each
        for each in _FROM_ENV.sub("", annotation).split(" | ")
        if each.strip() not in ("", "None", "|")
    )
    if "FromEnv" in annotation:
        text = f"{text} Also `from_env(…)`."
    return code(plain), text
