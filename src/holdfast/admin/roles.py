"""Roles in order, and the lowest role of every action as data; checked in one place, the gateway."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from holdfast.core.errors import InvalidOption, Refused


class Role(IntEnum):
    """A role; each may do what those below it may."""

    USER = 0
    VIEWER = 1
    OPERATOR = 2
    DEVELOPER = 3

    @property
    def word(self) -> str:
        """The role's name."""
        return self.name.lower()

    @classmethod
    def parse(cls, text: str) -> Role:
        """Return the role of a word. Raises: InvalidOption."""
        for role in cls:
            if role.word == text:
                return role
        known = ", ".join(role.word for role in cls)
        raise InvalidOption(f"{text[:40]!r} is not a role", help=f"use one of {known}")


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller."""

    name: str
    role: Role


LOCAL = Principal("local", Role.DEVELOPER)
"""A local user while no tokens exist; they can open the database itself anyway."""

POLICY: dict[str, Role] = {
    "audit.list": Role.VIEWER,
    "chain.cancel": Role.OPERATOR,
    "chain.delete": Role.DEVELOPER,
    "chain.get": Role.VIEWER,
    "chain.list": Role.VIEWER,
    "chain.start": Role.DEVELOPER,
    "chain.wait": Role.VIEWER,
    "cycle.list": Role.VIEWER,
    "cycle.pause": Role.OPERATOR,
    "cycle.resume": Role.OPERATOR,
    "cycle.run_now": Role.OPERATOR,
    "database.adopt": Role.DEVELOPER,
    "dead.drop": Role.DEVELOPER,
    "dead.list": Role.VIEWER,
    "dead.redrive": Role.OPERATOR,
    "doctor.read": Role.VIEWER,
    "job.cancel": Role.OPERATOR,
    "job.get": Role.VIEWER,
    "job.list": Role.VIEWER,
    "job.payload": Role.DEVELOPER,
    "job.retry": Role.OPERATOR,
    "job.run_now": Role.OPERATOR,
    "metrics.read": Role.VIEWER,
    "outbox.run_once": Role.DEVELOPER,
    "outbox.stats": Role.DEVELOPER,
    "overview.read": Role.VIEWER,
    "subscription.list": Role.VIEWER,
    "subscription.remove": Role.OPERATOR,
    "system.read": Role.VIEWER,
    "tail.read": Role.VIEWER,
    "token.create": Role.DEVELOPER,
    "token.list": Role.DEVELOPER,
    "token.revoke": Role.DEVELOPER,
    "type.list": Role.VIEWER,
    "type.pause": Role.OPERATOR,
    "type.resume": Role.OPERATOR,
    "type.set": Role.OPERATOR,
    "worker.drain": Role.OPERATOR,
    "worker.list": Role.VIEWER,
}
"""The lowest role that may do each action; an action that is not listed is forbidden."""


def may(principal: Principal, action: str) -> bool:
    """Whether a principal may do this."""
    return principal.role >= POLICY[action]


def least_of(actions: Sequence[str]) -> str:
    """Return the action of the lowest role among several."""
    return min(actions, key=POLICY.__getitem__)


def check(principal: Principal, action: str) -> None:
    """Refuse an action to those who may not do it. Raises: Refused."""
    if not may(principal, action):
        raise Refused(
            f"{principal.name} has the role {principal.role.word}, which may not do {action}",
            rule=f"{action} needs the role {POLICY[action].word}",
        )
