"""Which installation wants to hear of which tender: one condition in SQL, for ingest and for dispatch."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, and_, exists, func, literal, or_

from tenders.models import Installation, Preference, Tender


def is_wanted() -> ColumnElement[bool]:
    """Return whether an installation of the enclosing statement wants to hear of the tender in it.

    A tender that lacks what a preference asks for does not match it.
    """
    return (
        exists()
        .where(
            Preference.installation_id == Installation.id,
            Preference.is_enabled,
            _is_chosen(Preference.regions, Tender.region),
            _is_chosen(Preference.categories, Tender.category),
            _is_chosen(Preference.kinds, Tender.kind),
            _is_between(Preference.amount_min, Tender.amount, Preference.amount_max),
        )
        .correlate(Tender, Installation)
    )


def _is_chosen(chosen: Any, code: Any) -> ColumnElement[bool]:
    # replace() leaves a text alone in which it finds nothing; LIKE would take a wildcard in a code for one.
    marked = literal("|").concat(code).concat("|")
    return or_(chosen.is_(None), func.replace(chosen, marked, "") != chosen)


def _is_between(least: Any, amount: Any, most: Any) -> ColumnElement[bool]:
    return and_(or_(least.is_(None), amount >= least), or_(most.is_(None), amount <= most))
