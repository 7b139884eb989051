"""What each statement about readers changes: the rows of one reader and line, under their token, and no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import psycopg
import pytest

from holdfast.storage.operation import Op
from holdfast_streams.reader_store import (
    LINES,
    READERS,
    ClaimedLine,
    LineRecord,
    LineToken,
    LogPart,
)
from holdfast_streams.relay.relay_store import RELAYS, RelayLine, Sent
from tests.streams.scene import Scene
from tests.support.tables import Row, Tables, id_of

# Lines are planted at places that nobody has drawn.
pytestmark = pytest.mark.breaks_laws

ON_POSTGRES = pytest.mark.parametrize("url", ["postgres"], indirect=True)
NOW = 1_800_000_000_000_000
SECOND = 1_000_000
TOKEN, OTHER = id_of(1), id_of(2)
KEY = ("reader", "line")
PARKED_KEY = ("reader", "line", "place")
HELD = LineToken("m", 1, TOKEN)
GIVEN_BACK = {"token": None, "worker": None, "expires_at": None}
SENT = Sent(2, 5, 0, 7, 0)
READERS_AND_LINES = [(reader, line) for reader in "amz" for line in range(3)]


def position(reader: str, line: int, **values: Any) -> Row:
    """A line whose holder has failed, and whose stream has something that it should not."""
    usual = {
        "reader": reader, "line": line, "position": 5, "fence": 3,
        "token": TOKEN, "worker": "w", "expires_at": NOW + SECOND,
        "failures": 2, "retry_at": NOW + 5 * SECOND, "error": "boom", "epoch": 2, "sent": "{}", "blocked": "ahead",
        "blocked_since": NOW - SECOND,
    }  # fmt: skip
    return usual | values


def free(reader: str, line: int, **values: Any) -> Row:
    """A line that nobody holds and nothing is wrong with."""
    return {"reader": reader, "line": line, "position": 0} | values


def event(line: int, place: int, **values: Any) -> Row:
    usual = {
        "line": line, "place": place, "event": "order.paid", "key": "k", "data": f'{{"n":{place}}}', "headers": None,
        "id": id_of(line * 100 + place), "at": NOW + place * SECOND,
    }  # fmt: skip
    return usual | values


def parked(reader: str, line: int, place: int, state: str = "failed", **values: Any) -> Row:
    usual = event(line, place) | {
        "reader": reader, "state": state, "error": "no", "attempts": 2, "parked_at": NOW,
    }  # fmt: skip
    return usual | values


class Log:
    """The tables of the log of one application."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.tables = Tables(scene.url)
        self.plant = self.tables.plant
        for line in range(16):
            self.tables.head(line, 0)

    def run(self, op: Op[Any]) -> Any:
        return self.scene.app.database.run(op)

    def events(self, *rows: Row) -> None:
        """Plant events; a line has come as far as its last one."""
        part = {"part": 0} if self.scene.is_postgres else {}
        self.plant("log", *(row | part for row in rows))
        for line in {row["line"] for row in rows}:
            self.tables.head(line, max(row["place"] for row in rows if row["line"] == line))

    def readers(self, *names: str, **values: Any) -> None:
        usual = {"kind": "consumer", "created_at": NOW, "seen_at": NOW}
        self.plant("log_reader", *({"name": name, **usual, **values} for name in names))

    def positions(self, op: Op[Any]) -> tuple[Any, dict[Any, Row | None]]:
        """Run an operation; return its answer, and which positions it changed to what."""
        return self.tables.changes("log_position", KEY, lambda: self.run(op))

    def parked(self, op: Op[Any]) -> tuple[Any, dict[Any, Row | None]]:
        """The same of parked events; of one that is new, its state only."""
        answer, found = self.tables.changes("log_parked", PARKED_KEY, lambda: self.run(op))
        return answer, found

    def states(self, op: Op[Any]) -> tuple[Any, dict[Any, str | None]]:
        """Run an operation; return its answer, and the states of the parked events that it changed."""
        answer, found = self.parked(op)
        return answer, {
            each: None if row is None else row.get("state") for each, row in found.items()
        }


@pytest.fixture
def log(scene: Scene) -> Iterator[Log]:
    log = Log(scene)
    yield log
    log.tables.close()
    scene.app.close()


UNBLOCKED = {"blocked": None, "blocked_since": None}
RECOVERED = {"failures": 0, "retry_at": None, "error": None}


@pytest.mark.parametrize(
    ("op", "expected", "change"),
    [
        (lambda held: LINES.advance(held, 5, 7), True, {"position": 7, **RECOVERED}),
        (
            lambda held: LINES.fail(held, 4, "again", 2_000, NOW),
            True,
            {"failures": 4, "error": "again", "retry_at": NOW + 2 * SECOND},
        ),
        (
            lambda held: LINES.renew([held], 3_000, NOW),
            {("m", 1)},
            {"expires_at": NOW + 3 * SECOND},
        ),
        (lambda held: LINES.release([held]), None, GIVEN_BACK),
        (
            lambda held: RELAYS.move(held, 5, 4, SENT),
            True,
            {"position": 4, "sent": msgspec.json.encode(SENT).decode(), **RECOVERED, **UNBLOCKED},
        ),
        (
            lambda held: RELAYS.block(held, "unfit", "again", 2_000, NOW),
            3,
            {
                "blocked": "unfit",
                "blocked_since": NOW,
                "error": "again",
                "failures": 3,
                "retry_at": NOW + 2 * SECOND,
            },
        ),
        (
            lambda held: RELAYS.block(held, "ahead", "again", 2_000, NOW),
            3,
            {"error": "again", "failures": 3, "retry_at": NOW + 2 * SECOND},
        ),
        (RELAYS.unblock, None, {**RECOVERED, **UNBLOCKED}),
    ],
    ids=["advance", "fail", "renew", "release", "move", "block", "block on", "unblock"],
)
def test_a_line_is_changed_alone_and_under_its_token(
    log: Log, op: Callable[[LineToken], Op[Any]], expected: Any, change: Row
) -> None:
    log.plant("log_position", *(position(*each) for each in READERS_AND_LINES))
    assert log.positions(op(LineToken("m", 1, OTHER)))[1] == {}
    answer, found = log.positions(op(HELD))
    assert found == {("m", 1): change}
    assert answer == expected


def test_a_line_moves_only_from_where_it_was(log: Log) -> None:
    log.plant("log_position", position("m", 1))
    for op in (LINES.advance(HELD, 6, 7), RELAYS.move(HELD, 6, 7, SENT)):
        assert log.positions(op) == (False, {})


def test_a_line_that_waits_for_nothing_is_not_unblocked(log: Log) -> None:
    log.plant("log_position", position("m", 1, **UNBLOCKED))
    assert log.positions(RELAYS.unblock(HELD)) == (None, {})


def test_where_a_line_is_is_told_to_its_holder(log: Log) -> None:
    for place, (reader, line) in enumerate(READERS_AND_LINES):
        log.plant("log_position", position(reader, line, position=place, sent=None))
    assert log.run(LINES.position(HELD)) == 4
    assert log.run(LINES.position(LineToken("m", 1, OTHER))) is None
    assert log.run(RELAYS.line(HELD)) == RelayLine(4, 2, None, "ahead", was_used=False)
    assert log.run(RELAYS.line(LineToken("m", 1, OTHER))) is None
    log.plant("log_position", position("z", 3))
    assert not log.run(RELAYS.line(HELD)).was_used
    log.plant("log_position", position("m", 3))
    assert log.run(RELAYS.line(HELD)).was_used
    assert log.run(RELAYS.line(LineToken("m", 3, TOKEN))).sent == "{}"


def test_lines_are_claimed_that_nobody_holds_and_deaths_are_counted_where_there_was_something_to_read(
    log: Log,
) -> None:
    ended = {"expires_at": NOW, "failures": 0, "retry_at": None}
    log.plant(
        "log_position",
        position("m", 1, **ended),
        position("m", 2),
        position("m", 3, **ended),
        position("m", 4, **ended | {"failures": 3}),
        position("m", 5, **ended | {"retry_at": NOW + 7 * SECOND}),
        free("m", 6, position=5, retry_at=NOW - SECOND),
        free("z", 0),
        free("m", 0),
    )
    log.events(
        event(0, 1), event(1, 5), event(1, 6), event(2, 6), event(3, 5), event(4, 6), event(5, 5)
    )
    was = TOKEN if log.scene.is_postgres else None
    (first,), found = log.positions(LINES.claim("m", "me", OTHER, 1, 2_000, NOW))
    assert first == ClaimedLine("m", 0, 0, 1, OTHER, 0, 0, None)
    mine = {"token": OTHER, "worker": "me", "expires_at": NOW + 2 * SECOND}
    assert found == {("m", 0): {**mine, "fence": 1}}
    claimed, found = log.positions(LINES.claim("m", "me", OTHER, 16, 2_000, NOW))
    assert {each.line: (each.failures, each.wait_ms, each.old_token) for each in claimed} == {
        1: (1, 0, was),
        3: (0, 0, was),
        4: (3, 0, was),
        5: (0, 7_000, was),
        6: (0, 0, None),
    }
    assert {(each.reader, each.position, each.token) for each in claimed} == {("m", 5, OTHER)}
    assert {each.line: each.fence for each in claimed} == {1: 4, 3: 4, 4: 4, 5: 4, 6: 1}
    assert found == {
        ("m", 1): {**mine, "fence": 4, "failures": 1},
        ("m", 3): {**mine, "fence": 4},
        ("m", 4): {**mine, "fence": 4},
        ("m", 5): {**mine, "fence": 4},
        ("m", 6): {**mine, "fence": 1},
    }


def test_the_next_lease_of_another_process_to_end_is_told(log: Log) -> None:
    log.plant(
        "log_position",
        position("m", 0, worker="other", expires_at=NOW + 9 * SECOND),
        position("m", 1, worker="other", expires_at=NOW + 5 * SECOND),
        position("m", 2, worker="me", expires_at=NOW + SECOND),
        position("z", 0, worker="other", expires_at=NOW + 2 * SECOND),
    )
    assert log.run(LINES.next_expiry_ms("me", ["a", "m"], NOW)) == 5_000
    assert log.run(LINES.next_expiry_ms("me", ["a"], NOW)) is None


def test_there_is_news_in_a_line_of_a_process_with_an_unread_event_or_one_that_is_due(
    log: Log,
) -> None:
    me = {"worker": "me"}
    log.plant(
        "log_position",
        *(position("m", line, **me) for line in range(4)),
        position("m", 4),
        position("z", 2, **me),
        free("m", 5),
    )
    log.events(event(0, 6), event(1, 5), event(4, 6), event(5, 6))
    log.plant("log_parked", parked("m", 2, 1, "due"), parked("m", 3, 1), parked("z", 3, 1, "due"))
    assert sorted(log.run(LINES.news("me"))) == [("m", 0), ("m", 2)]


def test_processes_say_which_readers_they_run_until_their_lease_ends_or_they_leave(
    log: Log,
) -> None:
    log.readers("a", "m", "z")
    join = LINES.join
    assert log.run(join("one", ["m", "a"], 1_000, NOW)) == [("a", "one"), ("m", "one")]
    both = [("a", "one"), ("m", "one"), ("m", "two")]
    assert log.run(join("two", ["m"], 5_000, NOW + SECOND - 1)) == both
    members = log.tables.rows("log_member", "reader", "worker")
    assert {each: row["expires_at"] - NOW for each, row in members.items()} == {
        ("a", "one"): SECOND,
        ("m", "one"): SECOND,
        ("m", "two"): 6 * SECOND - 1,
    }
    assert log.run(LINES.members(NOW + SECOND)) == [("m", "two")]
    assert log.run(join("one", ["m"], 9_000, NOW + SECOND - 1)) == both
    # The one of `a` has ended, and is forgotten.
    log.run(join("two", ["m"], 9_000, NOW + SECOND))
    members = log.tables.rows("log_member", "reader", "worker")
    assert members.keys() == {("m", "one"), ("m", "two")}
    log.run(READERS.pause("m", True))
    assert log.run(LINES.members(NOW + SECOND)) == []
    log.run(LINES.leave("one"))
    assert log.tables.rows("log_member", "reader", "worker").keys() == {("m", "two")}


def test_processes_are_told_by_reader_and_in_order(log: Log) -> None:
    log.readers("z", "m")
    lives = {"expires_at": NOW + 1}
    for reader, worker in (("z", "b"), ("z", "a"), ("m", "c")):
        log.plant("log_member", {"reader": reader, "worker": worker, **lives})
    assert log.run(LINES.members(NOW)) == [("m", "c"), ("z", "a"), ("z", "b")]


def test_a_reader_is_registered_once_and_keeps_what_is_its_own(log: Log) -> None:
    log.events(event(1, 3))
    register = READERS.register
    log.run(register("z", "consumer", ["z.*"], None, NOW))
    log.run(register("m", "consumer", ["c", "a"], None, NOW))
    log.run(register("m", "relay", ["b", "c"], 0, NOW + SECOND, "nats"))
    first, last = log.run(READERS.all(NOW))
    assert (first.name, first.kind, first.target, first.patterns) == (
        "m", "relay", "nats", ["b", "c"],
    )  # fmt: skip
    assert (first.created_at, first.seen_at, first.paused, first.epoch) == (
        NOW, NOW + SECOND, False, 1,
    )  # fmt: skip
    assert (last.name, last.kind, last.target, last.patterns) == ("z", "consumer", None, ["z.*"])
    rows = log.tables.rows("log_position", *KEY)
    assert len(rows) == 32
    assert {key: row["position"] for key, row in rows.items() if row["position"]} == {
        ("m", 1): 3,
        ("z", 1): 3,
    }


def test_the_processes_of_a_reader_are_counted(log: Log) -> None:
    log.readers("m", "z")
    lives = {"worker": "one", "expires_at": NOW + 1}
    log.plant("log_member", {"reader": "m", **lives}, {"reader": "m", **lives, "worker": "two"})
    log.plant("log_member", {"reader": "m", "worker": "gone", "expires_at": NOW})
    found = [(each.members, each.patterns) for each in log.run(READERS.all(NOW))]
    assert found == [(2, []), (0, [])]


@pytest.mark.parametrize(
    ("since", "place"),
    [(None, 4), (0, 0), (NOW, 0), (NOW + 25, 1), (NOW + 30, 1), (NOW + 31, 3), (NOW + 99, 4)],
)
def test_a_reader_begins_before_the_first_event_of_an_instant(
    log: Log, since: int | None, place: int
) -> None:
    times = [10, 30, 20, 40]
    log.events(*(event(1, n, at=NOW + at) for n, at in enumerate(times, 1)))
    log.events(*(event(2, n, at=NOW + 1_000) for n in range(1, 4)), event(3, 9, at=NOW - 1))
    log.run(READERS.register("m", "consumer", ["*"], since, NOW))
    assert log.tables.rows("log_position", *KEY)["m", 1]["position"] == place
    # A second one set back in one line, or in all, is where the first began.
    log.readers("z", epoch=4)
    log.readers("a", epoch=9)
    log.plant("log_position", *(position(*each) for each in READERS_AND_LINES if each[0] != "m"))
    change = {"position": place, "epoch": 5, **GIVEN_BACK, **RECOVERED, **UNBLOCKED}
    moved, found = log.positions(READERS.rewind("z", since, 1))
    assert moved == [(1, place)]
    assert found == {("z", 1): change}
    moved, found = log.positions(READERS.rewind("z", since))
    assert [line for line, _ in moved] == [0, 1, 2]
    assert found.keys() == {("z", 0), ("z", 1), ("z", 2)}
    readers = log.tables.rows("log_reader", "name")
    assert {name: row["epoch"] for (name,), row in readers.items()} == {"m": 1, "z": 6, "a": 9}


@ON_POSTGRES
@pytest.mark.parametrize("since", [NOW + 20, NOW + 40])
def test_places_that_may_still_be_committed_are_not_skipped(log: Log, since: int) -> None:
    log.events(event(1, 1, at=NOW + 10), event(1, 4, at=NOW + 40))
    log.events(event(2, 4, at=NOW + 40), event(3, 5, at=NOW))
    log.run(READERS.register("m", "consumer", ["*"], since, NOW))
    rows = log.tables.rows("log_position", *KEY)
    assert [rows["m", line]["position"] for line in (1, 2)] == [1, 0]


def test_a_reader_of_all_that_is_kept_is_behind_only_where_something_is(log: Log) -> None:
    log.events(event(1, 7))
    log.tables.head(2, 9)
    log.run(READERS.register("m", "consumer", ["*"], 0, NOW))
    lines = log.run(READERS.lines(NOW))
    assert {each.line: each.next for each in lines if each.lag} == {1: 7}


def test_a_pause_takes_the_lines_of_one_reader(log: Log) -> None:
    log.readers("a", "m", "z")
    log.plant("log_position", *(position(*each) for each in READERS_AND_LINES))
    answer, found = log.positions(READERS.pause("m", True))
    assert answer
    assert found == {("m", line): GIVEN_BACK for line in range(3)}
    assert [each.paused for each in log.run(READERS.all())] == [False, True, False]
    assert not log.run(READERS.pause("m", True))
    assert log.run(READERS.pause("m", False))
    assert [each.paused for each in log.run(READERS.all())] == [False] * 3


def test_a_reader_is_removed_with_all_that_is_its_own(log: Log) -> None:
    for name in "amz":
        log.run(READERS.register(name, "consumer", ["*"], None))
        log.plant("log_parked", parked(name, 1, 1))
    assert log.run(READERS.remove("m"))
    assert not log.run(READERS.remove("m"))
    for table in ("log_position", "log_parked", "log_pattern"):
        assert {name for (name,) in log.tables.rows(table, "reader")} == {"a", "z"}, table
    assert [each.name for each in log.run(READERS.all())] == ["a", "z"]


def test_how_far_readers_are_is_told_in_order(log: Log) -> None:
    log.plant("log_position", position("z", 0), position("m", 1, position=2), position("m", 0))
    log.plant("log_position", position("a", 2, expires_at=NOW, blocked=None, blocked_since=None))
    log.plant("log_position", free("a", 1, position=1))
    log.events(*(event(1, place) for place in (4, 1, 3, 5, 2)), event(2, 9), event(0, 4))
    log.plant("log_parked", parked("m", 1, 1), parked("m", 1, 2, "held"), parked("z", 1, 1))
    log.plant("log_parked", parked("m", 0, 1))
    third, fourth = NOW + 3 * SECOND, NOW + 2 * SECOND
    wrong = (2, NOW + 5 * SECOND, "boom")
    blocked = ("ahead", NOW - SECOND)
    assert log.run(READERS.lines(NOW)) == [
        LineRecord("a", 1, 1, 5, 2, fourth, None, 0, None, None, 0, None, None),
        LineRecord("a", 2, 5, 9, 9, NOW + 9 * SECOND, None, *wrong, 0, None, None),
        LineRecord("m", 0, 5, 5, None, None, "w", *wrong, 1, *blocked),
        LineRecord("m", 1, 2, 5, 3, third, "w", *wrong, 2, *blocked),
        LineRecord("z", 0, 5, 5, None, None, "w", *wrong, 0, *blocked),
    ]


def test_a_block_has_the_events_that_a_reader_wants_in_their_order(log: Log) -> None:
    log.plant("log_pattern", {"reader": "m", "pattern": "order.*"}, {"reader": "z", "pattern": "*"})
    log.events(
        event(0, 3),
        event(1, 5),
        event(1, 2),
        event(1, 6),
        event(1, 4, event="bill.sent"),
        event(1, 3, key=None, headers='{"h":1}'),
    )
    log.plant("log_parked", parked("m", 1, 1), parked("m", 1, 2), parked("m", 1, 3, key=None))
    log.plant("log_parked", parked("m", 2, 1, "due", key="x"), parked("z", 1, 1, "due", key="y"))
    block = log.run(LINES.read("m", 1, 2, 0, 3))
    assert (block.upto, block.seen, block.parked_keys, block.has_due) == (5, 5, {"k"}, False)
    found = msgspec.json.decode(block.text)
    at = [NOW + 3 * SECOND, NOW + 5 * SECOND]
    assert found == [
        [3, "order.paid", None, {"n": 3}, {"h": 1}, id_of(103), at[0]],
        [5, "order.paid", "k", {"n": 5}, None, id_of(105), at[1]],
    ]
    log.plant("log_parked", parked("m", 1, 9, "due"))
    assert log.run(LINES.read("m", 1, 6, 0, 3)).has_due


@ON_POSTGRES
def test_there_are_as_many_lines_as_the_database_says(log: Log) -> None:
    log.scene.app.database.migrate()
    log.tables.execute("update holdfast.identity set log_lines = 3", "")
    log.run(READERS.register("m", "consumer", ["*"], None))
    assert sorted(log.tables.rows("log_position", *KEY)) == [("m", 0), ("m", 1), ("m", 2)]
    log.run(READERS.begin_part(0, NOW))
    log.events(event(2, 1, at=NOW), event(3, 1, at=NOW))
    log.tables.execute("update holdfast.log_position set position = 1 where line = 2", "")
    # Of a line that there is not nothing is looked at.
    log.plant("log_position", free("m", 3))
    assert log.run(READERS.parts())[0].is_passed
    log.tables.execute("update holdfast.log_position set position = 1 where line = 3", "")
    assert log.run(READERS.trim(0, 1_600, NOW + 1)) == 1


@ON_POSTGRES
def test_a_block_with_gaps_is_read_as_far_as_nothing_may_be_missing(log: Log) -> None:
    log.plant("log_pattern", {"reader": "m", "pattern": "order.*"}, {"reader": "z", "pattern": "*"})
    log.events(event(0, 3), event(1, 5, event="bill.sent"), event(2, 1))
    log.events(*(event(1, place) for place in (9, 7, 6, 4, 2, 1, 40, 30)))
    log.plant("log_parked", parked("m", 1, 1, "due"), parked("z", 1, 1, key="y"))

    def read(after: int, settled: int, limit: int = 9) -> Any:
        block = log.run(LINES.read("m", 1, after, settled, limit))
        assert (block.parked_keys, block.has_due) == ({"k"}, True)
        assert block.server is not None
        found = msgspec.json.decode(block.text) if block.text else []
        return block.upto, block.seen, [row[0] for row in found]

    assert read(0, 0) == (2, 40, [1, 2])
    assert read(0, 2) == (2, 40, [1, 2])
    assert read(0, 3) == (7, 40, [1, 2, 4, 6, 7])
    assert read(0, 3, 2) == (2, 2, [1, 2])
    assert read(2, 3, 2) == (5, 5, [4])
    assert read(3, 0) == (7, 40, [4, 6, 7])
    assert read(7, 0) == (None, 40, [])
    # Where all of a block is missing, the next event is still seen.
    assert read(9, 0) == (None, 40, [])
    assert read(9, 29) == (30, 40, [30])
    assert read(40, 0) == (None, None, [])


@ON_POSTGRES
def test_a_position_moves_only_on_the_server_that_was_read(log: Log) -> None:
    log.plant("log_position", position("m", 1))
    server = log.run(LINES.read("m", 1, 5, 0, 1)).server
    for op in (LINES.advance(HELD, 5, 7, server - 1), RELAYS.move(HELD, 5, 7, None, server - 1)):
        assert log.positions(op) == (False, {})
    assert log.run(LINES.advance(HELD, 5, 7, server))
    assert log.run(RELAYS.move(HELD, 7, 8, None, server))


@ON_POSTGRES
def test_the_transactions_that_may_still_commit_a_place_are_told_the_oldest_first(log: Log) -> None:
    draw = "select nextval('holdfast.log_line_1')"
    connect = psycopg.connect
    with (
        connect(log.scene.url) as first,
        connect(log.scene.url) as second,
        connect(log.scene.url) as other,
    ):
        second.execute("select 1")
        first.execute(draw)
        second.execute(draw)
        other.execute("select last_value from holdfast.log_line_1")
        other.execute("select nextval('holdfast.log_line_2')")
        found = log.run(READERS.holders(1))
        assert [each.pid for each in found] == [each.info.backend_pid for each in (second, first)]
        row = first.execute("select pg_current_xact_id()::text").fetchone()
        assert (found[1].xid,) == row
        assert found[0].server == found[1].server
        assert found[0].server
        assert found[0].since < found[1].since
        first.rollback()
        assert len(log.run(READERS.holders(1))) == 1
    assert log.run(READERS.holders(1)) == []


@pytest.mark.parametrize("state", ["held", "failed"])
def test_what_is_parked_behind_another_of_its_key_is_held(log: Log, state: Any) -> None:
    log.events(event(0, 4), *(event(1, n, headers="{}", key="ab"[n > 4]) for n in range(3, 8)))
    log.plant(
        "log_parked",
        parked("m", 1, 1, key="a"),
        parked("z", 1, 1, key="b"),
        parked("m", 0, 1, key="b"),
        parked("m", 1, 9, key="b"),
    )
    _, found = log.parked(LINES.park(HELD, state, [4, 5], "why", 3, NOW))
    kept = {"reader": "m", "error": "why", "attempts": 3, "parked_at": NOW}
    then = {"held": ["held", "due"], "failed": ["failed", "failed"]}[state]
    assert found == {
        ("m", 1, place): event(1, place, headers="{}", key=key) | kept | {"state": each}
        for place, key, each in zip([4, 5], "ab", then, strict=True)
    }


def test_the_first_event_that_is_due_is_taken_out_under_its_lines_token(log: Log) -> None:
    log.plant("log_position", *(position(*each) for each in READERS_AND_LINES))
    log.plant(
        "log_parked",
        parked("m", 1, 1),
        parked("m", 1, 4, "due"),
        parked("m", 1, 3, "due"),
        *(parked(*each, 2, "due") for each in READERS_AND_LINES if each != ("m", 1)),
        *(parked(*each, 3, "due") for each in READERS_AND_LINES if each != ("m", 1)),
    )
    assert log.run(LINES.first_due(LineToken("m", 3, TOKEN))) is None
    ((place, *_),) = msgspec.json.decode(log.run(LINES.first_due(HELD)))
    assert place == 3
    stranger = LineToken("m", 1, OTHER)
    assert log.parked(LINES.unpark(stranger, 3, None)) == (False, {})
    assert log.parked(LINES.unpark(HELD, 3, None)) == (True, {("m", 1, 3): None})


def test_an_event_that_failed_again_holds_those_behind_it(log: Log) -> None:
    for reader, line in READERS_AND_LINES:
        log.plant("log_parked", *(parked(reader, line, n, "due") for n in range(1, 5)))
    log.plant("log_parked", parked("m", 1, 5), parked("m", 1, 6, "due", key="other"))
    _, found = log.parked(LINES.park_again(HELD, 2, "worse", "k", 3, NOW + SECOND))
    assert found == {
        ("m", 1, 2): {
            "state": "failed",
            "error": "worse",
            "attempts": 5,
            "parked_at": NOW + SECOND,
        },
        ("m", 1, 3): {"state": "held"},
        ("m", 1, 4): {"state": "held"},
    }


def test_parked_events_are_listed_and_counted(log: Log) -> None:
    log.plant("log_parked", parked("z", 0, 1), parked("m", 1, 2), parked("m", 1, 1, "held"))
    log.plant("log_parked", parked("m", 0, 3), parked("m", 0, 9, "due"))
    found = log.run(READERS.parked_events(None, None, 4))
    assert [(each.reader, each.line, each.place) for each in found] == [
        ("m", 0, 3), ("m", 0, 9), ("m", 1, 1), ("m", 1, 2),
    ]  # fmt: skip
    assert msgspec.structs.asdict(found[3]) == {
        name: value for name, value in parked("m", 1, 2).items() if name not in ("data", "headers")
    }
    assert [each.reader for each in log.run(READERS.parked_events("z", None, 4))] == ["z"]
    assert [each.place for each in log.run(READERS.parked_events(None, "held", 4))] == [1]
    totals = log.run(READERS.parked_totals())
    assert [(each.reader, each.state, each.events) for each in totals] == [
        ("m", "due", 1), ("m", "failed", 2), ("m", "held", 1), ("z", "failed", 1),
    ]  # fmt: skip


def keys_of_lines(log: Log) -> None:
    """Of every reader and line a failed event with one held behind it; in one line those of another key as well."""
    for reader, line in READERS_AND_LINES:
        same = {"key": "k"}
        log.plant("log_parked", parked(reader, line, 1, id=id_of(1), **same))
        log.plant("log_parked", parked(reader, line, 2, "held", id=id_of(2), **same))
    log.plant("log_parked", parked("m", 1, 3, id=id_of(3), key="x"))
    log.plant("log_parked", parked("m", 1, 4, "held", id=id_of(4), key="x"))


def test_a_retry_by_id_releases_those_held_behind_it_and_none_that_waits(log: Log) -> None:
    keys_of_lines(log)
    assert log.states(READERS.retry_parked("m", [id_of(2), id_of(4)])) == ([], {})
    # Another one that failed is not asked for.
    log.plant("log_parked", parked("m", 1, 9, id=id_of(9), key="x"))
    answer, found = log.states(READERS.retry_parked("m", [id_of(3)]))
    assert sorted(answer) == [id_of(3), id_of(4)]
    assert found == {("m", 1, 3): "due", ("m", 1, 4): "due"}
    answer, found = log.states(READERS.retry_parked("m", None))
    rest = {("m", line, place): "due" for line in range(3) for place in (1, 2)}
    assert found == rest | {("m", 1, 9): "due"}
    # One that waits behind an event that is due already stays where it is, whoever names both.
    log.plant("log_parked", parked("m", 1, 5, "held", id=id_of(5), key="x"))
    assert log.states(READERS.retry_parked("m", [id_of(3), id_of(5)]))[1] == {}


def test_a_held_event_waits_for_a_failed_one_of_its_own_line_and_key(log: Log) -> None:
    log.plant("log_parked", parked("m", 1, 1, "held", key="k"))
    log.plant("log_parked", parked("m", 2, 1, id=id_of(9), key="k"))
    log.plant("log_parked", parked("z", 1, 3, id=id_of(9), key="k"))
    log.plant("log_parked", parked("m", 1, 4, id=id_of(9), key="x"))
    _, found = log.states(READERS.retry_parked("m", [id_of(9)]))
    assert found == {("m", 2, 1): "due", ("m", 1, 4): "due"}


def test_a_skip_removes_what_failed_and_releases_what_waited_for_it(log: Log) -> None:
    keys_of_lines(log)
    log.plant("log_parked", parked("z", 4, 1, "held"), parked("m", 4, 1, id=id_of(5), key=None))
    assert log.states(READERS.skip_parked("m", [id_of(2), id_of(9)])) == ([], {})
    answer, found = log.states(READERS.skip_parked("m", [id_of(3)]))
    assert answer == [id_of(3)]
    assert found == {("m", 1, 3): None, ("m", 1, 4): "due"}
    _, found = log.states(READERS.skip_parked("m", None))
    gone = {("m", line, 1): None for line in (0, 1, 2, 4)}
    assert found == gone | {("m", line, 2): "due" for line in range(3)}


def test_those_of_a_key_are_released_where_nothing_failed_before_them(log: Log) -> None:
    keys_of_lines(log)
    assert log.states(LINES.free_key(HELD, "k")) == (None, {})
    for line, key in ((1, "y"), (2, "y"), (1, "w")):
        log.plant("log_parked", parked("m", line, 7 + (key == "w"), "held", key=key))
    assert log.states(LINES.free_key(HELD, "y")) == (None, {("m", 1, 7): "due"})


def test_old_events_are_removed_that_every_reader_has_passed(log: Log) -> None:
    places = range(6, 0, -1)
    log.events(*(event(line, n, at=NOW + n) for line in (1, 2, 3) for n in places))
    log.plant("log_position", free("m", 1, position=3), free("z", 1, position=9))
    log.plant("log_position", free("m", 2, position=9))

    def left() -> dict[int, list[int]]:
        places: dict[int, list[int]] = {}
        for line, place in sorted(log.tables.rows("log", "line", "place")):
            places.setdefault(line, []).append(place)
        return places

    now = NOW + 5 + 2_000
    # In PostgreSQL each line has a sixteenth of it.
    assert log.run(READERS.trim(2, 16 if log.scene.is_postgres else 3, now)) == 3
    assert left() == {line: [2, 3, 4, 5, 6] for line in (1, 2, 3)}
    assert log.run(READERS.trim(2, 1_600, now)) == 8
    assert left() == {1: [4, 5, 6], 2: [5, 6], 3: [5, 6]}


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_file_has_no_parts_and_nobody_who_may_still_commit(log: Log) -> None:
    log.run(READERS.begin_part(1))
    assert log.run(READERS.parts()) == []
    log.run(READERS.end_part(1))
    assert log.run(READERS.holders(1)) == []


@ON_POSTGRES
def test_a_part_of_the_log_is_passed_when_every_reader_of_its_lines_has_passed_it(log: Log) -> None:
    for part, at in ((0, 1), (2, NOW + SECOND), (1, NOW), (1, NOW + 5)):
        log.run(READERS.begin_part(part, at))
    log.events(event(1, 1), event(1, 3), event(2, 1), event(4, 7))
    log.plant("log_position", free("m", 1, position=3), free("z", 1, position=2))
    log.plant("log_position", free("m", 2, position=1))
    first, second, third = log.run(READERS.parts())
    assert (first.part, first.ends_at, first.is_passed) == (0, NOW, False)
    assert second == LogPart(1, NOW, NOW + SECOND, True)
    assert third == LogPart(2, NOW + SECOND, None, True)
    log.tables.execute("update holdfast.log_position set position = 3 where line = 1", "")
    assert log.run(READERS.parts())[0].is_passed
    for part in (1, 2):
        log.run(READERS.end_part(part))
        assert part not in [each.part for each in log.run(READERS.parts())]
    assert [each.part for each in log.run(READERS.parts())] == [0]


def test_a_relay_reads_what_the_log_and_its_parked_events_have(log: Log) -> None:
    log.events(event(0, 1), event(0, 5), *(event(1, n) for n in range(2, 7)), event(2, 5))
    assert log.run(RELAYS.ids(1, [3, 5, 9])) == {3: id_of(103), 5: id_of(105)}
    assert log.run(RELAYS.range_of(1, 3, 5)) == (2, 2)
    assert log.run(RELAYS.range_of(4, 3, 5)) == (0, None)
    log.plant("log_parked", *(parked(*each, 3) for each in READERS_AND_LINES))
    log.plant("log_parked", parked("a", 1, 4), parked("z", 1, 5), parked("m", 2, 6))
    assert log.run(RELAYS.parked_places(HELD)) == {3: id_of(103)}


def test_parked_events_that_a_stream_has_are_removed_under_their_lines_token(log: Log) -> None:
    keys_of_lines(log)
    log.plant("log_position", *(position(*each) for each in READERS_AND_LINES))
    stranger = LineToken("m", 1, OTHER)
    assert log.states(RELAYS.unpark(stranger, [id_of(1)])) == (None, {})
    assert log.states(RELAYS.unpark(HELD, [id_of(1)])) == (
        None,
        {("m", 1, 1): None, ("m", 1, 2): "due"},
    )
    # A token of another line, or of another reader's, is none.
    log.plant("log_position", position("m", 4), free("m", 5))
    log.plant("log_position", position("z", 5))
    log.plant("log_parked", parked("m", 5, 1, id=id_of(1)))
    assert log.states(RELAYS.unpark(LineToken("m", 5, TOKEN), [id_of(1)])) == (None, {})
    assert log.states(LINES.unpark(LineToken("m", 5, TOKEN), 1, None)) == (False, {})


def test_the_epoch_of_a_reader_only_grows(log: Log) -> None:
    log.readers("a", "m", "z", epoch=4)
    log.run(RELAYS.raise_epoch("m", 7))
    log.run(RELAYS.raise_epoch("m", 5))
    assert [each.epoch for each in log.run(READERS.all())] == [4, 7, 4]


def test_lines_that_wait_go_on_in_a_new_epoch_or_have_their_stream_created(log: Log) -> None:
    log.readers("a", "m", "z", epoch=4)
    unfit = {"blocked": "unfit"}
    log.plant("log_position", *(position(*each) for each in READERS_AND_LINES))
    log.plant("log_position", *(position(reader, 4, **unfit) for reader in "amz"))
    lines, found = log.positions(RELAYS.rebase("m"))
    assert lines == [0, 1, 2]
    assert found == {
        ("m", line): {"epoch": 5, **UNBLOCKED, **RECOVERED, **GIVEN_BACK} for line in range(3)
    }
    lines, found = log.positions(RELAYS.recreate("m"))
    assert lines == [4]
    assert found == {("m", 4): {"blocked": "recreate", **RECOVERED, **GIVEN_BACK}}
