"""Everything this process holds under lease, shared between the loop and the heartbeat thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from holdfast.worker.attempt import Attempt
from holdfast.worker.wakes import Wakes


class HeldLease:
    """One lease of ours: its attempts that have not ended, and until when we may rely on it."""

    __slots__ = ("attempts", "deadline", "is_clean", "lease_ms", "token")

    def __init__(self, token: str, lease_ms: int, deadline: float) -> None:
        self.token = token
        self.lease_ms = lease_ms
        self.deadline = deadline
        self.attempts: dict[str, Attempt] = {}
        self.is_clean = True


class HeldLeases:
    """The leases of one worker. Every method is safe from both threads."""

    def __init__(self, wakes: Wakes) -> None:
        self._wakes = wakes
        self._lock = threading.Lock()
        self._leases: dict[str, HeldLease] = {}
        self._claiming: set[str] = set()
        self._unanswered: set[str] = set()
        self._empty: list[str] = []
        self._uncertain: list[str] = []
        self._removed: set[str] | None = None
        self.crashed = 0

    def __len__(self) -> int:
        with self._lock:
            return sum(len(lease.attempts) for lease in self._leases.values())

    def begin_claim(self, tokens: Iterable[str]) -> None:
        """Note the tokens of a claim in flight, so that the heartbeat leaves them alone."""
        with self._lock:
            self._claiming.update(tokens)

    def end_claim(self, tokens: Iterable[str], leases: Iterable[HeldLease]) -> None:
        """Add what a claim brought."""
        with self._lock:
            self._claiming.difference_update(tokens)
            for lease in leases:
                self._leases[lease.token] = lease
                self.crashed += sum(each.claimed.crashes > 0 for each in lease.attempts.values())

    def add_unanswered(self, tokens: Iterable[str]) -> None:
        """Note a claim whose answer was lost: what it took must be given back."""
        with self._lock:
            tokens = set(tokens)
            self._claiming -= tokens
            self._unanswered |= tokens
        self._wakes.orphans.set_soon()

    def take_unanswered(self) -> list[str]:
        """Return the tokens of lost answers, to be released."""
        with self._lock:
            tokens, self._unanswered = list(self._unanswered), set()
            return tokens

    @property
    def has_unanswered(self) -> bool:
        """Whether a claim may have taken jobs unknown here."""
        return bool(self._unanswered or self._claiming)

    def remove(self, attempts: Iterable[Attempt]) -> None:
        """Remove attempts whose outcome is recorded."""
        self._remove(attempts, recorded=True)

    def remove_lost(self, attempt: Attempt) -> None:
        """Remove an attempt whose outcome is not ours to record: its row may still carry the token."""
        self._remove((attempt,), recorded=False)
        self._wakes.flushes.set_soon()

    def _remove(self, attempts: Iterable[Attempt], recorded: bool) -> None:
        with self._lock:
            before = self.crashed
            for attempt in attempts:
                claimed = attempt.claimed
                lease = self._leases.get(claimed.token)
                if lease is None or lease.attempts.pop(claimed.id, None) is None:
                    continue
                if claimed.crashes > 0:
                    self.crashed -= 1
                if not recorded:
                    lease.is_clean = False
                if not lease.attempts:
                    del self._leases[claimed.token]
                    if self._removed is not None:
                        self._removed.add(claimed.token)
                    (self._empty if lease.is_clean else self._uncertain).append(claimed.token)
            none_crashed_left = before > 0 and self.crashed == 0
            beside_crashed = before > 0
        if beside_crashed:
            self._wakes.suspects.set_soon()
        if none_crashed_left:
            # Only one job whose worker died is held at a time, so the next of them has to be claimed after it.
            self._wakes.claims.set_for_all()

    @property
    def has_empty(self) -> bool:
        """Whether there are leases to be deleted."""
        return bool(self._empty or self._uncertain)

    def take_empty(self) -> list[str]:
        """Return the tokens of leases whose every job has ended, to be deleted without a check."""
        with self._lock:
            tokens, self._empty = self._empty, []
            return tokens

    def take_uncertain(self) -> list[str]:
        """Return the tokens of leases that hold nothing of ours, to be deleted unless a row carries one."""
        with self._lock:
            tokens, self._uncertain = self._uncertain, []
            return tokens

    def put_back(self, tokens: Iterable[str]) -> None:
        """Keep leases that could not be deleted, for the next try."""
        with self._lock:
            self._uncertain.extend(tokens)

    def leases(self) -> list[HeldLease]:
        """The leases as they are now."""
        with self._lock:
            return list(self._leases.values())

    def by_lease(self) -> list[tuple[HeldLease, list[Attempt]]]:
        """The leases with their attempts that have not ended."""
        with self._lock:
            return [(lease, list(lease.attempts.values())) for lease in self._leases.values()]

    def attempts(self) -> list[Attempt]:
        """Every attempt that has not ended."""
        with self._lock:
            return [each for lease in self._leases.values() for each in lease.attempts.values()]

    @contextmanager
    def compare(self) -> Iterator[Callable[[str], bool]]:
        """Yield a test whether a token is known here: held, being claimed, or removed since this block began.

        The database's answer is a moment old when it arrives, and a lease may have ended meanwhile.
        """
        with self._lock:
            removed = self._removed = set[str]()
        try:
            yield lambda token: self._is_held_or_claiming(token) or token in removed
        finally:
            with self._lock:
                self._removed = None

    def _is_held_or_claiming(self, token: str) -> bool:
        with self._lock:
            return token in self._leases or token in self._claiming
