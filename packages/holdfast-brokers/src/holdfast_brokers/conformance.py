"""What every notifier must hold. Inherit NotifierConformance, or NotifierServerConformance where a server can fail."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Protocol

import pytest

from holdfast.notify.base import ANY, LOOK_EVERYWHERE, Hint, Listener, Notifier

PATIENCE_S = 30.0
WINDOW_S = 0.01

HOSTILE_TYPES = (
    "o'brien; drop table job; --",
    'say "hi"\\n\\',
    "naïve-日本語-🦀",
    "nul\x00, newline\n and tab\t",
    "lone \ud800 surrogate",
    "{}[]%s%(x)s:name$1",
    "x" * 1_024,
    "é" * 1_024,
    "too long for any payload " * 1_000,
)

MakeNotifier = Callable[[], Notifier]


class NotifierServer(Protocol):
    """The server behind a notifier, at an address that stays the same."""

    def stop(self) -> None:
        """End it at once."""

    def start(self) -> None:
        """Run it again."""

    def freeze(self) -> None:
        """Let it do nothing, with its connections open."""

    def thaw(self) -> None:
        """Let it go on."""


class HintRecorder:
    """A callback that keeps what it received and lets a test wait for it."""

    def __init__(self) -> None:
        self.received: list[Hint] = []
        self._arrived = threading.Condition()

    def __call__(self, hint: Hint) -> None:
        with self._arrived:
            self.received.append(hint)
            self._arrived.notify_all()

    def forget(self) -> None:
        """Start with nothing received."""
        with self._arrived:
            self.received.clear()

    def wait_until(self, satisfied: Callable[[list[Hint]], bool]) -> None:
        """Return when what was received satisfies the condition; fail when it takes too long."""
        with self._arrived:
            if not self._arrived.wait_for(lambda: satisfied(self.received), PATIENCE_S):
                pytest.fail(f"received only {self.received[:20]}")

    def wait_for_type(self, type: str) -> None:
        """Return when a look for this type, or for all, was asked for."""
        self.wait_until(lambda received: any(covers(hint, type) for hint in received))


def listen(notifier: Notifier) -> tuple[HintRecorder, Listener]:
    """Listen until that is proven to work; what was received by then is forgotten."""
    recorder = HintRecorder()
    listener = notifier.listen(recorder)
    assert listener.wait_until_alive(PATIENCE_S)
    recorder.forget()
    return recorder, listener


def covers(hint: Hint, type: str) -> bool:
    """Whether a worker of this type would look."""
    return hint.kind in ("due", "look") and hint.type in (type, ANY)


def covers_ids(received: list[Hint], kind: str, ids: set[str]) -> bool:
    """Whether all these ids were named, or a wider hint came instead."""
    named = [hint for hint in received if hint.kind == kind or hint == LOOK_EVERYWHERE]
    return any(not hint.ids for hint in named) or ids <= {id for hint in named for id in hint.ids}


class NotifierConformance:
    """Inherit and override `make_notifier`: each call returns a new notifier, and all hear each other."""

    @pytest.fixture
    def make_notifier(self) -> MakeNotifier:
        raise NotImplementedError("override this fixture")

    @pytest.fixture
    def notifier(self, make_notifier: MakeNotifier) -> Iterator[Notifier]:
        """The one that listens; nothing of it may be left when it is closed."""
        before = set(threading.enumerate())
        notifier = make_notifier()
        yield notifier
        notifier.close()
        assert set(threading.enumerate()) <= before

    @pytest.fixture
    def other(self, notifier: Notifier, make_notifier: MakeNotifier) -> Iterator[Notifier]:
        """The one that sends."""
        other = make_notifier()
        yield other
        other.close()

    @pytest.fixture
    def recorder(self, notifier: Notifier) -> HintRecorder:
        """What the listener received once it was proven to hear."""
        recorder, listener = listen(notifier)
        assert listener.alive
        return recorder

    def test_a_hint_reaches_a_listener_of_another_notifier(
        self, recorder: HintRecorder, other: Notifier
    ) -> None:
        other.send([Hint("due", "mail")])
        recorder.wait_for_type("mail")

    def test_a_hint_reaches_the_notifier_that_sent_it(
        self, recorder: HintRecorder, notifier: Notifier
    ) -> None:
        notifier.send([Hint("look", "mail")])
        recorder.wait_for_type("mail")

    def test_every_listener_hears(
        self, recorder: HintRecorder, notifier: Notifier, other: Notifier
    ) -> None:
        second, _ = listen(notifier)
        other.send([Hint("due", "mail")])
        recorder.wait_for_type("mail")
        second.wait_for_type("mail")

    def test_a_thousand_sends_become_few_batches_and_every_type_arrives(
        self, recorder: HintRecorder, other: Notifier
    ) -> None:
        types = [f"type-{number}" for number in range(1_000)]
        started = time.monotonic()
        for type in types:
            other.send([Hint("due", type)])
        recorder.wait_until(
            lambda received: (
                LOOK_EVERYWHERE in received
                or {hint.type for hint in received} >= set(types)
                or any(covers(hint, ANY) for hint in received)
            )
        )
        other.close()
        windows = (time.monotonic() - started) / WINDOW_S
        assert other.counts.batches <= windows + 2
        assert other.counts.dropped == 0

    def test_the_same_hint_is_merged(self, recorder: HintRecorder, other: Notifier) -> None:
        started = time.monotonic()
        for _ in range(1_000):
            other.send([Hint("due", "mail")])
        other.send([Hint("due", "last")])
        recorder.wait_for_type("last")
        windows = (time.monotonic() - started) / WINDOW_S
        assert len(recorder.received) <= 10 + 3 * windows

    @pytest.mark.parametrize("type", HOSTILE_TYPES, ids=range(len(HOSTILE_TYPES)))
    def test_a_hostile_type_arrives_or_a_wider_hint(
        self, recorder: HintRecorder, other: Notifier, type: str
    ) -> None:
        other.send([Hint("due", type)])
        recorder.wait_for_type(type)
        assert other.counts.dropped == 0

    def test_many_lost_jobs_arrive_or_a_wider_hint(
        self, recorder: HintRecorder, other: Notifier
    ) -> None:
        ids = tuple(f"0193a6f0-7c00-7000-8000-{number:012d}" for number in range(500))
        other.send([Hint("lost", worker="w-1", ids=ids)])
        other.send([Hint("due", "last")])
        self._wait_for_ids_where_they_travel(recorder, "lost", set(ids))

    def test_many_ended_chains_arrive_or_a_wider_hint(
        self, recorder: HintRecorder, other: Notifier
    ) -> None:
        ids = tuple(f"0193a6f0-7c00-7000-8000-{number:012d}" for number in range(20_000))
        other.send([Hint("ended", ids=ids)])
        other.send([Hint("due", "last")])
        self._wait_for_ids_where_they_travel(recorder, "ended", set(ids))

    def _wait_for_ids_where_they_travel(
        self, recorder: HintRecorder, kind: str, ids: set[str]
    ) -> None:
        recorder.wait_until(lambda received: covers_ids(received, kind, ids))

    def test_a_callback_that_raises_goes_on_hearing(
        self, notifier: Notifier, other: Notifier
    ) -> None:
        received = HintRecorder()

        def fail(hint: Hint) -> None:
            received(hint)
            raise RuntimeError("a bug of the callback")

        assert notifier.listen(fail).wait_until_alive(PATIENCE_S)
        other.send([Hint("due", "first")])
        received.wait_for_type("first")
        received.forget()
        other.send([Hint("due", "second")])
        received.wait_for_type("second")

    def test_a_closed_listener_hears_nothing_and_leaves_no_thread(self, notifier: Notifier) -> None:
        before = set(threading.enumerate())
        _, listener = listen(notifier)
        listener.close()
        assert not listener.alive
        assert set(threading.enumerate()) <= before
        listener.close()

    def test_a_closed_notifier_counts_what_it_drops(self, notifier: Notifier) -> None:
        notifier.close()
        notifier.send([Hint("due", "mail"), Hint("due", "print")])
        assert notifier.counts.dropped == 2
        notifier.close()


class NotifierServerConformance(NotifierConformance):
    """For notifiers over a server; override `server` too, and let `make_notifier` be impatient."""

    @pytest.fixture
    def server(self) -> NotifierServer:
        raise NotImplementedError("override this fixture")

    def test_sending_does_not_raise_while_the_server_is_down(
        self, server: NotifierServer, notifier: Notifier
    ) -> None:
        server.stop()
        notifier.send([Hint("due", "mail")])
        notifier.close()
        assert notifier.counts.dropped == 1
        assert notifier.counts.batches == 0

    def test_sending_does_not_wait_while_the_server_hangs(
        self, server: NotifierServer, notifier: Notifier
    ) -> None:
        server.freeze()
        started = time.monotonic()
        for _ in range(100):
            notifier.send([Hint("due", "mail")])
        assert time.monotonic() - started < 1.0
        server.thaw()

    def test_a_sender_uses_a_new_connection_after_a_restart(
        self, server: NotifierServer, notifier: Notifier, other: Notifier, recorder: HintRecorder
    ) -> None:
        other.send([Hint("due", "before")])
        recorder.wait_for_type("before")
        server.stop()
        recorder.wait_until(lambda received: LOOK_EVERYWHERE in received)
        recorder.forget()
        server.start()
        recorder.wait_until(lambda received: LOOK_EVERYWHERE in received)
        other.send([Hint("due", "after")])
        recorder.wait_until(lambda received: Hint("due", "after") in received)

    def test_a_listener_is_back_after_a_restart_and_asks_for_a_look(
        self, server: NotifierServer, notifier: Notifier
    ) -> None:
        recorder, listener = listen(notifier)
        server.stop()
        recorder.wait_until(lambda received: LOOK_EVERYWHERE in received)
        assert not listener.alive
        recorder.forget()
        server.start()
        recorder.wait_until(lambda received: LOOK_EVERYWHERE in received)
        assert listener.wait_until_alive(PATIENCE_S)
        assert listener.reconnects == 1

    def test_a_listener_notices_a_server_that_is_silent(
        self, server: NotifierServer, notifier: Notifier
    ) -> None:
        recorder, listener = listen(notifier)
        server.freeze()
        recorder.wait_until(lambda received: LOOK_EVERYWHERE in received)
        assert not listener.alive
        server.thaw()
        assert listener.wait_until_alive(PATIENCE_S)

    def test_a_listener_that_never_connected_closes_at_once(
        self, server: NotifierServer, notifier: Notifier
    ) -> None:
        server.stop()
        listener = notifier.listen(HintRecorder())
        assert not listener.alive
        listener.close()
