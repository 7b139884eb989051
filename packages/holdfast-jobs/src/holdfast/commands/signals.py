"""Sending signals to durable functions."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

from holdfast.commands.change import Change, Effect
from holdfast.core.codec import TypeCodec
from holdfast.core.duration import Duration, milliseconds
from holdfast.core.errors import InvalidName, InvalidOption
from holdfast.core.events import event
from holdfast.core.registry import is_name
from holdfast.core.signatures import check_kind
from holdfast.core.steps import KEEP, MAX_NAME, NewSignal
from holdfast.notify.base import ANY, Hint
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op
from holdfast.storage.store import Store

_ANYTHING = TypeCodec(Any)
_AN_ID = "use an id of what it is about"
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def make_signal(
    name: object,
    key: object = None,
    data: object = None,
    *,
    id: object = None,
    keep: Duration = KEEP,
    broadcast: object = False,
) -> NewSignal:
    """Check a signal before any statement runs. Raises: InvalidName, InvalidOption, InvalidDuration, PayloadError."""
    check_kind("broadcast", broadcast, (bool,))
    return NewSignal(
        id=new_id(),
        name=check_signal_name(name),
        key=check_signal_key(key),
        data=_ANYTHING.encode(data),
        keep_ms=milliseconds(keep),
        given_id=None if id is None else check_signal_key(id, "id"),
        broadcast=bool(broadcast),
    )


def check_signal_name(name: object) -> str:
    """Return the name of a signal or a step. Raises: InvalidName."""
    if not isinstance(name, str) or not is_name(name):
        raise InvalidName(f"{repr(name)[:60]} is not a valid name of a step or signal")
    return name


def check_signal_key(key: object, option: str = "key") -> str:
    """Return a key as text; "" for None. Raises: InvalidOption."""
    if key is None:
        return ""
    check_kind(option, key, (str, int, UUID))
    text = str(key)
    if not 0 < len(text) <= MAX_NAME:
        raise InvalidOption(
            f"{option} has {len(text)} characters; it can have 1 to {MAX_NAME}", help=_AN_ID
        )
    if _UNSTORABLE.search(text):
        raise InvalidOption(f"{option} contains a NUL character or a lone surrogate", help=_AN_ID)
    return text


def send_signal(store: Store, signal: NewSignal) -> Op[Change[bool]]:
    """Append a signal; answer whether it was new."""
    written = yield from store.signals.append([signal])
    if not written:
        return Change(False)
    hints = [Hint("signal", signal.name)]
    if store.dialect == "sqlite":
        # There it was routed at once.
        hints.append(Hint("due", ANY))
    target = f"signal {signal.name} {signal.key}".rstrip()
    told = event("signal_sent", signal=signal.name, id=signal.id)
    return Change(True, [Effect(target, after={"id": signal.id})], hints, [told])
