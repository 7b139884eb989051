"""Observers: what they make of each event of the catalogue."""
