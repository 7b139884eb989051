"""Everything this process holds under lease, shared between the loop and the heartbeat thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from holdfast.worker.attempt import Attempt

UNTIDY = 50
"""So many leases that hold nothing are worth a statement of their own; fewer wait for company."""


class HeldClaim:
    """One lease of ours: its attempts that have not ended, and until when we may believe in it."""

    __slots__ = ("attempts", "deadline", "is_clean", "lease_ms", "token")

    def __init__(self, token: str, lease_ms: int, deadline: float) -> None:
        self.token = token
        self.lease_ms = lease_ms
        self.deadline = deadline
        self.attempts: dict[str, Attempt] = {}
        self.is_clean = True


class Holdings:
    """The claims of one worker. Every method is safe from both threads.

    `when_calm` is called, from either thread, when the last held job ends whose earlier worker died, `when_less` when
    any job ends while one of those is held, `when_untidy` when many leases hold nothing any more, or all of them.
    """

    def __init__(self) -> None:
        self.when_calm: Callable[[], None] = lambda: None
        self.when_less: Callable[[], None] = lambda: None
        self.when_untidy: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        self._claims: dict[str, HeldClaim] = {}
        self._asking: set[str] = set()
        self._unanswered: set[str] = set()
        self._emptied: list[str] = []
        self._doubtful: list[str] = []
        self._parted: set[str] | None = None
        self.crashed = 0

    def __len__(self) -> int:
        with self._lock:
            return sum(len(claim.attempts) for claim in self._claims.values())

    def ask(self, tokens: Iterable[str]) -> None:
        """Note tokens of a claim that is under way, so that the heartbeat leaves them alone."""
        with self._lock:
            self._asking.update(tokens)

    def answered(self, tokens: Iterable[str], claims: Iterable[HeldClaim]) -> None:
        """Take over what a claim brought."""
        with self._lock:
            self._asking.difference_update(tokens)
            for claim in claims:
                self._claims[claim.token] = claim
                self.crashed += sum(each.claimed.crashes > 0 for each in claim.attempts.values())

    def unanswered(self, tokens: Iterable[str]) -> None:
        """Note a claim whose answer was lost: whatever it took must be given back."""
        with self._lock:
            tokens = set(tokens)
            self._asking -= tokens
            self._unanswered |= tokens

    def take_unanswered(self) -> list[str]:
        """Hand over the tokens of lost answers to whoever releases them."""
        with self._lock:
            tokens, self._unanswered = list(self._unanswered), set()
            return tokens

    @property
    def has_unanswered(self) -> bool:
        """Whether a claim may have taken jobs that nobody here knows of."""
        return bool(self._unanswered or self._asking)

    def end(self, attempts: Iterable[Attempt]) -> None:
        """Forget attempts whose end is recorded."""
        self._forget(attempts, recorded=True)

    def lose(self, attempt: Attempt) -> None:
        """Forget an attempt whose end is not for us to record: its row may still bear the token."""
        self._forget((attempt,), recorded=False)

    def _forget(self, attempts: Iterable[Attempt], recorded: bool) -> None:
        with self._lock:
            before, is_emptied = self.crashed, False
            for attempt in attempts:
                claimed = attempt.claimed
                claim = self._claims.get(claimed.token)
                if claim is None or claim.attempts.pop(claimed.id, None) is None:
                    continue
                if claimed.crashes > 0:
                    self.crashed -= 1
                if not recorded:
                    claim.is_clean = False
                if not claim.attempts:
                    is_emptied = True
                    del self._claims[claimed.token]
                    if self._parted is not None:
                        self._parted.add(claimed.token)
                    (self._emptied if claim.is_clean else self._doubtful).append(claimed.token)
            is_calm = before > 0 and self.crashed == 0
            left = len(self._emptied) + len(self._doubtful)
            is_less = before > 0
            is_untidy = is_emptied and (left >= UNTIDY or not self._claims)
        if is_less:
            self.when_less()
        if is_calm:
            self.when_calm()
        if is_untidy:
            self.when_untidy()

    def take_emptied(self) -> list[str]:
        """Hand over the leases whose every job has ended, to be removed unseen."""
        with self._lock:
            tokens, self._emptied = self._emptied, []
            return tokens

    def take_doubtful(self) -> list[str]:
        """Hand over the leases that hold nothing of ours, to be removed if no row bears their token."""
        with self._lock:
            tokens, self._doubtful = self._doubtful, []
            return tokens

    def doubt(self, tokens: Iterable[str]) -> None:
        """Take leases back that could not be removed."""
        with self._lock:
            self._doubtful.extend(tokens)

    def claims(self) -> list[HeldClaim]:
        """The claims as they are now."""
        with self._lock:
            return list(self._claims.values())

    def by_claim(self) -> list[tuple[HeldClaim, list[Attempt]]]:
        """The claims with their attempts that have not ended."""
        with self._lock:
            return [(claim, list(claim.attempts.values())) for claim in self._claims.values()]

    def attempts(self) -> list[Attempt]:
        """Every attempt that has not ended."""
        with self._lock:
            return [each for claim in self._claims.values() for each in claim.attempts.values()]

    @contextmanager
    def comparing(self) -> Iterator[Callable[[str], bool]]:
        """Give a test whether a token is known here: held, asked for, or parted with since this block began.

        What the database says is a moment old when it is heard, and a claim may have ended meanwhile.
        """
        with self._lock:
            parted = self._parted = set[str]()
        try:
            yield lambda token: self._is_ours(token) or token in parted
        finally:
            with self._lock:
                self._parted = None

    def _is_ours(self, token: str) -> bool:
        with self._lock:
            return token in self._claims or token in self._asking
