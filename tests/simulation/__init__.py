"""Deterministic simulation: the real worker, reaper, cycles and consumers, on a clock that only the simulation moves.

`world` has the clock and a loop for every thread of every simulated process, and chooses by its seed which runs next;
`server` is the database: the real SQLite store in memory, behind a network that delays, swallows and cuts.
`plan` makes the jobs and the faults of a seed, `workload` has their handlers, `process` runs workers, and `history`
notes what everyone saw, outside of the database. `laws` holds it against what must be true; `run` puts all of it
together, and `shrink` makes a failing plan smaller. `planted` has the defects that the laws must find.
"""
