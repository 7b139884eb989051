"""What each statement about inboxes changes: the rows of one inbox, message or line, and no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast.storage.operation import Op
from holdfast_streams.inbox.inbox_store import (
    INBOXES,
    DueMessage,
    InboxLine,
    InboxRecord,
    ParkedMessage,
)
from holdfast_streams.inbox.message import RawMessage
from tests.streams.inbox_scene import InboxScene
from tests.support.tables import Row, Tables, id_of

NOW = 1_800_000_000_000_000
SECOND = 1_000_000
TOKEN, OTHER = id_of(1), id_of(2)
INBOXES_AND_LINES = [(inbox, line) for inbox in "amz" for line in ("0", "1", "2")]


class Box:
    """The tables of the inboxes of one application."""

    def __init__(self, scene: InboxScene) -> None:
        self.scene = scene
        self.tables = Tables(scene.url)
        self.plant = self.tables.plant

    def run(self, op: Op[Any]) -> Any:
        return self.scene.app.database.run(op)

    def lines(self, op: Op[Any]) -> tuple[Any, dict[Any, Row | None]]:
        """Run an operation; return its answer, and which lines it changed to what."""
        return self.tables.changes("inbox_line", ("inbox", "line"), lambda: self.run(op))

    def parked(self, op: Op[Any]) -> tuple[Any, dict[Any, Row | None]]:
        """The same of parked messages, by number."""
        answer, found = self.tables.changes("inbox_parked", ("id",), lambda: self.run(op))
        return answer, {int(id[-12:]): row for (id,), row in found.items()}

    def members(self, op: Op[Any]) -> dict[Any, Row | None]:
        """Run an operation; return which members it changed to what."""
        return self.tables.changes("inbox_member", ("inbox", "worker"), lambda: self.run(op))[1]


@pytest.fixture
def box(inbox: InboxScene) -> Iterator[Box]:
    box = Box(inbox)
    yield box
    box.tables.close()
    inbox.app.close()


def line(inbox: str, name: str, **values: Any) -> Row:
    """A line that is held, after a death and two tries."""
    usual = {
        "inbox": inbox, "line": name, "place": "5", "token": TOKEN, "worker": "w",
        "expires_at": NOW + SECOND, "deaths": 1, "tries": 2,
    }  # fmt: skip
    return usual | values


def message(number: int, state: str = "failed", **values: Any) -> Row:
    usual = {
        "id": id_of(number), "inbox": "m", "message_id": f"evt_{number}", "state": state, "subject": "paid",
        "body": f'"{number}"', "headers": '{"h":"1"}', "error": "no", "attempts": 2, "received_at": NOW - SECOND,
        "parked_at": NOW, "key": None, "turn": 1,
    }  # fmt: skip
    return usual | values


def test_an_inbox_is_registered_once_and_told_with_who_reads_it(box: Box) -> None:
    box.run(INBOXES.register("z", "http", "/z", NOW))
    box.run(INBOXES.register("m", "http", "/m", NOW))
    box.run(INBOXES.register("m", "jetstream", "nats", NOW + SECOND))
    box.plant("inbox_parked", message(1), message(2), message(3, inbox="a"))
    away = {"inbox": "m", "expires_at": NOW + 1, "error": "away"}
    box.plant("inbox_member", away | {"worker": "two", "error": None}, away | {"worker": "one"})
    gone = {"expires_at": NOW, "error": "z"}
    box.plant(
        "inbox_member", away | gone | {"worker": "gone"}, away | {"worker": "w", "inbox": "a"}
    )
    assert box.run(INBOXES.all(NOW)) == [
        InboxRecord("m", "jetstream", "nats", NOW, NOW + SECOND, 2, 2, "away"),
        InboxRecord("z", "http", "/z", NOW, NOW, 0, 0, None),
    ]
    assert box.run(INBOXES.members("m", NOW)) == ["one", "two"]
    box.run(INBOXES.purge_members(NOW))
    found = box.tables.rows("inbox_member", "inbox", "worker")
    assert found.keys() == {("m", "one"), ("m", "two"), ("a", "w")}


def test_a_process_says_why_it_cannot_read_until_it_leaves(box: Box) -> None:
    beat, until = INBOXES.beat, {"expires_at": NOW + 2 * SECOND}
    for inbox, worker in (("m", "me"), ("z", "me"), ("m", "you")):
        found = box.members(beat(inbox, worker, 1_000, None, NOW))
        row = {"inbox": inbox, "worker": worker, "expires_at": NOW + SECOND, "error": None}
        assert found == {(inbox, worker): {**row}}
    assert box.members(beat("m", "me", 2_000, "no", NOW)) == {("m", "me"): {**until, "error": "no"}}
    assert box.members(beat("m", "me", 2_000, None, NOW)) == {("m", "me"): {"error": None}}
    assert box.members(INBOXES.leave("me")) == {("m", "me"): None, ("z", "me"): None}


def test_a_message_is_new_once_in_its_inbox_until_its_time_is_over(box: Box) -> None:
    remember = INBOXES.remember
    assert box.run(remember("m", ["b", "a"], 1_000, NOW)) == {"a", "b"}
    assert box.run(remember("z", ["a"], 9_000, NOW)) == {"a"}
    assert box.run(remember("m", ["a", "c"], 5_000, NOW + SECOND - 1)) == {"c"}
    assert box.run(remember("m", ["a", "c"], 5_000, NOW + SECOND)) == {"a"}
    found = box.tables.rows("inbox_seen", "inbox", "id")
    assert {key: row["expires_at"] - NOW for key, row in found.items()} == {
        ("m", "a"): 6 * SECOND,
        ("m", "b"): SECOND,
        ("m", "c"): 6 * SECOND - 1,
        ("z", "a"): 9 * SECOND,
    }


def test_records_are_forgotten_whose_time_is_over_the_oldest_first(box: Box) -> None:
    for number in range(4):
        box.plant("inbox_seen", {"inbox": "m", "id": str(number), "expires_at": NOW - number})
    box.plant("inbox_seen", {"inbox": "m", "id": "live", "expires_at": NOW + 1})
    box.plant("inbox_seen", {"inbox": "z", "id": "3", "expires_at": NOW + 1})

    def left() -> set[tuple[Any, ...]]:
        return set(box.tables.rows("inbox_seen", "inbox", "id"))

    assert box.run(INBOXES.forget_seen(2, NOW)) == 2
    live = {("m", "live"), ("z", "3")}
    assert left() == live | {("m", "0"), ("m", "1")}
    assert box.run(INBOXES.forget_seen(9, NOW)) == 2
    assert left() == live


@pytest.mark.parametrize(("error", "state"), [(None, "due"), ("no", "failed")])
def test_a_message_is_parked_behind_those_of_its_key(
    box: Box, error: str | None, state: str
) -> None:
    raw = RawMessage("m", "evt_1", b"{}", {"h": "1"}, subject="paid", received_us=NOW - SECOND)
    box.plant("inbox_parked", message(1, key="k", turn=4), message(2, key="x", turn=8))
    box.plant(
        "inbox_parked", message(3, inbox="z", key="k", turn=9), message(4, inbox="z", key="z")
    )
    values: dict[str, Any] = {"state": state, "error": error, "attempts": 3}
    _, found = box.parked(INBOXES.park(id_of(7), raw, '"7"', error, 3, NOW, "k"))
    assert found == {7: message(7, key="k", turn=5, message_id="evt_1", **values)}
    _, found = box.parked(INBOXES.park(id_of(8), raw, '"8"', error, 3, NOW))
    assert found == {8: message(8, turn=1, message_id="evt_1", **values)}
    assert box.run(INBOXES.parked_keys("m")) == {"k", "x"}


def test_a_message_that_says_no_time_was_received_now(box: Box) -> None:
    box.run(INBOXES.park(id_of(1), RawMessage("m", "evt_1", b"", {}), '""', None, 0, NOW))
    before = box.tables.rows("inbox_parked", "id")[(id_of(1),)]
    assert (
        abs(before["received_at"] - box.run(box.scene.app.database.store.schema.clock()))
        < 3_600 * SECOND
    )


def test_the_first_message_that_is_due_counts_as_failed_until_it_was_taken(box: Box) -> None:
    box.plant(
        "inbox_parked",
        message(1),
        message(2, "due", inbox="a"),
        message(3, key="k", turn=1),
        message(4, "due", key="k", turn=2),
        message(5, "due", key="k", turn=3, inbox="y"),
        message(8, "due", key="x", turn=5),
        message(7, "due"),
        message(9, key="x", turn=6),
    )
    assert box.run(INBOXES.with_due()) == {"a", "m", "y"}
    due, found = box.parked(INBOXES.begin_due("m", "died", NOW + 5))
    assert due == DueMessage(id_of(7), "evt_7", "paid", '"7"', {"h": "1"}, 3, NOW - SECOND)
    assert found == {7: {"state": "failed", "error": "died", "attempts": 3, "parked_at": NOW + 5}}
    assert box.run(INBOXES.begin_due("m", "died", NOW)).id == id_of(8)
    assert box.run(INBOXES.begin_due("m", "died", NOW)) is None
    assert box.run(INBOXES.with_due()) == {"a", "y"}


def test_one_message_is_taken_or_parked_again(box: Box) -> None:
    box.plant("inbox_parked", *(message(n, "due") for n in range(1, 4)))
    answer, found = box.parked(INBOXES.park_again(id_of(2), "worse", NOW + 5))
    assert (answer, found) == (
        True,
        {2: {"state": "failed", "error": "worse", "parked_at": NOW + 5}},
    )
    assert box.parked(INBOXES.unpark(id_of(2))) == (True, {2: None})
    assert box.parked(INBOXES.unpark(id_of(2))) == (False, {})
    assert box.parked(INBOXES.park_again(id_of(2), "worse", NOW)) == (False, {})


def test_parked_messages_are_listed_by_inbox_and_id(box: Box) -> None:
    box.plant("inbox_parked", message(1, inbox="z"), message(4), message(3, "due"), message(2))
    found = box.run(INBOXES.parked_messages(None, None, 3))
    assert [each.id for each in found] == [id_of(2), id_of(3), id_of(4)]
    assert found[0] == ParkedMessage(
        id_of(2), "m", "evt_2", "failed", "paid", "no", 2, NOW - SECOND, NOW
    )
    assert [each.id for each in box.run(INBOXES.parked_messages("z", None, 3))] == [id_of(1)]
    assert [each.id for each in box.run(INBOXES.parked_messages(None, "due", 3))] == [id_of(3)]


@pytest.mark.parametrize(
    ("op", "change"),
    [(INBOXES.retry_parked, {"state": "due"}), (INBOXES.skip_parked, None)],
    ids=["retry", "skip"],
)
def test_messages_that_failed_are_taken_again_or_given_up(
    box: Box, op: Callable[..., Op[list[str]]], change: Row | None
) -> None:
    box.plant("inbox_parked", *(message(n) for n in range(1, 4)), message(4, "due"))
    box.plant("inbox_parked", message(5, inbox="z"))
    some = [id_of(2), id_of(4), id_of(5)]
    assert box.parked(op("m", some)) == ([id_of(2)], {2: change})
    answer, found = box.parked(op("m", None))
    assert sorted(answer) == [id_of(1), id_of(3)]
    assert found == {1: change, 3: change}


def test_an_inbox_is_removed_with_all_that_is_its_own(box: Box) -> None:
    for number, inbox in enumerate("amz", 1):
        box.run(INBOXES.register(inbox, "http", "/", NOW))
        box.plant("inbox_parked", message(number, inbox=inbox))
        box.plant("inbox_line", line(inbox, "0"))
    box.run(INBOXES.remove("m"))
    assert [each.name for each in box.run(INBOXES.all(NOW))] == ["a", "z"]
    for table in ("inbox_parked", "inbox_line"):
        assert box.tables.rows(table, "inbox").keys() == {("a",), ("z",)}, table


# ---- Lines


def test_lines_that_are_there_stay_where_they_are(box: Box) -> None:
    box.plant("inbox_line", line("m", "0"), line("z", "1"))
    _, found = box.lines(INBOXES.begin_lines("m", ["0", "1"]))
    none = {"place": None, "token": None, "worker": None, "expires_at": None}
    assert found == {("m", "1"): {"inbox": "m", "line": "1", "deaths": 0, "tries": 0, **none}}


def test_lines_are_claimed_that_nobody_holds(box: Box) -> None:
    ended = {"expires_at": NOW}
    box.plant("inbox_line", line("m", "1", **ended), line("m", "2"), line("m", "4", **ended))
    box.plant("inbox_line", line("z", "0", **ended), {"inbox": "m", "line": "0"})
    box.plant("inbox_line", {"inbox": "m", "line": "3", "place": "9", "deaths": 4})
    wanted = ["0", "1", "2", "3"]
    mine = {"token": OTHER, "worker": "me", "expires_at": NOW + 2 * SECOND}
    answer, found = box.lines(INBOXES.claim_lines("m", wanted, "me", OTHER, 1, 2_000, NOW))
    assert answer == [InboxLine("0", OTHER, None, 0, None)]
    assert found == {("m", "0"): mine}
    answer, found = box.lines(INBOXES.claim_lines("m", wanted, "me", OTHER, 9, 2_000, NOW))
    was = TOKEN if box.scene.is_postgres else None
    assert sorted(answer, key=lambda each: each.line) == [
        InboxLine("1", OTHER, "5", 2, was),
        InboxLine("3", OTHER, "9", 4, None),
    ]
    assert found == {("m", "1"): {**mine, "deaths": 2}, ("m", "3"): mine}


@pytest.mark.parametrize(
    ("op", "answer", "change"),
    [
        (
            lambda token: INBOXES.renew_lines("m", {"1": token}, 3_000, NOW),
            {"1"},
            {"expires_at": NOW + 3 * SECOND},
        ),
        (
            lambda token: INBOXES.release_lines("m", {"1": token}),
            None,
            {"token": None, "worker": None, "expires_at": None},
        ),
        (
            lambda token: INBOXES.move_line("m", "1", token, "5", "7"),
            True,
            {"place": "7", "deaths": 0, "tries": 0},
        ),
        (lambda token: INBOXES.try_line("m", "1", token), 3, {"tries": 3}),
    ],
    ids=["renew", "release", "move", "try"],
)
def test_a_line_is_changed_alone_and_under_its_token(
    box: Box, op: Callable[[str], Op[Any]], answer: Any, change: Row
) -> None:
    box.plant("inbox_line", *(line(*each) for each in INBOXES_AND_LINES))
    refused, found = box.lines(op(OTHER))
    assert not refused
    assert found == {}
    assert box.lines(op(TOKEN)) == (answer, {("m", "1"): change})


def test_a_line_moves_only_from_where_it_was(box: Box) -> None:
    box.plant("inbox_line", line("m", "1"), line("m", "2", place=None))
    move = INBOXES.move_line
    assert box.lines(move("m", "1", TOKEN, "6", "7")) == (False, {})
    assert box.lines(move("m", "1", TOKEN, None, "7")) == (False, {})
    moved = {"place": "7", "deaths": 0, "tries": 0}
    assert box.lines(move("m", "2", TOKEN, None, "7")) == (True, {("m", "2"): moved})


def test_where_a_line_is_is_told_to_its_holder(box: Box) -> None:
    for number, (inbox, name) in enumerate(INBOXES_AND_LINES):
        box.plant("inbox_line", line(inbox, name, place=str(number)))
    assert box.run(INBOXES.line_place("m", "1", TOKEN)) == ["4"]
    assert box.run(INBOXES.line_place("m", "1", OTHER)) == []
