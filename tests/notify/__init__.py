"""Hints: merging, sending, listening, and every notifier against its real server."""
