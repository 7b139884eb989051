"""Checks what must hold of the rows of a database, whatever happened to it; see `holdfast verify`."""

from holdfast.extensions import lazy_names

__all__ = ["LAWS", "Breach", "Law", "LawVerdict", "check_laws"]

__getattr__ = lazy_names(__name__, {"laws": __all__})
