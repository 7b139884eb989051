"""Puts the parts of one worker together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from holdfast.client.targets import Targets
from holdfast.notify.port import Notifier
from holdfast.storage.database import Link
from holdfast.storage.identifiers import new_id
from holdfast.worker.backlog import Backlog, Overdue
from holdfast.worker.calls import Calls
from holdfast.worker.claimer import Claimer
from holdfast.worker.companions import Companion, Companions
from holdfast.worker.completer import Completer
from holdfast.worker.continuing import Continuation
from holdfast.worker.deadlines import Deadlines
from holdfast.worker.execution import Execution
from holdfast.worker.heartbeat import Heartbeat
from holdfast.worker.hints import Hints
from holdfast.worker.latecomers import Latecomers
from holdfast.worker.middleware import Middleware
from holdfast.worker.news import News
from holdfast.worker.outcomes import Outcomes
from holdfast.worker.pace import Pace
from holdfast.worker.presence import sign_of
from holdfast.worker.processes import ProcessHandlers
from holdfast.worker.quarantine import Quarantine
from holdfast.worker.reaper import Reaper
from holdfast.worker.records import Office, Records
from holdfast.worker.returns import Returns
from holdfast.worker.slots import Slots
from holdfast.worker.stragglers import Stragglers
from holdfast.worker.sweeper import Sweeper
from holdfast.worker.thread import LoopThread, SameLoop
from holdfast.worker.watch import Watch
from holdfast.worker.watchdog import Watchdog
from holdfast.worker.workplace import Workplace

OWN_LINKS = ("claim", "complete", "fan-in")
COMPANIONS_LINKS = ("heartbeat", "reaper")


class Parts:
    """Everything one worker consists of; `to_loop` has something done on its loop, from any thread."""

    def __init__(
        self,
        place: Workplace,
        notifier: Notifier | None,
        middlewares: Sequence[Middleware],
        targets: Targets,
        to_loop: Callable[..., None],
        stop: Callable[[str], None],
        own_thread: bool,
    ) -> None:
        self.links = _links(place)
        self.hints = Hints(place.id, notifier)
        self.pace = Pace(place.options)
        self.backlog = Backlog(place.terms.limit, self._is_behind)
        self.claimer = Claimer(
            place,
            self.links["claim"],
            self.backlog,
            self.pace,
            new_id,
            expect=self._expect,
            missed=self._give_back,
            is_held_up=self._is_behind,
        )
        # Only one job whose worker died is held at a time, so the next of them has to be looked for.
        place.holdings.when_calm = partial(to_loop, self.claimer.hint, None, True)
        place.holdings.when_less = partial(to_loop, self._less_held)
        self.quarantine = self.claimer.quarantine = Quarantine(
            place,
            self.links["complete"],
            self.backlog,
            lambda: self.slots.running,
            partial(self.claimer.hint, None, True),
        )
        self.records = Records(place, self.claimer, self.hints)
        self.outcomes = Outcomes(place.holdings, self.records)
        self.stragglers = Stragglers(
            place, self.links["fan-in"], self.outcomes, self.records.opened
        )
        self.completer = Completer(
            place, self.links["complete"], self.outcomes, self.stragglers.add
        )
        self.completer.when_eased = self._go_on
        # A server that went away may have forgotten our last claims, and others may have them by now.
        place.trouble.when_back = self.check_leases
        # Most leases go with the flush that ends their last job; those of handlers' own transactions do not.
        place.holdings.when_untidy = partial(to_loop, self.completer.tidy)
        self._build_slots(place, middlewares, targets, stop)
        self._build_companions(place, to_loop, stop, own_thread)

    def _build_slots(
        self,
        place: Workplace,
        middlewares: Sequence[Middleware],
        targets: Targets,
        stop: Callable[[str], None],
    ) -> None:
        self.threads = ThreadPoolExecutor(place.options.slots, "holdfast-handler")
        self.processes = ProcessHandlers(lambda job: self.slots.begun(job.held))
        calls = Calls(place.types, middlewares, self.threads, self.processes)
        continuation = Continuation(place.id, new_id, targets)
        self.office = Office(place, self.records, self.completer, self.claimer)
        self.slots = Slots(
            place,
            self.backlog,
            Execution(place, calls, continuation),
            self.office,
            self._expect,
        )
        self.overdue = Overdue(place.clock, self.backlog, self.office.give_back)
        self.quarantine.give_back = self.office.give_back
        self.watch = Watch(
            place,
            self.slots,
            self.hints,
            self.pace,
            self.claimer.nudge,
            partial(stop, "all slots are stuck"),
        )

    def _build_companions(
        self,
        place: Workplace,
        to_loop: Callable[..., None],
        stop: Callable[[str], None],
        own_thread: bool,
    ) -> None:
        news = News(
            place,
            self.claimer,
            self.backlog,
            self.completer,
            self.records,
            self.hints,
            to_loop=to_loop,
            asked_to_drain=partial(stop, "drained"),
            give_back=self._give_back,
        )
        beating, reaping = (self.links[purpose] for purpose in COMPANIONS_LINKS)
        self.heartbeat = Heartbeat(place, beating, news, partial(sign_of, place))
        self.deadlines = Deadlines(place, beating, news, self._on_companions_loop)
        self.returns = Returns(place, reaping, news.released)
        self.latecomers = Latecomers(place, reaping, new_id, news.delivered)
        reaper = Reaper(place, reaping, news.reaped)
        self.watchdog = Watchdog(
            place,
            reaping,
            self.slots,
            to_loop,
            self._on_companions_loop,
            partial(to_loop, stop, "the event loop is blocked"),
        )
        loops: list[Companion] = [
            self.heartbeat,
            self.deadlines,
            self.returns,
            self.latecomers,
            Sweeper(place, reaping),
            self.watchdog,
        ]
        if place.options.reaps:
            loops.append(reaper)
        self.companions = Companions(loops, [beating, reaping])
        host = LoopThread if own_thread else SameLoop
        self.host: LoopThread | SameLoop = host("holdfast-heartbeat", self.companions.run)

    def check_leases(self) -> None:
        """Have the heartbeat look what is still ours. From any thread."""
        self._on_companions_loop(self.heartbeat.nudge)

    def _less_held(self) -> None:
        self.quarantine.look_again()

    def _is_behind(self) -> bool:
        return self.completer.is_behind()

    def _go_on(self) -> None:
        self.backlog.resume()
        self.claimer.nudge()

    def _expect(self, at: float) -> None:
        self.deadlines.expect(at)

    def _give_back(self) -> None:
        self._on_companions_loop(self.returns.nudge)

    def _on_companions_loop(self, function: Callable[..., object], *arguments: Any) -> None:
        self.host.call(function, *arguments)


def _links(place: Workplace) -> dict[str, Link]:
    """Return a link for each purpose; none of them is connected yet."""
    timeout_ms = place.options.statement_timeout_ms
    return {
        # A claim that is lost with the server was never made: its completion finds no token and is refused.
        purpose: place.database.link(purpose, timeout_ms, durable=purpose != "claim")
        for purpose in (*OWN_LINKS, *COMPANIONS_LINKS)
    }
