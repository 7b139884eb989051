"""Secrets of tokens: made of 256 random bits, shown once, remembered only as a hash."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets

PREFIX = "hf_"
BYTES = 32

_FORM = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{43}}", re.ASCII)


def new_secret() -> str:
    """Make a secret; its prefix lets scanners and people recognise it."""
    return f"{PREFIX}{secrets.token_urlsafe(BYTES)}"


def is_secret(text: str) -> bool:
    """Say whether a text could be a secret of ours; others need no question to the database."""
    return _FORM.fullmatch(text) is not None


def hash_of(secret: str) -> str:
    """Return what is stored of a secret. So many random bits need no salt and no slow hash."""
    return hashlib.sha256(secret.encode()).hexdigest()


def is_same(one: str, other: str) -> bool:
    """Compare two hashes in a time that does not depend on where they differ."""
    return hmac.compare_digest(one, other)
