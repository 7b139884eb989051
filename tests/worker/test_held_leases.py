"""What a worker holds, and what it recognises as its own."""

from holdfast.worker.held_leases import HeldLease, HeldLeases
from holdfast.worker.wakes import Wakes, WorkerThreads
from tests.worker.test_backlog import attempt


def test_a_claim_that_ended_while_the_database_was_asked_is_no_stranger() -> None:
    held_leases, held = HeldLeases(Wakes(WorkerThreads())), attempt(1)
    token = held.claimed.token
    claim = HeldLease(token, 60_000, 50.0)
    claim.attempts[held.claimed.id] = held
    held_leases.begin_claim([token])
    with held_leases.compare() as is_known:
        held_leases.end_claim([token], [claim])
        held_leases.remove([held])
        assert is_known(token)
        assert not is_known("another's")
    with held_leases.compare() as is_known:
        assert not is_known(token)
