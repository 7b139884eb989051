"""What a JSON text must obey so that both databases keep it exactly; cheap on the bytes themselves.

Each rule first asks a question that scans at memory speed and rarely says yes by mistake; only then
the exact, slower one is asked.
"""

from __future__ import annotations

import math
import re
from typing import Any

from holdfast.core.errors import PayloadNotEncodable, PayloadTooLarge

SIZE_LIMIT = 1024 * 1024
DEPTH_LIMIT = 200
SMALLEST_INT = -(2**63)
LARGEST_INT = 2**63 - 1

_BACKSLASH = ord("\\")
_NUL = b"\\u0000"
# An even number of backslashes before it would mean the six characters themselves, not a NUL.
_EXACT_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_NUMBER = re.compile(rb"-?[0-9][0-9.eE+-]*")
_DIGITS_TO_ZERO = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER = "0" * len(str(LARGEST_INT))
_ONE_KIND_OF_BRACKET = bytes.maketrans(b"{}", b"[]")
_ALL_BUT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_LOOKED_INTO = frozenset({dict, list, tuple, float})


def checked_text(raw: bytes, limit: int = SIZE_LIMIT) -> str:
    """Return the JSON text, or refuse what is too large or what a database would change."""
    if len(raw) > limit:
        raise PayloadTooLarge(f"the payload has {len(raw)} bytes, the limit is {limit}")
    if _BACKSLASH in raw and _NUL in raw and _EXACT_NUL.search(raw):
        raise PayloadNotEncodable("the payload contains a NUL character")
    if _LONG_NUMBER in raw.translate(_DIGITS_TO_ZERO).decode("latin-1"):
        _check_ints(raw)
    if len(raw) > 2 * DEPTH_LIMIT and raw.count(b"[") + raw.count(b"{") > DEPTH_LIMIT:
        _check_depth(raw)
    return raw.decode()


def check_finite(value: Any) -> None:
    """Refuse NaN and infinities anywhere in a value made of builtin types."""
    waiting = [value]
    for each in waiting:
        if type(each) is dict:
            waiting += [member for member in each.values() if type(member) in _LOOKED_INTO]
        elif type(each) in (list, tuple):
            waiting += [member for member in each if type(member) in _LOOKED_INTO]
        elif type(each) is float and not math.isfinite(each):
            raise PayloadNotEncodable(f"the payload contains {each}, which JSON cannot express")


def _check_ints(raw: bytes) -> None:
    for number in _NUMBER.findall(_without_strings(raw)):
        if not number.lstrip(b"-").isdigit():
            continue
        # Numbers of absurd length are refused by length: converting them takes quadratic time.
        if len(number) > 20 or not SMALLEST_INT <= int(number) <= LARGEST_INT:
            raise PayloadNotEncodable(f"{_short(number)} is an integer beyond 64 bits")


def _check_depth(raw: bytes) -> None:
    brackets = _without_strings(raw).translate(_ONE_KIND_OF_BRACKET, _ALL_BUT_BRACKETS)
    for _ in range(DEPTH_LIMIT):
        brackets = brackets.replace(b"[]", b"")
        if not brackets:
            return
    raise PayloadNotEncodable(f"the payload is nested deeper than {DEPTH_LIMIT} levels")


def _without_strings(raw: bytes) -> bytes:
    without_escapes = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(without_escapes.split(b'"')[::2])


def _short(number: bytes) -> str:
    text = number.decode()
    return text if len(text) <= 30 else f"{text[:12]}…, {len(text)} digits"
