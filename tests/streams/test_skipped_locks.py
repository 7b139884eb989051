"""What others have locked in PostgreSQL is left to them, and found the next time: nobody waits for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast_streams.inbox.inbox_store import INBOXES
from holdfast_streams.reader_store import LINES
from tests.support.tables import IMPATIENT, Planted, id_of, row_lock

# Lines are planted that nobody reads.
pytestmark = pytest.mark.breaks_laws

NOW = 1_800_000_000_000_000


@pytest.fixture
def rows(postgres_url: str) -> Iterator[Planted]:
    rows = Planted(f"{postgres_url}{IMPATIENT}")
    yield rows
    rows.close()


def test_lines_are_claimed_beside_one_that_is_locked(rows: Planted, postgres_url: str) -> None:
    for line in (0, 1):
        rows.plant("log_position", {"reader": "m", "line": line, "position": 0})
        rows.plant("inbox_line", {"inbox": "m", "line": str(line)})
    with row_lock(postgres_url, "log_position", line=0):
        claimed = rows.run(LINES.claim("m", "me", id_of(1), 9, 1_000, NOW))
        assert [each.line for each in claimed] == [1]
    with row_lock(postgres_url, "inbox_line", line="0"):
        lines = INBOXES.claim_lines("m", ["0", "1"], "me", id_of(1), 9, 1_000, NOW)
        assert [each.line for each in rows.run(lines)] == ["1"]


def test_processes_that_are_gone_are_forgotten_beside_one_that_is_locked(
    rows: Planted, postgres_url: str
) -> None:
    for worker in ("dead", "gone"):
        ended = {"worker": worker, "expires_at": NOW}
        rows.plant("log_member", {"reader": "m", **ended})
        rows.plant("inbox_member", {"inbox": "m", **ended})
    with row_lock(postgres_url, "log_member", worker="gone"):
        rows.run(LINES.join("me", ["m"], 1_000, NOW))
    assert rows.rows("log_member", "worker").keys() == {("gone",), ("me",)}
    with row_lock(postgres_url, "inbox_member", worker="gone"):
        rows.run(INBOXES.purge_members(NOW))
    assert rows.rows("inbox_member", "worker").keys() == {("gone",)}


def test_messages_are_taken_and_forgotten_beside_one_that_is_locked(
    rows: Planted, postgres_url: str
) -> None:
    message = {"inbox": "m", "message_id": "evt", "state": "due", "body": '""', "headers": "{}"}
    for number in (1, 2):
        times = {"attempts": 1, "received_at": NOW, "parked_at": NOW}
        rows.plant("inbox_parked", {"id": id_of(number), **message, **times})
        rows.plant("inbox_seen", {"inbox": "m", "id": str(number), "expires_at": NOW})
    with row_lock(postgres_url, "inbox_parked", id=id_of(1)):
        due = rows.run(INBOXES.begin_due("m", "died", NOW))
        assert due is not None
        assert due.id == id_of(2)
    with row_lock(postgres_url, "inbox_seen", id="1"):
        assert rows.run(INBOXES.forget_seen(9, NOW)) == 1
    assert rows.rows("inbox_seen", "id").keys() == {("1",)}
