"""How each statement is cut to one value of the context, and which actions keep to it; what is not here is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.extensions import rows
from holdfast.storage.operation import Row


class Cut(NamedTuple):
    """How a statement is cut; one without any of these is about nothing that belongs to a tenant.

    ids: its parameter with a list of jobs or chains, of which those of others are left out. id: its parameter with one
    of them; another's has no rows. columns: those with ids in what it returns; rows with an id of others are left out.
    blank: columns that are replaced by something that tells nothing. filtered: whether it takes a filter, to which the
    context is added. instead: the statement that is run in its place, with the context among its parameters. answer:
    what is answered without running anything.
    """

    ids: str = ""
    id: str = ""
    columns: Sequence[int] = ()
    blank: Mapping[int, Any] = {}
    filtered: bool = False
    instead: str = ""
    answer: Sequence[Row] | None = None


_WALK = Cut(instead="job_walk_context")
_PASS = Cut()

_READS = {
    "job_get": Cut(ids="ids"),
    "job_list": Cut(filtered=True),
    "job_matching": Cut(filtered=True),
    "job_walk": _WALK,
    "job_walk_running": _WALK,
    "job_walk_blocked": _WALK,
    "job_walk_live": _WALK,
    "job_walk_not_completed": _WALK,
    "job_walk_blocker": _WALK,
    "job_walk_key": _WALK,
    "job_walk_context": _WALK,
    "job_walk_chain": Cut(id="chain"),
    "job_context_names": Cut(instead="context_names"),
    "job_ids_like": Cut(instead="context_ids_like"),
    "job_made": Cut(id="id"),
    # Whether other tenants have jobs of a type must not show in how a list ends.
    "job_type_known": Cut(answer=[(1,)]),
    "type_totals": Cut(answer=[]),
    "job_last_errors": Cut(ids="ids"),
    "job_attempts": Cut(id="id"),
    "job_crashed_before": Cut(answer=[(0,)]),
    "chain_get": Cut(ids="ids"),
    "chain_tail": Cut(ids="ids"),
    "chain_list": Cut(filtered=True),
    "chain_walk": _WALK,
    "chain_walk_blocker": _WALK,
    "chain_jobs": Cut(id="chain"),
    "chain_blockers": Cut(ids="chains", columns=(0,)),
    # What others wait for is not deleted, and who waits is not told.
    "chain_references": Cut(ids="chains", blank={1: "…", 2: "…"}),
    "blocker_list": Cut(ids="ids", columns=(2,)),
    "blocker_waiting": Cut(id="chain", columns=(0,)),
    "blocker_dependent_chains": Cut(id="chain", columns=(0, 1)),
    "dead_groups": Cut(instead="context_dead_groups"),
    # A redrive may be of dead letters of all tenants, and so is what is left of it.
    "redrive_list": Cut(answer=[]),
    "step_latest": Cut(id="job_id"),
    "step_parked": Cut(id="job_id"),
    "step_list": Cut(ids="ids"),
    "progress_get": Cut(ids="ids"),
    "revision_get": Cut(id="id"),
    "unreadable_since": Cut(id="id"),
    "on_failed_of": Cut(id="id"),
    # That a shared limit is full is told; not who fills it, nor who else waits.
    "limit_place": Cut(ids="ids", blank={3: 0, 5: None}),
    "limit_states": Cut(blank={2: "[]"}),
}
_ABOUT_THE_FLEET = (
    "clock",
    "identity_get",
    "lease_list",
    "limit_settings",
    "type_setting_list",
    "worker_list",
)
"""What the sentence about a waiting job is made of: whether workers handle its type, are busy, or are paused."""

_WRITES = {
    "job_lock": Cut(ids="ids"),
    "job_trigger": Cut(ids="ids"),
    "job_redrive": Cut(ids="ids"),
    "on_failed_forget": Cut(ids="ids"),
    "redrive_forget": Cut(ids="ids"),
    "redrive_add": Cut(ids="ids"),
    "blocker_lock_ended": Cut(ids="tails"),
    "chain_delete": Cut(ids="chains"),
}
_FOLLOWING = (
    *("job_end", "job_end_read", "queue_drop", "job_redrive_queue", "tally_add", "revision_hurry"),
    *("step_undo", "step_unbind", "step_wake_parents", "redrive_begin"),
    *("blocker_close", "blocker_dependents", "blocker_open_jobs"),
    *("on_failed_list", "on_failed_mark", "on_failed_unremember", "on_failed_settle"),
    *("on_failed_defer", "limit_signal", "limit_signal_leaving", "limit_signal_set"),
    *("chain_delete_queue", "chain_delete_outcomes", "chain_delete_failing"),
    *("chain_delete_attempts", "chain_delete_progress", "chain_delete_revisions"),
    *("chain_delete_steps", "chain_delete_output", "chain_delete_blockers", "chain_delete_keys"),
)
"""What follows from a change, with the ids that the statements before it have let through, and with what waits for
them."""

CONFINED: Sequence[str | tuple[str, Any]] = (
    *("job.list", "job.get", "job.payload", "job.retry", "job.cancel", "job.run_now"),
    *("chain.list", "chain.get", "chain.wait", "chain.start", "chain.rerun", "chain.cancel"),
    *("chain.delete", "dead.list", "dead.redrive", "dead.drop", "tail.read"),
    *_READS.items(),
    *_WRITES.items(),
    *((name, _PASS) for name in (*_ABOUT_THE_FLEET, *_FOLLOWING)),
)
"""What principals that are confined may use of Holdfast itself."""


def all_cuts() -> dict[str, Cut]:
    """Return the cuts of all statements, those of extensions included, which write them as mappings."""
    found = [each for each in rows("confined") if not isinstance(each, str)]
    return {name: cut if isinstance(cut, Cut) else Cut(**cut) for name, cut in found}
