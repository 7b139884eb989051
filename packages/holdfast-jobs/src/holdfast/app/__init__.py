"""Holdfast: one application's job types and handlers, its database, and what can be done with both."""

from holdfast.app.application import Holdfast
from holdfast.app.registration import CycleOptions

__all__ = ["CycleOptions", "Holdfast"]
