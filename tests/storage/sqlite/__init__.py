"""Tests of what only the SQLite store does: its writer, its locks, its file."""
