"""The reference of Celery's API: what each part of it does here, from the table that also refuses the rest."""

from __future__ import annotations

from collections.abc import Mapping

from docs._ext.reference.markdown import code, table

from holdfast_celery.coverage import FEATURES, Feature, Kind

SECTIONS: Mapping[Kind, str] = {
    "setting": "Settings",
    "application argument": "Celery(…)",
    "task option": "@app.task and @shared_task",
    "call option": "apply_async, set and send_task",
    "retry option": "self.retry and retry_kwargs",
    "route option": "Entries of task_routes",
    "application attribute": "The application",
    "control attribute": "app.control",
    "control argument": "Arguments of revoke and terminate",
    "task attribute": "Tasks",
    "request attribute": "self.request",
    "signature attribute": "Signatures",
    "result attribute": "Results",
    "result argument": "Arguments of get",
    "group result attribute": "Results of groups",
    "import": "Imports",
}
"""The parts of Celery in the order in which people look them up."""


def page() -> str:
    """Return every feature by where it is found."""
    return "\n".join(f"## {title}\n\n{_table(kind)}" for kind, title in SECTIONS.items())


def _table(kind: Kind) -> str:
    found = sorted((each for each in FEATURES if each.kind == kind), key=lambda each: each.name)
    return table(
        ("Celery", "", "here"), ((code(each.name), _word(each), each.text) for each in found)
    )


def _word(feature: Feature) -> str:
    if feature.is_covered:
        return "works"
    return "leave out" if feature.is_removable else "change"
