"""Error texts as they are stored: printable, redacted, bounded, and grouped by what they say."""

from __future__ import annotations

import re
from hashlib import blake2b

from holdfast.core.redaction import redact

ERROR_LIMIT = 8_192

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
# NUL and lone surrogates cannot be stored; escape codes would act on the terminals of readers.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
# Searched for secrets beyond the limit, so that the first cut cannot leave the end of one in sight.
_SEARCHED_BYTES = 65_536
_CUT = "\n… (cut) …\n".encode()
_FINGERPRINTED = 1_000
_VARIABLE_PARTS = tuple(
    (re.compile(pattern, re.IGNORECASE), name)
    for pattern, name in (
        (r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", "<id>"),
        (r"\"[^\"]*\"|(?<!\w)'[^']*'|`[^`]*`", "<text>"),
        (r"\b0x[0-9a-f]+\b|\b(?=[a-f]*\d)[0-9a-f]{8,}\b", "<hex>"),
        (r"\d+(?:\.\d+)?", "<number>"),
        (r"\s+", " "),
    )
)


def clean_error(type_name: str, message: str, stack: str = "", limit: int = ERROR_LIMIT) -> str:
    """Return the text to store for an error: at most `limit` bytes, without secrets; never raises."""
    text = f"{type_name}: {message}" if message else type_name
    if stack:
        text = f"{text}\n{stack}"
    return clean_text(text, limit)


def clean_text(text: str, limit: int = ERROR_LIMIT) -> str:
    """Return a text as it may be stored and told: printable, without secrets, at most `limit` bytes."""
    return shortened(redact(printable(shortened(text, limit + _SEARCHED_BYTES))), limit)


def words_of(error: object) -> str:
    """Return what an error says, whatever happens when it is asked."""
    try:
        return str(error)
    except BaseException as worse:
        return f"its text could not be made: {type(worse).__name__}"


def printable(text: str) -> str:
    """Return the text with everything replaced that cannot be stored or shown."""
    return _UNPRINTABLE.sub(_REPLACEMENT, text.replace("\r\n", "\n"))


def shortened(text: str, limit: int) -> str:
    """Return the text in at most `limit` bytes of UTF-8, the middle left out when it is longer."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit:
        return text
    room = limit - len(_CUT)
    if room < 2:
        return raw[: max(limit, 0)].decode("utf-8", "ignore")
    head, tail = raw[: room - room // 2], raw[len(raw) - room // 2 :]
    return b"".join((head, _CUT, tail)).decode("utf-8", "ignore")


def fingerprint(type_name: str, message: str) -> str:
    """Return a short key that errors share when they differ only in numbers, ids and quotations."""
    first_line = message.strip().partition("\n")[0][:_FINGERPRINTED]
    for pattern, name in _VARIABLE_PARTS:
        first_line = pattern.sub(name, first_line)
    said = f"{type_name}\0{first_line.strip()}".encode("utf-8", "replace")
    return blake2b(said, digest_size=8).hexdigest()
