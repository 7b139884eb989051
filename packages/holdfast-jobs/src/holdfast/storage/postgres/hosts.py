"""Reaches the primary among the hosts of a URL: the one that answered last first, and the others soon after it.

A host that swallows packets says nothing until its time is up, and a standby becomes the primary at any moment. So no
host waits for another: each begins a moment after the one before it, and one that refuses is asked again while others
are still silent. The time of one host is therefore the time of all.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from typing import Any, Generic, TypeAlias, TypeVar

from psycopg import AsyncConnection, Connection, OperationalError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

STAGGER_S = 0.25
"""A host that has not answered for so long is no longer waited for alone."""
AGAIN_S = 0.25
"""A host that refused is asked again after so long, while others are silent: it may have been promoted."""
HOST_TIMEOUT_S = 2
"""How long each host of several may take: a silent one must not use up the time of an operation."""

C = TypeVar("C", bound=Connection[Any])
A = TypeVar("A", bound=AsyncConnection[Any])

Host: TypeAlias = tuple[str, str]


def hosts_of(known: dict[str, Any]) -> list[Host]:
    """Return the hosts of a connection string with their ports; one port counts for all hosts."""
    hosts = str(known.get("host") or "localhost").split(",")
    ports = str(known.get("port") or "").split(",")
    return list(zip(hosts, ports * len(hosts) if len(ports) == 1 else ports, strict=False))


def connect(kind: type[C], text: str, **options: Any) -> C:
    """Open a connection to the first host that takes us. Raises: OperationalError, OSError."""
    race = _race_of(text)
    if race is None:
        return kind.connect(text, **options)
    answers: _Answers[C] = _Answers()

    def attempt(place: int, text: str) -> None:
        try:
            answers.put(place, kind.connect(text, **options))
        except Exception as error:
            answers.put(place, error)

    try:
        while True:
            for place, own in race.begin(time.monotonic()):
                threading.Thread(target=attempt, args=(place, own), daemon=True).start()
            try:
                place, answer = answers.get(race.pause(time.monotonic()))
            except queue.Empty:
                continue
            if not isinstance(answer, Exception):
                return answer
            race.fail(place, answer, time.monotonic())
    finally:
        answers.close()


class _Answers(Generic[C]):
    """What the threads of a race found. Connections that come after its end are closed."""

    def __init__(self) -> None:
        self._found: queue.SimpleQueue[tuple[int, C | Exception]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._is_closed = False

    def put(self, place: int, answer: C | Exception) -> None:
        with self._lock:
            if not self._is_closed:
                self._found.put((place, answer))
            elif not isinstance(answer, Exception):
                answer.close()

    def get(self, timeout: float | None) -> tuple[int, C | Exception]:
        return self._found.get(timeout=timeout)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
        while not self._found.empty():
            _, late = self._found.get()
            if not isinstance(late, Exception):
                late.close()


async def connect_async(kind: type[A], text: str, **options: Any) -> A:
    """Async version of `connect`."""
    race = _race_of(text)
    if race is None:
        return await kind.connect(text, **options)
    attempts: dict[asyncio.Task[A], int] = {}
    winner: asyncio.Task[A] | None = None
    try:
        while winner is None:
            for place, own in race.begin(time.monotonic()):
                attempts[asyncio.create_task(kind.connect(own, **options))] = place
            done, _ = await asyncio.wait(
                attempts, timeout=race.pause(time.monotonic()), return_when=asyncio.FIRST_COMPLETED
            )
            for each in done:
                error = each.exception()
                if error is None:
                    winner = each
                elif not isinstance(error, Exception):
                    raise error
                else:
                    race.fail(attempts.pop(each), error, time.monotonic())
        return winner.result()
    finally:
        for each in attempts:
            if each is not winner:
                each.cancel()
                each.add_done_callback(_close_late)


def _close_late(attempt: asyncio.Task[A]) -> None:
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().pgconn.finish()


class Race:
    """Says which host is asked when, and when none is left to hope for."""

    def __init__(self, hosts: list[str], texts: list[str], limit_s: float, now: float) -> None:
        self._hosts = hosts
        self._texts = texts
        self._deadline = now + limit_s
        self._begin_at: dict[int, float] = {
            place: now + place * STAGGER_S for place in range(len(texts))
        }
        self._asked: set[int] = set()
        self._errors: dict[int, Exception] = {}

    def begin(self, now: float) -> list[tuple[int, str]]:
        """Return the hosts to be asked now, and the connection string of each."""
        places = [place for place, at in self._begin_at.items() if at <= now]
        for place in places:
            del self._begin_at[place]
            self._asked.add(place)
        return [(place, self._texts[place]) for place in places]

    def pause(self, now: float) -> float | None:
        """In how many seconds the next host is to be asked, None when all were."""
        return max(0.0, min(self._begin_at.values()) - now) if self._begin_at else None

    def fail(self, place: int, error: Exception, now: float) -> None:
        """Go on without a host. Raises: OperationalError when no other may still answer."""
        if not isinstance(error, OperationalError | OSError):
            raise error
        self._asked.discard(place)
        self._errors[place] = error
        untried = [each for each in self._begin_at if each not in self._errors]
        if untried:
            self._begin_at[min(untried)] = now
        elif not self._asked:
            raise OperationalError("\n".join(map(self._reason, sorted(self._errors))))
        if self._asked and now + AGAIN_S < self._deadline:
            self._begin_at[place] = now + AGAIN_S

    def _reason(self, place: int) -> str:
        """The first line of an error says it all, behind what the driver says of the address."""
        error = self._errors[place]
        line = (str(error).strip().splitlines() or [repr(error)])[0]
        return f"{self._hosts[place]}: {line.rpartition('failed: ')[2]}"


def _race_of(text: str) -> Race | None:
    """Return the race between the hosts of a connection string, None where there is one host."""
    known = conninfo_to_dict(text)
    hosts = hosts_of(known)
    if len(hosts) < 2 or "hostaddr" in known:
        return None
    return Race(
        [f"{host}:{port}" if port else host for host, port in hosts],
        [make_conninfo(text, host=host, port=port or None) for host, port in hosts],
        float(known.get("connect_timeout") or HOST_TIMEOUT_S),
        time.monotonic(),
    )
