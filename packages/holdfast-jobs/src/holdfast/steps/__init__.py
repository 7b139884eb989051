"""Durable functions: handlers whose steps are recorded, so that they go on where they were after any restart.

`job_steps` is what a handler calls: `job.step`, `job.sleep`, `job.wait_for`, `job.run`, `job.cursor`. Open `function`
first: each of these calls as a plan, which replays what was recorded and yields what was not, as `actions`.
`step_history` is what is recorded of one function, `step_driver` does what its plans yield until `parking` ends one
that only waits, and `undos` goes back. `step_names` tells which step a call is, `result_types` how its result is
stored. `recorder` writes the records of all functions of a worker, each under its job's token. `router` wakes those
whose signal came, `functions` is what those of one worker share, and `dry_run` replays them before a deploy.
"""
