"""Sealed payloads: the envelope that is stored, what it is bound to, and the codec that an application plugs in.

An input is bound to its job's id and type, an output to its chain: copied to another job, neither can be opened.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeGuard

import msgspec

from holdfast.core.codec import LARGE_PREFIX, RESERVED, SEALED_PREFIX
from holdfast.core.errors import FilesUnknown, SealBroken, SealKeyMissing
from holdfast.core.ids import delivery_id

SEALED_TEXT = "(the text is sealed)"
"""Instead of what an error of a sealed job says: it may repeat the payload."""


class Sealed(msgspec.Struct, frozen=True):
    """What a sealer makes of a payload: the id of the key that opens it, and the encrypted bytes."""

    key: str
    data: bytes


class Sealer(Protocol):
    """Seals and opens payloads; `Seal` is the one that comes with Holdfast.

    It is called on the event loop and from threads, so it should neither block nor ask a server each time.
    """

    def seal(self, plain: bytes, bound_to: bytes) -> Sealed:
        """Encrypt a payload so that it opens only together with what it is bound to."""

    def open(self, sealed: Sealed, bound_to: bytes) -> bytes:
        """Decrypt a payload. Raises: SealKeyMissing, SealBroken."""


NEVER_LARGE = 256
"""A payload of so few characters is never kept elsewhere, so a start need not ask."""


class PayloadStore(Sealer):
    """A sealer of an extension that keeps large payloads elsewhere: records get references in their place.

    `find_large` returns what does that to a list of records, and blocks; `keep` does it in a thread. `restore` puts the
    payloads back in a thread, and `fetch` returns the one of a reference, and blocks. Both raise SealError.
    """

    sealer: Sealer | None
    find_large: Callable[[list[Any]], Callable[[], list[Any]] | None]
    keep: Callable[[list[Any]], Awaitable[None]]
    restore: Callable[[list[Any]], Awaitable[None]]
    fetch: Callable[[str], str]


class KeptInput(msgspec.Struct, frozen=True):
    """The input of a job that is kept elsewhere, for another job: the reference, as the first one's row has it."""

    reference: str

    @property
    def large(self) -> dict[str, Any]:
        """Size and digest, for people."""
        found: dict[str, Any] = msgspec.json.decode(self.reference)["$large"]
        return found


class _Envelope(msgspec.Struct, frozen=True, rename={"sealed": "$sealed"}):
    sealed: Sealed


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Envelope)


def is_sealed(text: str) -> bool:
    """Whether a stored payload is sealed."""
    return text.startswith(SEALED_PREFIX)


def is_large(text: str) -> bool:
    """Whether a stored payload is a reference to a large one, which may be sealed."""
    return text.startswith(LARGE_PREFIX) or (is_sealed(text) and LARGE_PREFIX[1:] in text[:300])


def key_id(text: str | None) -> str | None:
    """Return the id of the key that a stored payload is sealed with, None for one in clear."""
    if text is None or not is_sealed(text):
        return None
    try:
        return _decoder.decode(text).sealed.key
    except msgspec.MsgspecError:
        return "?"


def seal_input(sealer: Sealer | None, text: str, id: str, type: str) -> str:
    """Return the input of a job as it is stored. Raises: SealKeyMissing without a sealer."""
    return _seal(check_sealer(sealer, type), text, _input_of(id, type))


def open_input(sealer: Sealer | None, text: str, id: str, type: str) -> str:
    """Return the stored input of a job in clear; one that is not sealed as it is. Raises: SealError."""
    return text if not text.startswith(RESERVED) else _open(sealer, text, _input_of(id, type))


def seal_output(sealer: Sealer | None, text: str, chain_id: str, type: str) -> str:
    """Return the output of a chain as it is stored. Raises: SealKeyMissing without a sealer."""
    return _seal(check_sealer(sealer, type), text, _output_of(chain_id))


def open_output(sealer: Sealer | None, text: str, chain_id: str) -> str:
    """Return the stored output of a chain in clear; one that is not sealed as it is. Raises: SealError."""
    return text if not text.startswith(RESERVED) else _open(sealer, text, _output_of(chain_id))


def sealed_marker(text: str) -> dict[str, Any]:
    """Return what is shown instead of a sealed payload."""
    return {"sealed": {"key": key_id(text)}}


def _input_of(id: str, type: str) -> bytes:
    """An event's deliveries are copied from it without a key, so they are bound to the event."""
    event, slash, _ = type.partition("/")
    origin = delivery_id(id, type) if slash else id
    return f"holdfast input {origin} {event}".encode()


def _output_of(chain_id: str) -> bytes:
    return f"holdfast output {chain_id}".encode()


def check_sealer(sealer: Sealer | None, type: str) -> Sealer:
    """Return what seals payloads of a type. Raises: SealKeyMissing without one."""
    if not can_seal(sealer):
        raise SealKeyMissing(f"job type {type} is sealed, but this process has no key to seal with")
    return sealer


def can_seal(sealer: Sealer | None) -> TypeGuard[Sealer]:
    """Whether there is a key to seal with; what only keeps large payloads elsewhere has none."""
    return sealer is not None and not (isinstance(sealer, PayloadStore) and sealer.sealer is None)


def _seal(sealer: Sealer, text: str, bound_to: bytes) -> str:
    return _encoder.encode(_Envelope(sealer.seal(text.encode(), bound_to))).decode()


def _open(sealer: Sealer | None, text: str, bound_to: bytes) -> str:
    if is_large(text):
        if not isinstance(sealer, PayloadStore):
            raise FilesUnknown("the payload is in a file of large values")
        text = sealer.fetch(text)
        if not is_sealed(text):
            return text
    try:
        sealed = _decoder.decode(text).sealed
    except msgspec.MsgspecError:
        raise SealBroken("the payload has no valid envelope") from None
    if sealer is None:
        raise missing_key(sealed.key)
    return sealer.open(sealed, bound_to).decode()


def missing_key(key: str) -> SealKeyMissing:
    """Return the error for a key that this process does not hold; the same for all payloads of that key."""
    return SealKeyMissing(
        f"sealed with the key {key[:60]!r}, which this process does not have", key=key
    )
