"""Alembic's autogenerate without Holdfast's tables."""

from __future__ import annotations

from holdfast.settings import load_some


def include_name(name: str | None, type_: str, parent_names: object) -> bool:
    """Return whether a name is not Holdfast's, for `context.configure(include_name=…)`.

    On PostgreSQL, Holdfast's tables are in the schema HOLDFAST_SCHEMA; on SQLite, their names begin with `holdfast_`.
    Columns and indexes of your own tables can have any name.

    Raises: ConfigError.
    """
    if name is None:
        return True
    if type_ == "schema":
        own = str(load_some(["HOLDFAST_SCHEMA"], {})["HOLDFAST_SCHEMA"])
        return name != own and not name.startswith(f"{own}_test")  # as the pytest plugin names them
    return type_ != "table" or not name.startswith("holdfast_")
