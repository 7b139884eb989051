"""Observers: each maps the catalogue of events to one backend. Emitting events is not their part."""
