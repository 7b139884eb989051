"""What a worker holds, and what it recognises as its own."""

from holdfast.worker.held_leases import HeldClaim, Holdings
from tests.worker.test_backlog import attempt


def test_a_claim_that_ended_while_the_database_was_asked_is_no_stranger() -> None:
    holdings, held = Holdings(), attempt(1)
    token = held.claimed.token
    claim = HeldClaim(token, 60_000, 50.0)
    claim.attempts[held.claimed.id] = held
    holdings.ask([token])
    with holdings.comparing() as is_known:
        holdings.answered([token], [claim])
        holdings.end([held])
        assert is_known(token)
        assert not is_known("another's")
    with holdings.comparing() as is_known:
        assert not is_known(token)
