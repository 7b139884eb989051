"""Durable functions: handlers whose steps are recorded, so that they go on where they were after any restart.

`job_steps` is what a handler calls: `job.step`, `job.sleep`, `job.wait_for`, `job.run`, `job.cursor`. `function`
replays what was recorded and runs what was not; `identity` tells which step a call is, `results` how its result is
stored. `recorder` writes the records of all functions of a worker, each under its job's token. `parking` ends a
function that only waits, `router` wakes those whose signal came, and `undo` runs backwards through one that failed.
"""
