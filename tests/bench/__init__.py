"""Measures this machine: our figures beside hand-written loops in the same run. `python -m tests.bench --help`."""
