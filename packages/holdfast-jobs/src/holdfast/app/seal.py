"""`Seal`: payloads encrypted with AES-256-GCM, by keys that have names so that they can be rotated."""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from holdfast.core.errors import ConfigError, MissingExtra, SealBroken
from holdfast.core.sealing import Sealed, Sealer, missing_key

KEY_BYTES = 32
NONCE_BYTES = 12

SEAL_KEYS = "HOLDFAST_SEAL_KEYS"
_FORM = "id:key pairs separated by commas, or @FILE with one pair a line"
_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,59}", re.ASCII)


class Seal:
    """Seals with the current key and opens with any of its keys."""

    def __init__(self, keys: Mapping[str, str | bytes], current: str | None = None) -> None:
        """Take keys by their ids: 32 bytes, or their base64. Without `current`, the first one seals.

        Raises: ConfigError, MissingExtra.
        """
        if find_spec("cryptography") is None:
            raise MissingExtra(
                "sealed payloads need cryptography", help='pip install "holdfast-jobs[sealed]"'
            )
        self._keys = {_checked_id(id): _key_bytes(id, key) for id, key in keys.items()}
        if not self._keys:
            raise ConfigError("a seal needs a key", help="create one with Seal.new_key()")
        self._current = next(iter(self._keys)) if current is None else current
        if self._current not in self._keys:
            raise ConfigError(f"the seal has no key {self._current!r}, which is set as current")

    @classmethod
    def new_key(cls) -> str:
        """Return a new random key, as base64."""
        return base64.b64encode(os.urandom(KEY_BYTES)).decode()

    def __repr__(self) -> str:
        """Show the ids of the keys, and no key."""
        return f"Seal(keys={sorted(self._keys)}, current={self._current!r})"

    def seal(self, plain: bytes, bound_to: bytes) -> Sealed:
        """See `Sealer`."""
        nonce = os.urandom(NONCE_BYTES)
        data = _cipher(self._keys[self._current]).encrypt(nonce, plain, bound_to)
        return Sealed(self._current, nonce + data)

    def open(self, sealed: Sealed, bound_to: bytes) -> bytes:
        """See `Sealer`."""
        from cryptography.exceptions import InvalidTag

        key = self._keys.get(sealed.key)
        if key is None:
            raise missing_key(sealed.key)
        nonce, data = sealed.data[:NONCE_BYTES], sealed.data[NONCE_BYTES:]
        try:
            plain: bytes = _cipher(key).decrypt(nonce, data, bound_to)
        except (InvalidTag, ValueError):
            raise SealBroken(
                f"it cannot be opened with the key {sealed.key!r} for this job", key=sealed.key
            ) from None
        return plain


def seal_of(given: Sealer | None, setting: str | None) -> Sealer | None:
    """Return what an application seals with: what it was given, else the keys of the setting. Raises: ConfigError."""
    if given is not None or setting is None:
        return given
    return Seal(_parse(setting))


def _parse(setting: str) -> dict[str, str]:
    text = setting
    if setting.startswith("@"):
        try:
            text = Path(setting[1:]).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"{SEAL_KEYS}: {setting[1:]} cannot be read: {error.__class__.__name__}"
            ) from None
    keys: dict[str, str] = {}
    for pair in filter(None, (each.strip() for each in re.split(r"[,\n]", text))):
        id, colon, key = pair.partition(":")
        if not colon or id.strip() in keys:
            # The text is not repeated: it is a secret.
            raise ConfigError(f"{SEAL_KEYS} cannot be read", help=f"write {_FORM}, each id once")
        keys[id.strip()] = key.strip()
    return keys


def _checked_id(id: object) -> str:
    if not isinstance(id, str) or _ID.fullmatch(id) is None:
        raise ConfigError(
            "the id of a seal's key is not valid", help="use letters, digits, dots and hyphens"
        )
    return id


def _key_bytes(id: str, key: object) -> bytes:
    raw = key
    if isinstance(key, str):
        try:
            raw = base64.b64decode(key.replace("-", "+").replace("_", "/"), validate=True)
        except (binascii.Error, ValueError):
            raw = b""
    if not isinstance(raw, bytes) or len(raw) != KEY_BYTES:
        raise ConfigError(
            f"the seal's key {id!r} is not 32 bytes or their base64",
            help='create one: python -c "from holdfast import Seal; print(Seal.new_key())"',
        )
    return raw


@cache
def _cipher(key: bytes) -> Any:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)
