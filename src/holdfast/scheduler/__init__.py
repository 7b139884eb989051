"""Ticks and the background mode that repeats them: runners, cycles, retention. Nothing else decides by time."""
