"""Ticks and the background mode that repeats them: runners, cycles, retention. Only this package decides by time."""
