"""Access: roles and the policy, the gateway that checks and audits every call, API tokens, and the audit log."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from holdfast.admin.bulk_audit import Bulk, bulk_key, fold_effects, fold_entries
from holdfast.admin.serializers import plain, redact_text
from holdfast.client.pagination import check_length
from holdfast.commands.change import Change, Effect, with_audit
from holdfast.commands.tokens import create_token, revoke_token
from holdfast.core.codec import decode_any
from holdfast.core.duration import Duration, milliseconds
from holdfast.core.errors import (
    ConfinementUnsupported,
    InvalidCursor,
    InvalidId,
    InvalidOption,
    Refused,
)
from holdfast.core.ids import parse_id
from holdfast.core.instants import Instant, to_datetime, to_instant
from holdfast.core.records import AuditRecord, NewToken, TokenRecord
from holdfast.core.redaction import printable
from holdfast.extensions import import_name, merge, modules_of, rows
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.client.start_options import StartOptions
    from holdfast.storage.store import Store

T = TypeVar("T")

READ_TIMEOUT_MS = 5_000
"""A page that takes longer than this is not worth waiting for."""

MAX_TOKENS = 1_000
MAX_NAME_LENGTH = 100
MAX_REASON_LENGTH = 1_000

PAGE_ROWS = 200
MAX_READS = 20
"""A page of the audit is made of so many rows at most: an action on thousands of jobs leaves many."""

TOUCH_EVERY_US = 60_000_000

TOKEN_PREFIX = "hf_"
TOKEN_BYTES = 32

_FORM = re.compile(rf"{TOKEN_PREFIX}[A-Za-z0-9_-]{{43}}", re.ASCII)


class Role(IntEnum):
    """A role; each may do what those below it may."""

    USER = 0
    VIEWER = 1
    OPERATOR = 2
    DEVELOPER = 3

    @property
    def word(self) -> str:
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
    """An authenticated caller; one with `only`, as in `context.tenant:acme`, is confined to that."""

    name: str
    role: Role
    only: str = ""

    @property
    def grant(self) -> str:
        """The role and its confinement. Tokens store it so: an older process refuses a role that it does not know."""
        return f"{self.role.word} {self.only}".rstrip()

    @property
    def confinement(self) -> Confinement | None:
        """What cuts all that it does, None if nothing does. Raises: ConfinementUnsupported."""
        if not self.only:
            return None
        for name in modules_of("confinement"):
            found: Confinement = import_name(name)(self.only)
            return found
        raise ConfinementUnsupported(f"{self.name} is confined to {self.only}")


class Confinement(Protocol):
    """What a principal is confined to."""

    @property
    def prefix(self) -> str:
        """What the names begin with that it gives where names are shared."""

    def cut(self, op: Op[T]) -> Op[T]:
        """Return an operation that reads and changes nothing else; what is not known to be cut is refused."""

    def cut_start(self, app: Holdfast, options: StartOptions) -> StartOptions:
        """Return the options of a start within it. Raises: Refused."""

    def check(self, app: Holdfast) -> None:
        """Refuse what no job of an application can be in. Raises: ConfinementInvalid."""


LOCAL = Principal("local", Role.DEVELOPER)
"""A local user while no tokens exist; they can open the database itself anyway."""


_OWN_ACTIONS = {
    Role.VIEWER: (
        "audit.list chain.get chain.list chain.wait cycle.list dead.list doctor.read job.get "
        "job.list limit.list metrics.read overview.read signal.list subscription.list "
        "system.read tail.read type.list worker.list"
    ),
    Role.OPERATOR: (
        "chain.cancel cycle.pause cycle.resume cycle.run_now dead.redrive job.cancel "
        "job.retry job.run_now limit.rest limit.set signal.send subscription.remove "
        "subscription.replay type.pause type.resume type.set worker.drain"
    ),
    Role.DEVELOPER: (
        "chain.delete chain.rerun chain.start database.adopt dead.drop job.payload "
        "outbox.run_once outbox.stats token.create token.list token.revoke"
    ),
}
POLICY: dict[str, Role] = {
    **{action: role for role, actions in _OWN_ACTIONS.items() for action in actions.split()},
    **{action: Role.parse(word) for action, word in merge("actions").items()},
}
"""The lowest role that may do each action; an action that is not listed is forbidden."""


def may(principal: Principal, action: str) -> bool:
    """Whether a principal may do this; one that is confined, only what is declared for such."""
    return principal.role >= POLICY[action] and (not principal.only or action in rows("confined"))


def check(principal: Principal, action: str) -> None:
    """Refuse an action to those who may not do it. Raises: Refused."""
    if principal.role < POLICY[action]:
        raise Refused(
            f"{principal.name} has the role {principal.role.word}, which does not allow {action}",
            rule=f"{action} needs the role {POLICY[action].word}",
        )
    if principal.confinement is not None and not may(principal, action):
        raise Refused(
            f"{principal.name} is confined to {principal.only}, and {action} covers more",
            rule=f"{action} needs a role that is not confined",
        )


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is calling, in which request, and why; `bulk` is the action on many that a call is a part of.

    Raises: InvalidOption for a reason that is too long, or that cannot be stored or shown.
    """

    principal: Principal
    request_id: str | None = None
    reason: str | None = None
    bulk: Bulk | None = None

    def __post_init__(self) -> None:
        reason = (self.reason or "").replace("\r\n", "\n")
        if len(reason) > MAX_REASON_LENGTH or printable(reason) != reason:
            raise InvalidOption(
                f"a reason has at most {MAX_REASON_LENGTH} characters, none of them a control character"
            )

    @property
    def name(self) -> str:
        return self.principal.name

    def may(self, action: str) -> bool:
        """Whether the caller's role allows an action."""
        return may(self.principal, action)


class Gateway:
    """Runs reads and commands for callers. A read has a time limit; a command and its audit are one transaction."""

    def __init__(self, app: Holdfast, read_timeout_ms: int = READ_TIMEOUT_MS) -> None:
        self.app = app
        self._read_timeout_ms = read_timeout_ms

    @property
    def store(self) -> Store:
        return self.app.database.store

    async def read(self, caller: Caller, action: str, op: Callable[[Store], Op[T]]) -> T:
        """Check the caller's role and read. Raises: Refused, DatabaseBusy, DatabaseUnreachable."""
        check(caller.principal, action)
        return await self.read_unchecked(lambda store: _cut(caller, op(store)))

    async def read_unchecked(self, op: Callable[[Store], Op[T]]) -> T:
        """Read for the service itself, such as who the caller is. Raises: DatabaseBusy, DatabaseUnreachable."""
        return await self.app.database.read_async(op(self.store), self._read_timeout_ms)

    async def run(
        self, caller: Caller, action: str, command: Callable[[Store], Op[Change[T]]]
    ) -> T:
        """Check the caller's role, run a command with its audit, and notify after the commit. Raises: Refused."""
        check(caller.principal, action)
        cut = _cut(caller, command(self.store))
        op = with_audit(self.store, cut, partial(audit_entries, caller, action))
        change = await self.app.database.run_async(op)
        if change.hints:
            self.app.notifier.send(change.hints)
        self.app.tell(change.events)
        return change.answer

    async def record(self, caller: Caller, action: str, effect: Effect) -> None:
        """Audit something that was done outside a command."""
        entries = audit_entries(caller, action, [effect])
        await self.app.database.run_async(self.store.audit.append(entries))


def _cut(caller: Caller, op: Op[T]) -> Op[T]:
    confinement = caller.principal.confinement
    return op if confinement is None else confinement.cut(op)


class NounAdmin:
    """Reads and commands of one noun, through the gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def close(self) -> None:
        """End what was begun and goes on after a call returned."""


def audit_entries(caller: Caller, action: str, effects: Sequence[Effect]) -> list[AuditRecord]:
    """Return the audit entries of a command's effects; those on many jobs or chains make one."""
    return [
        AuditRecord(
            id=new_id(),
            actor=caller.name,
            role=caller.principal.grant,
            action=action,
            target=each.target,
            before=_json(each.before),
            after=_json(each.after),
            reason=caller.reason,
            request_id=caller.request_id,
        )
        for each in fold_effects(effects, caller.bulk)
    ]


def _json(value: Any) -> str | None:
    if value is None:
        return None
    fields = plain(value) if isinstance(value, msgspec.Struct) else value
    return msgspec.json.encode(fields).decode()


class MadeToken(msgspec.Struct, frozen=True):
    """A new token, with the secret that is shown this once."""

    token: dict[str, Any]
    secret: str


class TokenAdmin(NounAdmin):
    """API tokens: 256 random bits, shown once and stored as a hash."""

    async def create(
        self, caller: Caller, holder: Principal, lasts: Duration | None = None
    ) -> MadeToken:
        """Make a token. Raises: InvalidOption, InvalidDuration, ConfinementUnsupported, ConfinementInvalid."""
        secret = new_secret()
        token = new_token(holder, secret, lasts)
        if holder.confinement is not None:
            holder.confinement.check(self._gateway.app)
        record = await self._gateway.run(
            caller, "token.create", lambda store: create_token(store, token)
        )
        return MadeToken(shown_token(record), secret)

    async def list(self, caller: Caller) -> list[dict[str, Any]]:
        """Read tokens, newest first, without their hashes."""
        records = await self._gateway.read(
            caller, "token.list", lambda store: store.tokens.page(MAX_TOKENS)
        )
        return [shown_token(each) for each in records]

    async def revoke(self, caller: Caller, id: str) -> None:
        """Make a token invalid from now on. Raises: TokenNotFound, InvalidId."""
        wanted = str(parse_id(id))
        await self._gateway.run(caller, "token.revoke", lambda store: revoke_token(store, wanted))

    async def exist(self) -> bool:
        """Whether any token was ever created."""
        return await self._gateway.read_unchecked(lambda store: store.tokens.exist())

    async def principal(self, secret: str) -> Principal | None:
        """Return the principal of a secret, None when it is invalid or expired."""
        if not is_secret(secret):
            return None
        wanted, database = hash_of(secret), self._gateway.app.database
        record = await self._gateway.read_unchecked(lambda store: store.tokens.find(wanted))
        if record is None:
            return None
        used_at = record.last_used_at
        if used_at is None or time.time_ns() // 1000 - used_at > TOUCH_EVERY_US:
            # The statement checks again by the database's clock; this saves the write.
            await database.run_async(database.store.tokens.touch(record.id))
        word, _, only = record.role.partition(" ")
        return Principal(record.name, Role.parse(word), only)


def new_secret() -> str:
    """Create a secret; its prefix makes it recognisable to scanners and people."""
    return f"{TOKEN_PREFIX}{secrets.token_urlsafe(TOKEN_BYTES)}"


def is_secret(text: str) -> bool:
    """Whether a text could be one of our secrets; others need no query."""
    return _FORM.fullmatch(text) is not None


def hash_of(secret: str) -> str:
    """Return what is stored of a secret. So many random bits need no salt and no slow hash."""
    return hashlib.sha256(secret.encode()).hexdigest()


def new_token(holder: Principal, secret: str, lasts: Duration | None = None) -> NewToken:
    """Return what is written of a token. Raises: InvalidOption, InvalidDuration."""
    name = holder.name
    if not name or len(name) > MAX_NAME_LENGTH or not name.isprintable():
        raise InvalidOption(f"a token's name has 1 to {MAX_NAME_LENGTH} printable characters")
    lasts_ms = None if lasts is None else milliseconds(lasts)
    if lasts_ms == 0:
        raise InvalidOption("a token cannot expire immediately")
    return NewToken(new_id(), name, holder.grant, hash_of(secret), lasts_ms)


def shown_token(record: TokenRecord) -> dict[str, Any]:
    """Return a token without its hash."""
    fields = plain(record)
    del fields["hash"]
    return fields


class AuditPage(msgspec.Struct, frozen=True):
    """A part of the log; `next` is the cursor of the following part."""

    items: list[dict[str, Any]]
    next: str | None


class AuditLog(NounAdmin):
    """Who did what, newest first."""

    async def page(
        self,
        caller: Caller,
        limit: int = 50,
        after: str | None = None,
        *,
        actor: str | None = None,
        action: str | None = None,
        target: str | None = None,
    ) -> AuditPage:
        """Read a page of the log; a bulk action is one entry. Raises: InvalidCursor, InvalidOption."""
        check_length(limit)
        before = None if after is None else _read_cursor(after)
        return await self._gateway.read(
            caller,
            "audit.list",
            lambda store: _read_log(store, limit, before, actor, action, target),
        )


def _read_log(
    store: Store,
    limit: int,
    before: tuple[Instant, str] | None,
    actor: str | None,
    action: str | None,
    target: str | None,
) -> Op[AuditPage]:
    """Read rows until they make more entries than are wanted, or there are no more."""
    entries: dict[str, dict[str, Any]] = {}
    for _ in range(MAX_READS):
        rows = yield from store.audit.page(
            PAGE_ROWS, before, actor=actor, action=action, target=target
        )
        for record in rows:
            entry = _audit_json(record)
            key = bulk_key(entry)
            if key not in entries and len(entries) == limit:
                return AuditPage(list(entries.values()), _cursor(before))
            known = entries.get(key)
            entries[key] = entry if known is None else fold_entries(known, entry)
            before = (record.at, record.id)
        if len(rows) < PAGE_ROWS:
            return AuditPage(list(entries.values()), None)
    return AuditPage(list(entries.values()), _cursor(before))


def _audit_json(record: AuditRecord) -> dict[str, Any]:
    return {
        **plain(record),
        "before": None if record.before is None else decode_any(record.before),
        "after": None if record.after is None else decode_any(record.after),
        "reason": redact_text(record.reason),
    }


def _cursor(place: tuple[Instant, str] | None) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode()


def _read_cursor(text: str) -> tuple[Instant, str]:
    try:
        raw = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
        at, id = msgspec.json.decode(raw, type=tuple[int, str])
        if to_instant(to_datetime(at)) != at:
            raise ValueError  # no database has what lies beyond
        return at, str(parse_id(id))
    except (ValueError, binascii.Error, msgspec.MsgspecError, InvalidId):
        raise InvalidCursor("the cursor is invalid") from None
